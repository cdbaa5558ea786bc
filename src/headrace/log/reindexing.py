"""Rebuilds indexes that were missing when a log was opened in the background, a little at a time.

A read that needs one earlier rebuilds it at once; this is for the others, so that Kafka's tools and the next start find
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.env import Clock
from headrace.log.log import Log
from headrace.log.segment import Segment

TURN_S = 0.5
"""The time after which a turn ends with the current segment: other background work waits for it."""

Guarded = Callable[[Iterable[Log], Callable[[Log], object]], None]
"""Runs an action on logs; a failing disk takes their directory out of use."""


class Reindexing:
    """The segments that were found without an index. Any thread may add logs; one at a time works."""

    def __init__(self, clock: Clock, guarded: Guarded) -> None:
        self._clock = clock
        self._guarded = guarded
        self._waiting: list[tuple[Log, Segment]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, log: Log) -> None:
        """Queues the work for a log that has just been opened."""
        self._waiting += [(log, segment) for segment in log.recovery_report.unindexed]

    def run(self) -> None:
        """Rebuilds some indexes. For a worker. Raises LogDirFailed."""
        started = self._clock.monotonic()
        while self._waiting and self._clock.monotonic() - started < TURN_S:
            log, segment = self._waiting.pop()
            if segment in log.segments:
                self._guarded([log], lambda log, segment=segment: _make(log, segment))  # type: ignore[misc]


def _make(log: Log, segment: Segment) -> None:
    try:
        assert segment.index is not None and segment.time_index is not None
        segment.complete_files()
    except FileNotFoundError:
        with log.lock:
            if segment in log.segments:
                raise  # else retention or compaction took it away
