"""Spark's own clusters on this machine: a home whose work lies in a test's directory, a standalone master and workers,
and a Connect server; all of them from PySpark's package.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from . import class_archive
from .kafka import free_port

START_PATIENCE_S: Final = 120.0
PARTS: Final = ("bin", "sbin", "jars", "python")
MEMORY: Final = "512m"
QUIET: Final = {"spark.ui.enabled": "false", "spark.log.level": "WARN", **class_archive.PATIENT}


def home(directory: Path) -> Path:
    """A SPARK_HOME of links to PySpark's parts: what Spark writes beside them lies in `directory`."""
    found = find_spec("pyspark")
    assert found is not None and found.submodule_search_locations is not None
    made = directory / "spark-home"
    made.mkdir(parents=True)
    for part in PARTS:
        (made / part).symlink_to(Path(found.submodule_search_locations[0]) / part)
    return made


def environment(spark_home: Path, python: str = sys.executable) -> dict[str, str]:
    """Variables of a program whose Spark has this home, and whose workers run this Python."""
    quick = class_archive.submit_arguments()
    named = {"SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
    return {**os.environ, class_archive.SUBMIT: quick, **named}


class _Processes(ABC):
    """What runs until the block ends, each in a session of its own, with its words in a file."""

    def __init__(self, directory: Path, python: str = sys.executable) -> None:
        self.directory = directory
        self.home = home(directory)
        self.environment = environment(self.home, python)
        self._running: list[subprocess.Popen[bytes]] = []

    def _start(self, name: str, command: Sequence[str], at: Path, variables: Mapping[str, str] | None = None) -> None:
        at.mkdir(parents=True, exist_ok=True)
        with self.said(name).open("wb") as out:
            process = subprocess.Popen(
                command, cwd=at, env={**self.environment, **(variables or {})}, stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._running.append(process)

    def said(self, name: str) -> Path:
        """Where the words of one of them are."""
        return self.directory / f"{name}.txt"

    def _until_said(self, name: str, pattern: str, times: int = 1) -> str:
        """Until its words match so often; the first match's group."""
        until = time.monotonic() + START_PATIENCE_S
        while len(found := re.findall(pattern, self.said(name).read_text())) < times:
            if any(process.poll() is not None for process in self._running) or time.monotonic() > until:
                raise RuntimeError(f"{name} did not start:\n{self.said(name).read_text()[-3000:]}")
            time.sleep(0.05)
        return str(found[0])

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Starts what it is made of, and returns when all of it has said so."""

    def stop(self) -> None:
        """End all of them at once, and what they have started in their sessions."""
        for process in self._running:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self._running.clear()


class Standalone(_Processes):
    """A master and workers of one core, one on each of `hosts`, each with a working directory of its own.

    Spark runs a slow task a second time on another host only: names of this machine do for that, if they differ.
    """

    master = ""

    def __init__(
        self, directory: Path, python: str = sys.executable, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")
    ) -> None:
        super().__init__(directory, python)
        self.hosts = hosts
        self.submits_from = directory / "submitted-from"

    def start(self) -> None:
        """Returns when both workers are registered."""
        runner = str(self.home / "bin" / "spark-class")
        deploy = "org.apache.spark.deploy"
        java = {"SPARK_DAEMON_JAVA_OPTS": " ".join(class_archive.QUICK), "SPARK_DAEMON_MEMORY": MEMORY}
        listening = ("--port", "0", "--webui-port", "0")
        command = [runner, f"{deploy}.master.Master", "--host", "127.0.0.1", *listening]
        self._start("master", command, self.directory / "master", java)
        self.master = self._until_said("master", r"Starting Spark master at (spark://\S+)")
        for number, host in enumerate(self.hosts, 1):
            own = self.directory / f"worker-{number}"
            command = [runner, f"{deploy}.worker.Worker", "--host", host, *listening, "--cores", "1", "--memory", "1g"]
            self._start(own.name, [*command, "--work-dir", str(own / "apps"), self.master], own, java)
        self._until_said("master", "Registering worker", len(self.hosts))

    def submit(
        self, program: Path, *arguments: str, options: Sequence[str] = (), variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with `spark-submit`, from a directory of its own."""
        settings = [f"--conf={key}={value}" for key, value in QUIET.items()]
        command = [str(self.home / "bin" / "spark-submit"), "--master", self.master, "--executor-memory", MEMORY]
        command += ["--driver-memory", MEMORY, "--driver-java-options", class_archive.java_options(), *settings]
        self.submits_from.mkdir(exist_ok=True)
        return subprocess.run(
            [*command, *options, str(program), *arguments], cwd=self.submits_from,
            env={**self.environment, **(variables or {})}, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip


class ConnectServer(_Processes):
    """A Spark Connect server with two local cores, as `start-connect-server.sh` starts it."""

    address = ""

    def start(self) -> None:
        """Returns when it listens."""
        port = free_port()
        self.address = f"sc://127.0.0.1:{port}"
        settings = [f"--conf={key}={value}" for key, value in QUIET.items()]
        command = ["bash", str(self.home / "sbin" / "start-connect-server.sh"), "--master", "local[2]"]
        command += ["--driver-memory", MEMORY, "--driver-java-options", class_archive.java_options(), *settings]
        here = {name: str(self.directory) for name in ("SPARK_LOG_DIR", "SPARK_PID_DIR")}
        command.append(f"--conf=spark.connect.grpc.binding.port={port}")
        self._start("server", command, self.directory / "server", {"SPARK_NO_DAEMONIZE": "1", **here})
        until = time.monotonic() + START_PATIENCE_S
        while not listens(port):
            if self._running[0].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start:\n{self.said('server').read_text()[-3000:]}")
            time.sleep(0.05)


def listens(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
