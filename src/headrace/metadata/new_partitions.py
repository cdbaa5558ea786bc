"""New partitions: what a PartitionRecord makes of an image, and thousands of them at once.

Everybody sees a topic with all its partitions or not at all, so they are one decision and one batch of the log. What
takes its time, to make each partition of its record and to encode the record, needs no image: `NewPartitions` does it
some at a time, before anything is decided.
"""

from __future__ import annotations

from typing import Any

from headrace.metadata import image as im
from headrace.metadata.framing import encode_record, record_version
from headrace.metadata.image import Partition
from headrace.wire.messages.metadata_records import PartitionRecord


def partition_of(record: PartitionRecord, shared: dict[Any, Any]) -> Partition:
    """The partition that a record makes. Thousands of partitions lie alike: they share their tuples, which `shared`
    has."""
    share = shared.setdefault
    replicas = tuple(record.replicas)
    replicas = share(replicas, replicas)
    directories = tuple(record.directories) or (im.DIRECTORY_MIGRATING,) * len(replicas)
    directories = share(directories, directories)
    isr = tuple(record.isr)
    return Partition(
        record.partition_id,
        replicas,
        directories,
        share(isr, isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        record.leader_recovery_state,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )


class NewPartitions:
    """PartitionRecords of one topic, for a metadata.version level: made and encoded before they are decided.

    It is one item among the records of a decision, for all of them; `values` is what the log gets of it.
    """

    def __init__(self, topic_id: bytes, level: int) -> None:
        self.topic_id = topic_id
        self.partitions: dict[int, Partition] = {}
        self.values: list[bytes] = []
        self._level = level
        self._shared: dict[Any, Any] = {}

    def add(self, record: PartitionRecord) -> None:
        """Takes in one more."""
        self.partitions[record.partition_id] = partition_of(record, self._shared)
        self.values.append(encode_record(record, record_version(record, self._level)))
