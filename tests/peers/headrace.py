"""A Headrace broker in a process of its own, started as a user starts it; the same verbs as `KafkaPeer`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .kafka import answers, free_port

START_PATIENCE_S = 60.0
STOP_PATIENCE_S = 60.0


class HeadracePeer:
    """`headrace serve` on a free port; with `properties` it takes that file, as it would take Kafka's.

    `settings` go through --set, `options` stand as they are. `directory` outlives the broker when it is given.
    """

    def __init__(
        self,
        directory: Path | None = None,
        settings: Mapping[str, str] | None = None,
        properties: Path | None = None,
        port: int | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._own = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="headrace-peer-"))
        self.port = port or free_port()
        self.settings = {"group.initial.rebalance.delay.ms": "0", **(settings or {})}
        self.file = properties
        self.options = options
        self.environment: Mapping[str, str] = {}
        """What it has beside the environment of the tests."""
        self.process: subprocess.Popen[bytes] | None = None
        self._terminated = False

    @property
    def bootstrap(self) -> str:
        """What clients are given to connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The log directory, where no file names one."""
        return self.directory / "data"

    @property
    def log(self) -> Path:
        """Where the broker's own log lines go."""
        return self.directory / "headrace.out"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def command(self) -> list[str]:
        """How it is started."""
        command = [sys.executable, "-m", "headrace.cli", "serve"]
        if self.file is not None:
            command.append(str(self.file))
        else:
            command += ["--data", str(self.data), "--listen", self.bootstrap]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return [*command, *self.options]

    def start(self, patience_s: float = START_PATIENCE_S) -> None:
        """Start, and wait for the first answer. Raises RuntimeError with the broker's last words."""
        self.launch()
        self.wait(patience_s)

    def launch(self) -> None:
        """Start, and wait for nothing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command(),
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **self.environment},
            )

    def wait(self, patience_s: float = START_PATIENCE_S) -> None:
        """Returns when it answers. Raises RuntimeError with the broker's last words."""
        before = time.monotonic()
        while not answers(self.port):
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() - before > patience_s:
                raise RuntimeError("headrace did not start:\n" + self.log.read_text()[-3000:])
            time.sleep(0.01)

    def terminate(self) -> None:
        """SIGTERM, and wait for nothing; `stop` comes after it."""
        if self.process is not None and not self._terminated:
            self._terminated = True  # once: at its very end a process has no handler of signals any more
            self.process.terminate()

    def stop(self) -> int:
        """SIGTERM, and wait: a clean shutdown. The exit status."""
        self.terminate()
        return self._wait()

    def kill(self) -> int:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
        return self._wait()

    def _wait(self) -> int:
        if self.process is None:
            return 0
        try:
            status = self.process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process = None
            self._terminated = False
        return status

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._clean()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean()

    def _clean(self) -> None:
        self.kill() if self._own else self.stop()
        if self._own:
            shutil.rmtree(self.directory, ignore_errors=True)
