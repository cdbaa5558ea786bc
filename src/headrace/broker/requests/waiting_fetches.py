"""Shared state of a broker's fetches: those that wait for more to read, by client, and counters of what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Registry


class Waits(Protocol):
    """A fetch that waits for more to read."""

    def end_wait(self) -> None:
        """Answers with the data available now, as other fetches take its place."""
        ...


class Fetches:
    """The number of waiting fetches of a broker, its limit, and the counters of bytes read."""

    def __init__(self, metrics: Registry, waiting_max: int) -> None:
        self.waiting = 0
        self.waiting_max = waiting_max
        self._of_holder: dict[str, dict[Waits, None]] = {}
        """Waiting fetches of clients, oldest first, by the name under which their share is counted."""
        self.bytes = metrics.counter("fetch.bytes")
        self.bytes_to_followers = metrics.counter("replicas.sent_bytes")
        self.follower_bytes = metrics.counter("fetch.follower_bytes")
        """Bytes that consumers read from partitions that this broker follows."""
        self.cold_lookups = metrics.counter("fetch.cold_lookups")
        metrics.gauge("fetch.waiting", lambda: self.waiting)

    def make_room(self) -> bool:
        """Returns whether another fetch may wait. If the limit is reached, ends the oldest wait of the client that has
        most."""
        if self.waiting >= self.waiting_max and self._of_holder:
            heaviest = max(self._of_holder.values(), key=len)
            next(iter(heaviest)).end_wait()
        return self.waiting < self.waiting_max

    def waits(self, fetch: Waits, holder: str) -> None:
        """Registers a fetch that waits."""
        self.waiting += 1
        if holder:
            self._of_holder.setdefault(holder, {})[fetch] = None

    def waits_no_longer(self, fetch: Waits, holder: str) -> None:
        """Removes a fetch that no longer waits."""
        self.waiting -= 1
        if holder:
            fetches = self._of_holder[holder]
            del fetches[fetch]
            if not fetches:
                del self._of_holder[holder]
