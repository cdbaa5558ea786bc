"""The replicas that a waiting fetch watches, and how much of them has become readable."""

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
        self._appended = 0
        """Bytes that became readable since `restart`."""
        self._has_changed = False
        """Whether something else has changed since then."""
        self._wanted = 0
        self._enough: Completion[None] | None = None

    def add(self, replica: Replica) -> None:
        """Watches a replica too."""
        self.replicas[replica] = None
        self._reader.waiters(replica)[self] = None

    def add_session(self) -> None:
        """Watches the partitions of the session that rest."""
        if self._resting is not None:
            self._resting.waiting[self] = None

    def restart(self) -> None:
        """Counts from here on: a reading begins."""
        self._appended = 0
        self._has_changed = False

    def has_enough(self, bytes_wanted: int) -> bool:
        """Whether another reading may find enough."""
        return self._has_changed or self._appended >= bytes_wanted

    @property
    def has_moved(self) -> bool:
        """Whether anything has changed since `restart`."""
        return self._has_changed or self._appended > 0

    def enough(self, bytes_wanted: int) -> Completion[None]:
        """Returns the completion of so many more bytes, or of any other change. The caller knows that there is not
        enough yet."""
        self._wanted = bytes_wanted
        enough: Completion[None] = Completion(self._completions)
        self._enough = enough
        return enough

    def moved(self, replica: Replica, byte_count: int) -> None:
        """See FetchWaiter."""
        self._appended += byte_count
        if not byte_count:
            self._has_changed = True
        enough = self._enough
        if enough is not None and (not byte_count or self._appended >= self._wanted):
            self._enough = None
            enough.complete(None)

    def woke(self, replica: Replica, byte_count: int) -> None:
        """Watches a partition that no longer rests."""
        self.add(replica)
        self.moved(replica, byte_count)

    def close(self) -> None:
        """Watches nothing from here on."""
        if self._resting is not None:
            self._resting.waiting.pop(self, None)
        for replica in self.replicas:
            self._reader.waiters(replica).pop(self, None)
        self.replicas.clear()
        self._enough = None
