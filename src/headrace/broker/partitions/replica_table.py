"""All replicas of one broker, as those find them who ask for a partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Key, Replica
    from headrace.wire.errors import ErrorCode


class ReplicaTable:
    """`by_name` and `by_id` hold what this broker leads and serves, `resting` what it has without leading it, `offline`
    why a partition that it should serve is not served."""

    def __init__(self) -> None:
        self.by_name: dict[Key, Replica] = {}
        self.by_id: dict[tuple[bytes, int], Replica] = {}
        self.resting: dict[Key, Replica] = {}
        self.offline: dict[Key, ErrorCode] = {}

    def serve(self, replica: Replica) -> None:
        """This broker leads it from now on."""
        self.resting.pop(replica.key, None)
        self.by_name[replica.key] = replica
        self.by_id[(replica.topic_id, replica.index)] = replica

    def rest(self, replica: Replica) -> None:
        """Keeps a replica that this broker no longer leads: it may lead again, and knows then what was committed."""
        self.take_out(replica.key)
        self.resting[replica.key] = replica

    def take_out(self, key: Key) -> Replica | None:
        """Removes a replica, if there is one."""
        replica = self.by_name.pop(key, None)
        if replica is None:
            return self.resting.pop(key, None)
        self.by_id.pop((replica.topic_id, replica.index), None)
        return replica

    def held(self, key: Key) -> Replica | None:
        """The replica of a partition, led or not."""
        return self.by_name.get(key) or self.resting.get(key)

    def __iter__(self) -> Iterator[Replica]:
        """Those that are led, and then the others, as of now."""
        return iter([*self.by_name.values(), *self.resting.values()])
