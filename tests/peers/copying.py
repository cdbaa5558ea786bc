"""Programs that read one place and write to a topic in transactions, with frameworks and clients as they come.

    PROGRAM BOOTSTRAP SOURCE SINK NAME DIRECTORY

`go` copies a topic with franz-go's GroupTransactSession, `streams` counts a topic's numbers by their last digit with
Kafka Streams (`exactly_once_v2`), and `connect` copies a file's lines with a worker of Kafka Connect that writes
exactly once. A program prints, a line each:

    committed, aborted    a transaction has ended, where the program sees that
    note TEXT             what the client told of, and went on from
    error TEXT            what ended it
    closed                it has left in order, after a line on standard input
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from . import programs
from .jars import ROOT, STREAMS
from .kafka import free_port, java

PATIENCE_S: Final = 120.0


class Copying:
    """A program at work within a `with` block; what it says lies in `said` and `errors`."""

    def __init__(self, command: list[str], directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.said = directory / "said.txt"
        self.errors = directory / "errors.txt"
        self._command = command

    def __enter__(self) -> Self:
        with self.said.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=out, stderr=err)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def assert_works(self) -> None:
        """It has not ended, and nothing has gone wrong that it does not go on from."""
        said = self.said.read_text()
        assert self.process.poll() is None and "error" not in said, said[-2000:] + self.errors.read_text()[-2000:]

    def close(self) -> None:
        """Ends it in order."""
        self.assert_works()
        self.process.communicate(b"\n", timeout=PATIENCE_S)
        assert self.said.read_text().splitlines()[-1] == "closed"


def copier(bootstrap: str, source: str, sink: str, directory: Path) -> Copying:
    """franz-go's."""
    program = programs.build("go") / "bin" / "copier"
    return Copying([str(program), bootstrap, source, sink, f"{sink}-copier"], directory)


def counting(bootstrap: str, source: str, sink: str, directory: Path) -> Copying:
    """Kafka Streams'."""
    program = programs.HERE / "Counting.java"
    command = java(str(program), bootstrap, source, sink, f"{sink}-streams", str(directory), of=STREAMS)
    return Copying(command, directory)


class Worker(Copying):
    """Kafka Connect's: one distributed worker, told over HTTP what to do."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        text = "org.apache.kafka.connect.storage.StringConverter"
        topics = {f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")}
        settings = {
            "bootstrap.servers": bootstrap, "group.id": "connect", "listeners": self._url,
            "key.converter": text, "value.converter": text, "plugin.discovery": "service_load",
            "exactly.once.source.support": "enabled", **topics,
            "offset.storage.partitions": "1", "status.storage.partitions": "1",
        }  # fmt: skip
        directory.mkdir(parents=True)
        file = directory / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        super().__init__(java("org.apache.kafka.connect.cli.ConnectDistributed", str(file), of=STREAMS), directory)

    def copy(self, file: Path, topic: str) -> None:
        """Has the lines of a file written to a topic, as they come."""
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max": "1",
            "file": str(file), "topic": topic, "exactly.once.support": "required",
        }  # fmt: skip
        last = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._ask("PUT", "/connectors/lines/config", config)
                return
            except (urllib.error.URLError, ConnectionError) as error:  # it is on its way, or cannot do it yet
                self.assert_works()
                assert time.monotonic() < last, f"{error}: {self.errors.read_text()[-2000:]}"
                time.sleep(0.1)

    def assert_works(self) -> None:
        """The worker runs; what has become of its task it says itself, while it runs."""
        assert self.process.poll() is None, self.said.read_text()[-2000:] + self.errors.read_text()[-2000:]

    def failed(self) -> str:
        """Why its task has failed; empty where it has not."""
        tasks = self._ask("GET", "/connectors/lines/status")["tasks"]
        return str([each.get("trace") for each in tasks if each["state"] == "FAILED"] or "")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            return json.load(answer)
