"""Usage per principal of a limit that all principals of a broker share.

Additions are counted at once, and everything is recounted before a client would be refused, so removals need not be
reported. After a load the owners of the loaded state are unknown, and no principal is charged for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

RECOUNT_INTERVAL_MS: Final = 1_000
"""The minimum time between two counts: each scans everything."""


class Tally:
    """The usage of one limit by each principal, in all shards of a broker."""

    __slots__ = ("_counted_ms", "_held", "_recount", "_total")

    def __init__(self, recount: Callable[[], Mapping[str, int]]) -> None:
        self._recount = recount
        self._held: Counter[str] = Counter()
        self._total = 0
        self._counted_ms = -RECOUNT_INTERVAL_MS

    @property
    def total(self) -> int:
        """The usage of all principals, including removals since the last count."""
        return self._total

    def add(self, principal: str, amount: int = 1) -> None:
        """Adds to the usage of a principal."""
        self._held[principal] += amount
        self._total += amount

    def reaches(self, principal: str, limit: int, now_ms: int) -> bool:
        """Returns whether the principal's usage reaches the limit, by a count at most a second old."""
        return self._held[principal] >= limit and (not self._count(now_ms) or self._held[principal] >= limit)

    def has_room(self, principal: str, amount: int, share: int, total: int, now_ms: int) -> bool:
        """Returns whether the principal may use this much more of its `share` and of the total."""
        fits = self._fits(principal, amount, share, total)
        return fits or (self._count(now_ms) and self._fits(principal, amount, share, total))

    def _fits(self, principal: str, amount: int, share: int, total: int) -> bool:
        return self._held[principal] + amount <= share and self._total + amount <= total

    def _count(self, now_ms: int) -> bool:
        """Counts again, unless the last count is recent."""
        if self._counted_ms <= now_ms < self._counted_ms + RECOUNT_INTERVAL_MS:
            return False
        self._counted_ms = now_ms
        self._held = Counter(self._recount())
        self._total = self._held.total()
        return True
