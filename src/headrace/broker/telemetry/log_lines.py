"""Collects log lines for a topic: a logging handler with a bounded queue of JSON lines."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Counter

QUEUED_LINES_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bound on the bytes that wait to be published; beyond it the oldest lines are dropped."""
TEXT_CHARS_MAX: Final = 8192
"""Longest part of a message, and of the end of a traceback, that a line keeps."""

_FORMATTER: Final = logging.Formatter()


class Line(NamedTuple):
    """A log line: its time, in ms since 1970, and its JSON."""

    time_ms: int
    value: bytes


class LogLines(logging.Handler):
    """Takes lines from any thread and returns them in order. It waits for nothing but its own lock."""

    def __init__(self, service: str, now_ms: Callable[[], int], dropped: Counter) -> None:
        """`service` is the value of that field in each line; `dropped` counts dropped lines."""
        super().__init__()
        self._service = service
        self._now_ms = now_ms
        self._dropped = dropped
        self._queue: deque[Line] = deque()
        self._bytes = 0
        self._muted: int | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a line, unless its thread is muted."""
        if self._muted is not None and record.thread == self._muted:
            return
        try:
            time_ms = self._now_ms()
            line = Line(time_ms, self._encode(record, time_ms))
        except Exception:
            # As in every handler: the traceback goes to standard error, and the program goes on.
            self.handleError(record)
            return
        self._queue.append(line)
        self._bytes += len(line.value)
        self._shrink()

    def _encode(self, record: logging.LogRecord, time_ms: int) -> bytes:
        line: dict[str, Any] = {
            "service": self._service,
            "time": time_ms,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage()[:TEXT_CHARS_MAX],
        }
        if fields := getattr(record, "fields", None):
            line["fields"] = {key: str(value)[:TEXT_CHARS_MAX] for key, value in fields.items()}
        if record.exc_info:
            line["exception"] = _FORMATTER.formatException(record.exc_info)[-TEXT_CHARS_MAX:]
        return json.dumps(line).encode()

    def _shrink(self) -> None:
        while self._bytes > QUEUED_LINES_BYTES_MAX:
            self._bytes -= len(self._queue.popleft().value)
            self._dropped.value += 1

    def take(self, max_lines: int, max_bytes: int) -> list[Line]:
        """Removes and returns the oldest lines, within both bounds, but at least one."""
        taken: list[Line] = []
        with self._locked():
            while self._queue and len(taken) < max_lines:
                size = len(self._queue[0].value)
                if taken and size > max_bytes:
                    break
                max_bytes -= size
                self._bytes -= size
                taken.append(self._queue.popleft())
        return taken

    def put_back(self, lines: list[Line]) -> None:
        """Returns lines to the front of the queue, as far as its bound allows."""
        with self._locked():
            self._queue.extendleft(reversed(lines))
            self._bytes += sum(len(line.value) for line in lines)
            self._shrink()

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Ignores the lines that this thread logs inside the block."""
        self._muted = logging.makeLogRecord({}).thread
        try:
            yield
        finally:
            self._muted = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock under which `emit` is called."""
        self.acquire()
        try:
            yield
        finally:
            self.release()
