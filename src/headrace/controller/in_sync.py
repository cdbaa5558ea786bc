"""Decides AlterPartition, by which leaders change the in-sync replicas; checked in Kafka's order.

Source: KIP-497, KIP-704, KIP-841, KIP-903.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.controller.access import Access
from headrace.controller.context import ControllerContext
from headrace.controller.partition_changes import PartitionChanges, Target
from headrace.controller.pieces import ManyThings
from headrace.machine import Decision
from headrace.metadata.image import LEADER_RECOVERED, LEADER_RECOVERING, ClusterImage, Partition, Topic
from headrace.wire.errors import ErrorCode

ANY_EPOCH = -1
"""The broker epoch of a member if the leader does not know it."""


@dataclass(frozen=True, slots=True)
class PartitionAlteration:
    """A leader's change of a partition, and the epochs on which it is based; `members` are (broker id, broker
    epoch)."""

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]
    recovery_state: int = LEADER_RECOVERED


class PartitionsAltered(NamedTuple):
    """An error for the whole request, or a result for each alteration, in order: (topic id, index, error, partition).

    The partition is as it is after the alteration; None with an error.
    """

    error: ErrorCode
    results: Sequence[tuple[bytes, int, ErrorCode, Partition | None]] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """The in-sync replicas as reported by a leader."""

    broker_id: int
    broker_epoch: int
    changes: Sequence[PartitionAlteration]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[PartitionsAltered]:
        """Decides the request upon `image`."""
        return decide_alter_partitions(image, context, self.broker_id, self.broker_epoch, self.changes)


def decide_alter_partitions(
    image: ClusterImage,
    context: ControllerContext,
    broker_id: int,
    broker_epoch: int,
    alterations: Sequence[PartitionAlteration],
) -> Decision[PartitionsAltered]:
    """Changes the in-sync replicas of partitions, in pieces. If that completes a reassignment, another leader may be
    elected."""
    results: list[tuple[bytes, int, ErrorCode, Partition | None]] = []

    def refusal(image: ClusterImage) -> PartitionsAltered | None:
        broker = image.brokers.get(broker_id)
        is_known = broker is not None and broker.epoch == broker_epoch
        return None if is_known else PartitionsAltered(ErrorCode.STALE_BROKER_EPOCH)

    def alter(changes: PartitionChanges, alteration: PartitionAlteration) -> None:
        topic = changes.image.topics.by_id(alteration.topic_id)
        error, partition = (
            (ErrorCode.UNKNOWN_TOPIC_ID, None) if topic is None else _alter(changes, broker_id, topic, alteration)
        )
        results.append((alteration.topic_id, alteration.index, error, partition))

    reply = PartitionsAltered(ErrorCode.NONE, results)
    return ManyThings(alterations, reply, alter, context, refusal).decide(image)


def _alter(
    changes: PartitionChanges, broker_id: int, topic: Topic, alteration: PartitionAlteration
) -> tuple[ErrorCode, Partition | None]:
    partition = changes.partition(topic, alteration.index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    error = _refusal(changes, broker_id, partition, alteration)
    if error:
        return error, None
    isr = [member for member, _ in alteration.members]
    after = changes.change(topic, partition, Target(isr=isr, recovery_state=alteration.recovery_state))
    if after.leader != broker_id:
        # Only the end of a reassignment elects here: the change is valid, and the leader waits for it in the metadata.
        return ErrorCode.NEW_LEADER_ELECTED, None
    assert set(after.isr) <= set(isr), "nobody is in sync whom the leader did not name"
    return ErrorCode.NONE, after


def _refusal(
    changes: PartitionChanges, broker_id: int, partition: Partition, alteration: PartitionAlteration
) -> ErrorCode:
    # A leader with later epochs knows a later controller.
    if alteration.leader_epoch > partition.leader_epoch or alteration.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if alteration.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != broker_id:
        return ErrorCode.INVALID_REQUEST
    if alteration.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if len(alteration.members) > len(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    members = {member for member, _ in alteration.members}
    if len(members) < len(alteration.members) or not members <= set(partition.replicas) or broker_id not in members:
        return ErrorCode.INVALID_REQUEST
    if alteration.recovery_state == LEADER_RECOVERING:
        # An unclean leader adds others only when it has recovered, and it recovers once.
        if len(members) > 1 or partition.leader_recovery_state == LEADER_RECOVERED:
            return ErrorCode.INVALID_REQUEST
    elif alteration.recovery_state != LEADER_RECOVERED:
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(changes, member, epoch) for member, epoch in alteration.members):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(changes: PartitionChanges, member: int, epoch: int) -> bool:
    return changes.is_active(member) and epoch in (ANY_EPOCH, changes.image.brokers[member].epoch)
