"""A PostgreSQL of Debian's package for a test session: in a directory of its own, on a free port, without fsync."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from peers.kafka import free_port

USER, PASSWORD = "headrace", "s3cret:/pass"
START_PATIENCE_S = 60.0
STOP_PATIENCE_S = 60.0


def programs() -> Path | None:
    """Where initdb and postgres are: of the latest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parent.parent.name))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).resolve().parent


@dataclass(frozen=True)
class Server:
    """A running server; it asks for a password."""

    port: int

    def address(self, database: str, *, table: str = "") -> str:
        """As `table-sync` takes it, and without a table as PostgreSQL's own client does."""
        password = PASSWORD.replace(":", "%3A").replace("/", "%2F")
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}{'#' * bool(table)}{table}"


@contextmanager
def server() -> Iterator[Server]:
    """PostgreSQL refuses to run as root: then it is the user `postgres`, whom the package has made."""
    at = programs()
    assert at is not None
    directory = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    try:
        (directory / "password").write_text(PASSWORD)
        if as_user:
            for path in (directory, directory / "password"):
                shutil.chown(path, "postgres", "postgres")
        made = [str(at / "initdb"), "-D", str(directory / "data"), "-U", USER, "-A", "scram-sha-256", "-E", "UTF8"]
        made += ["--locale=C.UTF-8", "--no-sync", f"--pwfile={directory / 'password'}"]
        subprocess.run([*as_user, *made], check=True, capture_output=True, cwd=directory)
        running = Server(free_port())
        started = [str(at / "postgres"), "-D", str(directory / "data"), "-p", str(running.port)]
        for setting in (
            "listen_addresses=127.0.0.1", f"unix_socket_directories={directory}", "fsync=off", "full_page_writes=off",
            "synchronous_commit=off", "shared_buffers=16MB", "max_connections=20", "autovacuum=off",
        ):  # fmt: skip
            started += ["-c", setting]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen([*as_user, *started], stdout=log, stderr=log, cwd=directory)
        try:
            _wait_until_ready(process, running, directory / "log")
            yield running
        finally:
            # an immediate shutdown: nothing of it is wanted again
            process.send_signal(signal.SIGQUIT)
            process.wait(STOP_PATIENCE_S)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_ready(process: subprocess.Popen[bytes], running: Server, log: Path) -> None:
    deadline = time.monotonic() + START_PATIENCE_S
    while True:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        try:
            psycopg.connect(running.address("postgres")).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
