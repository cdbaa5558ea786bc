"""The sides of the comparison: a connector in a Spark of its own against one of the brokers, and its memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from bench.rigs import DATA, ROOT, Rig
from tests.peers import spark

JOB_PATIENCE_S = 600.0
STOP_PATIENCE_S = 60.0
SAMPLE_S = 0.1
SESSION_FIELD = 3
"""Where the session id stands in /proc/PID/stat, counted behind the name."""
OURS, PEER, PREBUILT = "headrace", "kafka", "prebuilt"


class Side:
    """A connector and the broker that it talks to; `start` gives it a Spark."""

    def __init__(self, connector: str, rig: Rig) -> None:
        self.connector = connector
        self.rig = rig
        self.name = connector if connector in (rig.name, PREBUILT) else f"{connector}-on-{rig.name}"
        self.directory = DATA / "spark" / self.name
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> dict[str, Any]:
        """A Spark of its own, in a process group and session of its own; what runs there."""
        self.directory.mkdir(parents=True, exist_ok=True)
        jars = [str(jar) for jar in spark.connector()] if self.connector == PEER else []
        command = [str(spark.python()), "-m", "bench.spark.driver", self.connector, self.rig.bootstrap]
        with self.log.open("a") as out:
            self.process = subprocess.Popen(
                [*command, str(self.directory), *jars], cwd=ROOT, text=True, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out,
            )  # fmt: skip
        return self.ask("about")

    @property
    def log(self) -> Path:
        """What Spark says."""
        return self.directory / "spark.out"

    def ask(self, job: str, **what: Any) -> dict[str, Any]:
        """What came of a job. Raises RuntimeError with the reason where it failed."""
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        late = threading.Timer(JOB_PATIENCE_S, self._kill)
        late.start()
        try:
            self.process.stdin.write(json.dumps({"job": job, **what}) + "\n")
            self.process.stdin.flush()
            line = next((line for line in self.process.stdout if line.startswith("{")), None)
        except BrokenPipeError:
            line = None
        finally:
            late.cancel()
        if line is None:
            raise RuntimeError(f"{self.name} ended in {job}: {self.log.read_text()[-1500:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {job}: {answer['error'][-600:]}")
        return answer

    def stop(self) -> None:
        """End its Spark, which may take its time, and remove what it left."""
        if self.process is None:
            return
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(STOP_PATIENCE_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._kill()
            self.process.wait()
        self.process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def _kill(self) -> None:
        if self.process is not None:
            for pid in list(members(self.process.pid)):
                os.kill(pid, signal.SIGKILL)

    def proportional_bytes(self) -> int:
        """What the driver, its JVM and its Python workers hold now, shared pages counted once."""
        assert self.process is not None
        return sum(proportional_bytes(pid) for pid in members(self.process.pid))


def members(session: int) -> Iterator[int]:
    """The processes of a session."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_text()
        except OSError:  # gone meanwhile
            continue
        if int(stat.rpartition(")")[2].split()[SESSION_FIELD]) == session:
            yield int(entry)


def proportional_bytes(pid: int) -> int:
    """Resident memory of a process, a page that n processes share counted as an nth; 0 for one that has ended."""
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


class Peak:
    """The most memory that a side held while the block ran, looked at ten times a second.

    It has to be there at two looks in a row: a child of the JVM between its vfork and its exec shows all memory of its
    parent as its own.
    """

    def __init__(self, side: Side) -> None:
        self.side = side
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        before = 0
        while not self._over.wait(SAMPLE_S):
            now = self.side.proportional_bytes()
            self.bytes = max(self.bytes, min(before, now))
            before = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
