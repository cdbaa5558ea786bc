"""Periodic work on logs: retention, syncs, checkpoints, removal of deleted files, compaction.

The event loop ticks once a second and submits blocking work to worker threads. Compaction runs beside the rest, one log
at a time, for as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.env.workers import Raised
from headrace.log.manager import LogDirFailed
from headrace.log.verdicts import LogsLost

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import Node
    from headrace.log.housekeeping import Then, Work
    from headrace.log.log import Log
    from headrace.log.manager import LogManager

TICK_S: Final = 1.0


class Background:
    """The periodic work of one broker."""

    def __init__(
        self,
        node: Node,
        metrics: Registry,
        logs: LogManager,
        directory_failed: Callable[[str, OSError], None],
        logs_lost: Callable[[LogsLost], None],
    ) -> None:
        """`directory_failed` is called with a log directory whose disk failed during the work, and the error;
        `logs_lost` with logs that lack files."""
        self._node = node
        self._logs = logs
        self._directory_failed = directory_failed
        self._logs_lost = logs_lost
        self._log = node.logger("partitions")
        self._owner = node.owner("background")
        self._running = 0
        self._compacting = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = False
        self._runs = metrics.counter("background.tasks")
        compaction = logs.compaction
        compaction.when_uncleanable(self._report_uncleanable)
        metrics.gauge("log.cleaner.uncleanable", lambda: len(compaction.uncleanable))

    def start(self) -> None:
        """Starts the ticks."""
        self._owner.later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._owner.later(TICK_S, self._tick)
        self._compact()
        # Slow work must not pile up: the next round waits for this one.
        if self._running > self._compacting:
            return
        for work in self._logs.tick():
            self._submit(work, self._done)

    def _compact(self) -> None:
        if self._compacting or self._stopped:
            return
        work = self._logs.cleaner_work()
        if work is not None:
            self._compacting = 1
            self._submit(work, self._compacted)

    def _compacted(self, outcome: Then | Raised | None) -> None:
        self._compacting = 0
        self._done(outcome)
        if not self._stopped:
            # Continues with the next log at once; the manager decides whether there is one.
            self._compact()

    def _submit(self, work: Work, done: Callable[[Then | Raised | None], None]) -> None:
        self._running += 1
        self._idle.clear()
        self._runs.value += 1
        self._node.workers.submit(work).deliver_to(done)

    def _done(self, outcome: Then | Raised | None) -> None:
        error: BaseException | None = None
        if isinstance(outcome, Raised):
            error = outcome.error
        elif outcome is not None and not self._stopped:
            try:
                more = outcome()
            except Exception as failed:  # a directory's disk, or a defect: reported below, as if a worker raised it
                error = failed
            else:
                if more is not None:
                    self._submit(more, self._done)
        self._running -= 1
        if not self._running:
            self._idle.set()
        if isinstance(error, LogDirFailed):
            self._directory_failed(error.directory, error)
        elif isinstance(error, LogsLost):
            self._logs_lost(error)
        elif error is not None:
            self._node.defects.report(error, "background work")

    def _report_uncleanable(self, log: Log, why: str) -> None:
        event = "log is no longer compacted, until what cannot be read is gone"
        self._log.error(event, partition=log.name, why=why)

    async def stop(self) -> None:
        """Stops submitting work, and returns when none is running."""
        self._stopped = True
        self._logs.stop_background()
        self._owner.close()
        await self._idle.wait()
