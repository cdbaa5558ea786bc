"""The two brokers under measurement, each in a process of its own with a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.peers import kafka
from tests.peers.kafka import KafkaPeer, answers, cpu_s, free_port, resident_bytes

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "bench" / "data"
START_PATIENCE_S = 120.0
STOP_PATIENCE_S = 120.0


class Ours:
    """A Headrace broker, started as a user starts it."""

    name = "headrace"

    def __init__(self, *settings: str) -> None:
        self.directory = DATA / self.name
        self.environment: dict[str, str] | None = None
        self.port = free_port()
        self.settings = settings
        self.options: tuple[str, ...] = ()
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start, and seconds until the first answer."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "headrace.cli", "serve", "--data", str(self.directory / "data")]
        command += ["--listen", self.bootstrap, *self.options]
        for setting in ("group.initial.rebalance.delay.ms=0", "log.segment.delete.delay.ms=500", *self.settings):
            command += ["--set", setting]
        before = time.monotonic()
        with (self.directory / "headrace.out").open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=self.environment)
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() - before > START_PATIENCE_S:
                raise RuntimeError("headrace did not start:\n" + (self.directory / "headrace.out").read_text()[-2000:])
            time.sleep(0.002)
        self.started_s = time.monotonic() - before
        return self.started_s

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def clean(self) -> None:
        """Kill it and remove what it left."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Before(Ours):
    """The broker of another checkout, whose native modules are built, run by this one's Python."""

    name = "before"

    def __init__(self, checkout: Path) -> None:
        super().__init__()
        self.environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}


class Kafka:
    """Apache Kafka 4.3.1 with the flags and the heap that it comes with."""

    name = "kafka"

    def __init__(self, *settings: str) -> None:
        self.directory = DATA / "kafka"
        extra = dict(setting.split("=", 1) for setting in ("log.segment.delete.delay.ms=500", *settings))
        self.peer = KafkaPeer(self.directory, extra, kafka.OWN)
        self.started_s = 0.0

    @property
    def pid(self) -> int:
        return self.peer.pid

    @property
    def port(self) -> int:
        return self.peer.port

    @property
    def bootstrap(self) -> str:
        return self.peer.bootstrap

    def start(self) -> float:
        """Start (formatting is not counted), and seconds until the first answer."""
        self.peer.start(START_PATIENCE_S)
        self.started_s = self.peer.started_s
        return self.started_s

    def stop(self) -> None:
        self.peer.stop()

    def kill(self) -> None:
        self.peer.kill()

    def resident_bytes(self) -> int:
        return resident_bytes(self.peer.pid)

    def cpu_s(self) -> float:
        return cpu_s(self.peer.pid)

    def clean(self) -> None:
        """Kill it and remove what it left."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


Rig = Ours | Kafka


def run_python(module: str, *arguments: str, patience_s: float = 600.0) -> str:
    """Standard output of `python -m module`, in a process of its own. Raises RuntimeError with what it said,
    its last line first."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=patience_s,
    )  # fmt: skip
    if done.returncode != 0:
        why = done.stderr.rstrip().rpartition("\n")[2]
        raise RuntimeError(f"{why} ({module} {' '.join(arguments)[:200]})\n{done.stderr[-1500:]}")
    return done.stdout


def run_java(name: str, *arguments: str) -> str:
    """Standard output of one of Kafka's Java tools, run as it comes."""
    return kafka.kafka_tool(name, *arguments, patience_s=600.0, flags=(kafka.TOOL_HEAP,)).stdout


@contextlib.contextmanager
def running(rig: Rig) -> Any:
    """A rig that is started, and cleaned away."""
    try:
        rig.start()
        yield rig
    finally:
        rig.clean()
