"""Retries of failed loads: their causes, pauses and log lines.

Causes of a failed load pass (a full disk, no free descriptor, a log that another worker uses, a failed read), so no
failure is final. A shard whose log this broker does not have yet waits for it without a timer; any other load is
retried after a pause. A partition that is led elsewhere, or under another epoch, is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.env.clock import Clock
    from headrace.env.node import LogSink
    from headrace.env.owner import Owner, Timer

FIRST_PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 1.0
"""First and longest pause before a load is retried. The time that the failed load took is added, so that a large log
that cannot be read does not keep workers busy all the time."""
LOGGED_AGAIN_S: Final = 60.0
"""Interval at which a load that keeps failing is logged."""


@dataclass(slots=True)
class _Failed:
    failures: int = 0
    logged_at: float = 0.0
    timer: Timer | None = None
    waits_for_log: bool = False


class LoadRetries:
    """The partitions of one coordinator whose loads failed."""

    def __init__(self, owner: Owner, clock: Clock, log: LogSink, again: Callable[[int], None]) -> None:
        """`again` begins the load of a partition again; `owner` owns the timers."""
        self._owner = owner
        self._clock = clock
        self._log = log
        self._again = again
        self._failed: dict[int, _Failed] = {}

    def failed(self, index: int, event: str, why: object, took_s: float, **fields: object) -> None:
        """Schedules a retry of a load that failed after `took_s` seconds."""
        failed = self._count(index, event, why, fields)
        pause_s = min(FIRST_PAUSE_S * 2 ** min(failed.failures - 1, 10), PAUSE_MAX_S) + took_s
        failed.timer = self._owner.later(pause_s, self._try, index)

    def no_log(self, index: int, event: str, why: object, **fields: object) -> None:
        """Notes that the log of a partition is not here: its load begins when it is (`log_is_here`)."""
        self._count(index, event, why, fields).waits_for_log = True

    def _count(self, index: int, event: str, why: object, fields: dict[str, object]) -> _Failed:
        failed = self._failed.setdefault(index, _Failed())
        now = self._clock.monotonic()
        if not failed.failures or now - failed.logged_at >= LOGGED_AGAIN_S:
            failed.logged_at = now
            self._log.error(event, why=why, failures=failed.failures + 1, **fields)
        failed.failures += 1
        return failed

    def log_is_here(self, index: int) -> None:
        """Begins a waiting load, because this broker has come to lead the partition and has its log."""
        failed = self._failed.get(index)
        if failed is not None and failed.waits_for_log:
            self._try(index)

    def _try(self, index: int) -> None:
        failed = self._failed[index]
        failed.timer = None
        failed.waits_for_log = False
        self._again(index)

    def forget(self, index: int) -> None:
        """Forgets a partition that is loaded, or is led by another broker or under another epoch."""
        failed = self._failed.pop(index, None)
        if failed is not None and failed.timer is not None:
            failed.timer.cancel()
