"""The schedule of background work, by the monotonic clock: setting the wall clock changes nothing.

Only the ages of records and segments use the wall clock, as their timestamps do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.env import Clock
from headrace.log.log import Log
from headrace.log.state import LogState

FOREVER_MS = 1 << 62
"""A flush.ms from here on means that the time alone flushes nothing."""


class Schedule:
    """Recurring work, by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_s: dict[str, float] = {}

    def is_due(self, what: str, interval_ms: int) -> bool:
        """Returns whether that much time has passed since the last True, or since the first call."""
        now = self._clock.monotonic()
        due = self._next_s.get(what)
        if due is not None and now < due:
            return False
        self._next_s[what] = now + interval_ms / 1000
        return due is not None


class FlushSchedule:
    """The logs to flush: those that asked for it, and those whose flush.ms has passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted: dict[LogState, None] = {}
        """In the order in which they were noted: a set's would be that of their addresses."""
        self._flushed_s: dict[Log, float] = {}

    def note(self, state: LogState) -> None:
        """Notes that a log is to be flushed soon. From any thread."""
        self._noted.setdefault(state)

    def take_due(self, logs: Iterable[Log], find: Callable[[LogState], Log | None]) -> list[Log]:
        """The logs that are to be flushed now: those that were noted, if `find` finds them open, and those among `logs`
        whose time is over."""
        now = self._clock.monotonic()
        noted = list(self._noted)
        for state in noted:
            self._noted.pop(state, None)
        due = dict.fromkeys(log for log in map(find, noted) if log is not None)
        for log in logs:
            flush_ms = log.config.flush_ms
            if flush_ms < FOREVER_MS and log.end_offset > log.flushing.flushed_offset:
                if now - self._flushed_s.setdefault(log, now) >= flush_ms / 1000:
                    due[log] = None
        for log in due:
            if log in self._flushed_s:
                self._flushed_s[log] = now
        return list(due)

    def forget(self, log: Log) -> None:
        """Removes a log."""
        self._noted.pop(log.state, None)
        self._flushed_s.pop(log, None)
