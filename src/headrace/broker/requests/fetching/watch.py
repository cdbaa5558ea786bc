"""Watches the replicas of a waiting fetch, and counts the bytes that become readable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.env.completion import Completion

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.requests.fetching.reading import PartitionReader
    from headrace.broker.requests.resting import Resting
    from headrace.env.completion import CompletionQueue


class Watch:
    """A `FetchWaiter` that counts: `enough` is completed once another reading may find enough."""

    __slots__ = ("_appended", "_completions", "_enough", "_has_changed", "_reader", "_resting", "_wanted", "replicas")

    def __init__(self, completions: CompletionQueue, reader: PartitionReader, resting: Resting | None) -> None:
        self._completions = completions
        self._reader = reader
        self._resting = resting
        self.replicas: dict[Replica, None] = {}
        """The watched replicas, in the order in which they were added."""
        self._appended = 0
        """Bytes that became readable since `restart`."""
        self._has_changed = False
        """Whether anything else has changed since `restart`."""
        self._wanted = 0
        """Bytes that complete `_enough`."""
        self._enough: Completion[None] | None = None

    def add(self, replica: Replica) -> None:
        """Watches one more replica."""
        self.replicas[replica] = None
        self._reader.waiters(replica)[self] = None

    def add_session(self) -> None:
        """Watches the resting partitions of the session."""
        if self._resting is not None:
            self._resting.waiting[self] = None

    def restart(self) -> None:
        """Resets the counts, as a reading begins."""
        self._appended = 0
        self._has_changed = False

    def has_enough(self, bytes_wanted: int) -> bool:
        """Returns whether another reading may find enough."""
        return self._has_changed or self._appended >= bytes_wanted

    @property
    def has_moved(self) -> bool:
        """Whether anything has changed since `restart`."""
        return self._has_changed or self._appended > 0

    def enough(self, bytes_wanted: int) -> Completion[None]:
        """Returns a completion for that many more bytes, or for any other change. The caller has checked that there is
        not enough yet."""
        self._wanted = bytes_wanted
        enough: Completion[None] = Completion(self._completions)
        self._enough = enough
        return enough

    def moved(self, replica: Replica, byte_count: int) -> None:
        """Counts bytes that became readable, or (0) notes another change, and completes `enough` if it is reached."""
        self._appended += byte_count
        if not byte_count:
            self._has_changed = True
        enough = self._enough
        if enough is not None and (not byte_count or self._appended >= self._wanted):
            self._enough = None
            enough.complete(None)

    def woke(self, replica: Replica, byte_count: int) -> None:
        """Watches a partition that no longer rests, and handles its change."""
        self.add(replica)
        self.moved(replica, byte_count)

    def close(self) -> None:
        """Stops watching."""
        if self._resting is not None:
            self._resting.waiting.pop(self, None)
        for replica in self.replicas:
            self._reader.waiters(replica).pop(self, None)
        self.replicas.clear()
        self._enough = None
