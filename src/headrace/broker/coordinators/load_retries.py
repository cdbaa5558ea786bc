"""Loads that failed: why, when each is tried again, and how often that is logged.

A load fails because of something that passes (a full disk, no descriptor free, a log that another worker holds, a read
that fails), so no failure is final. A shard whose log this broker does not have yet waits until it has, and no timer
runs for it; any other load is tried again after a pause. A partition that leads elsewhere, or under another epoch, is
forgotten.
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
"""How long a load waits before it is tried again: after its first failure, and at most. It also waits as long as the
failed one took, so that a large log that cannot be read keeps nobody busy all the time."""
LOGGED_AGAIN_S: Final = 60.0
"""How often a load that goes on failing is logged."""


@dataclass(slots=True)
class _Failed:
    failures: int = 0
    logged_at: float = 0.0
    timer: Timer | None = None
    waits_for_log: bool = False


class LoadRetries:
    """The partitions of one coordinator whose loads failed; no more than it leads."""

    def __init__(self, owner: Owner, clock: Clock, log: LogSink, again: Callable[[int], None]) -> None:
        """`again` begins the load of a partition again; the timers end with `owner`."""
        self._owner = owner
        self._clock = clock
        self._log = log
        self._again = again
        self._failed: dict[int, _Failed] = {}

    def failed(self, index: int, event: str, why: object, took_s: float, **fields: object) -> None:
        """The load of a partition failed after `took_s` seconds: it is tried again after a pause."""
        failed = self._count(index, event, why, fields)
        pause_s = min(FIRST_PAUSE_S * 2 ** min(failed.failures - 1, 10), PAUSE_MAX_S) + took_s
        failed.timer = self._owner.later(pause_s, self._try, index)

    def no_log(self, index: int, event: str, why: object, **fields: object) -> None:
        """The log of a partition is not here: its load begins when the log is (`log_is_here`)."""
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
        """This broker has come to lead the partition, and has its log."""
        failed = self._failed.get(index)
        if failed is not None and failed.waits_for_log:
            self._try(index)

    def _try(self, index: int) -> None:
        failed = self._failed[index]
        failed.timer = None
        failed.waits_for_log = False
        self._again(index)

    def forget(self, index: int) -> None:
        """The partition is loaded, or another broker or epoch leads it."""
        failed = self._failed.pop(index, None)
        if failed is not None and failed.timer is not None:
            failed.timer.cancel()
