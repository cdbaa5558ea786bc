"""How much each principal holds of what a broker has for all of them together.

It is counted up as it comes, and counted again before it would refuse somebody: nothing has to be said when something
goes. After a load it is unknown who holds what was loaded, and nobody is charged for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

RECOUNT_INTERVAL_MS: Final = 1_000
"""The least time between two counts: each looks at everything."""


class Tally:
    """What principals hold of one thing, in all shards of a broker."""

    __slots__ = ("_counted_ms", "_held", "_recount")

    def __init__(self, recount: Callable[[], Mapping[str, int]]) -> None:
        self._recount = recount
        self._held: Counter[str] = Counter()
        self._counted_ms = -RECOUNT_INTERVAL_MS

    def add(self, principal: str) -> None:
        """The principal has one more."""
        self._held[principal] += 1

    def reaches(self, principal: str, limit: int, now_ms: int) -> bool:
        """Whether the principal holds as much as that, as of the last count at most a second ago."""
        if self._held[principal] < limit:
            return False
        if not self._counted_ms <= now_ms < self._counted_ms + RECOUNT_INTERVAL_MS:
            self._counted_ms = now_ms
            self._held = Counter(self._recount())
        return self._held[principal] >= limit
