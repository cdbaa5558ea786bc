"""All replicas of one broker, by topic name and by topic id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Key, Replica
    from headrace.wire.errors import ErrorCode


class ReplicaTable:
    """The replicas of one broker. `by_name` and `by_id` hold led replicas, `resting` those that are not led, `offline`
    the errors of partitions that cannot be served."""

    def __init__(self) -> None:
        self.by_name: dict[Key, Replica] = {}
        self.by_id: dict[tuple[bytes, int], Replica] = {}
        self.resting: dict[Key, Replica] = {}
        self.offline: dict[Key, ErrorCode] = {}

    def serve(self, replica: Replica) -> None:
        """Puts a replica among the led ones."""
        self.resting.pop(replica.key, None)
        self.by_name[replica.key] = replica
        self.by_id[(replica.topic_id, replica.index)] = replica

    def rest(self, replica: Replica) -> None:
        """Keeps a replica that this broker does not lead: if it leads again, it knows its committed part."""
        self.take_out(replica.key)
        self.resting[replica.key] = replica

    def take_out(self, key: Key) -> Replica | None:
        """Removes and returns a replica, if there is one."""
        replica = self.by_name.pop(key, None)
        if replica is None:
            return self.resting.pop(key, None)
        self.by_id.pop((replica.topic_id, replica.index), None)
        return replica

    def held(self, key: Key) -> Replica | None:
        """Returns the replica of a partition, led or not."""
        return self.by_name.get(key) or self.resting.get(key)

    def __iter__(self) -> Iterator[Replica]:
        """Iterates over a copy: led replicas first, then the others."""
        return iter([*self.by_name.values(), *self.resting.values()])
