"""What a client knows of a cluster: brokers, topics and partitions, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.wire import uuids

if TYPE_CHECKING:
    from headrace.wire.messages.k03_metadata import MetadataResponseTopic

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients reach it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition in the cluster's metadata. `leader` is -1 while there is none."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int = 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic in the cluster's metadata; partitions by index. `id` is 16 bytes, zero from brokers without ids."""

    name: str
    id: bytes
    internal: bool
    partitions: tuple[PartitionInfo, ...]

    def __repr__(self) -> str:
        which = f"name={self.name!r}, id={uuids.to_text(self.id)}, internal={self.internal}"
        return f"TopicInfo({which}, partitions={self.partitions!r})"


def topic_info(topic: MetadataResponseTopic) -> TopicInfo:
    """Returns a topic of a Metadata response as a value. It must have a name."""
    assert topic.name is not None
    partitions = tuple(
        PartitionInfo(
            topic.name,
            p.partition_index,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
            p.error_code,
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    )
    return TopicInfo(topic.name, topic.topic_id, topic.is_internal, partitions)
