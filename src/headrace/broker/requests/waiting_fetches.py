"""The fetches of a broker that wait for more to read: how many may, and whose, and what all fetches have read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Registry


class Waits(Protocol):
    """A fetch that waits for more to read."""

    def end_wait(self) -> None:
        """Others are to wait in its place: it answers with what there is."""
        ...


class Fetches:
    """What all fetches of a broker share: how many wait, and what was read."""

    def __init__(self, metrics: Registry, waiting_max: int) -> None:
        self.waiting = 0
        self.waiting_max = waiting_max
        self._of_holder: dict[str, dict[Waits, None]] = {}
        """The fetches of clients that wait, by whom their share is counted for, oldest first."""
        self.bytes = metrics.counter("fetch.bytes")
        self.bytes_to_followers = metrics.counter("replicas.sent_bytes")
        self.follower_bytes = metrics.counter("fetch.follower_bytes")
        """What consumers read of partitions that this broker follows."""
        self.cold_lookups = metrics.counter("fetch.cold_lookups")
        metrics.gauge("fetch.waiting", lambda: self.waiting)

    def make_room(self) -> bool:
        """Returns whether another fetch may wait. If all places are taken, the oldest of the client that has most of
        them is answered."""
        if self.waiting >= self.waiting_max and self._of_holder:
            heaviest = max(self._of_holder.values(), key=len)
            next(iter(heaviest)).end_wait()
        return self.waiting < self.waiting_max

    def waits(self, fetch: Waits, holder: str) -> None:
        """Notes that a fetch waits."""
        self.waiting += 1
        if holder:
            self._of_holder.setdefault(holder, {})[fetch] = None

    def waits_no_longer(self, fetch: Waits, holder: str) -> None:
        """Notes that a fetch no longer waits."""
        self.waiting -= 1
        if holder:
            fetches = self._of_holder[holder]
            del fetches[fetch]
            if not fetches:
                del self._of_holder[holder]
