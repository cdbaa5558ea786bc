"""How much each principal holds of what a broker has for all of them together.

Additions are counted at once, and everything is recounted before a client would be refused, so removals need not be
reported. After a load the owners of the loaded state are unknown, and nobody is charged for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

RECOUNT_INTERVAL_MS: Final = 1_000
"""The least time between two counts: each looks at everything."""


class Tally:
    """What principals hold of one thing, in all shards of a broker."""

    __slots__ = ("_counted_ms", "_held", "_recount", "_total")

    def __init__(self, recount: Callable[[], Mapping[str, int]]) -> None:
        self._recount = recount
        self._held: Counter[str] = Counter()
        self._total = 0
        self._counted_ms = -RECOUNT_INTERVAL_MS

    @property
    def total(self) -> int:
        """What all principals hold, and what was given back since the last count."""
        return self._total

    def add(self, principal: str, amount: int = 1) -> None:
        """The principal has so much more."""
        self._held[principal] += amount
        self._total += amount

    def reaches(self, principal: str, limit: int, now_ms: int) -> bool:
        """Whether the principal holds as much as that, as of the last count at most a second ago."""
        return self._held[principal] >= limit and (not self._count(now_ms) or self._held[principal] >= limit)

    def has_room(self, principal: str, amount: int, share: int, total: int, now_ms: int) -> bool:
        """Whether the principal may have so much more: of its `share`, and of what there is for all."""
        fits = self._fits(principal, amount, share, total)
        return fits or (self._count(now_ms) and self._fits(principal, amount, share, total))

    def _fits(self, principal: str, amount: int, share: int, total: int) -> bool:
        return self._held[principal] + amount <= share and self._total + amount <= total

    def _count(self, now_ms: int) -> bool:
        """Counts again, unless that was done a moment ago."""
        if self._counted_ms <= now_ms < self._counted_ms + RECOUNT_INTERVAL_MS:
            return False
        self._counted_ms = now_ms
        self._held = Counter(self._recount())
        self._total = self._held.total()
        return True
