"""Log directories of brokers: where replicas lie, and which directories failed. Source: KIP-858."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from headrace.controller import pieces
from headrace.controller.access import Access
from headrace.controller.brokers import step_down
from headrace.controller.context import ControllerContext
from headrace.controller.partition_changes import PartitionChanges, Target
from headrace.machine import Decision
from headrace.metadata import levels
from headrace.metadata.image import DIRECTORY_LOST, ClusterImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import BrokerRegistrationChangeRecord


class DirectoriesAssigned(NamedTuple):
    """The answer to an assignment: an error for the whole request, or an error code for each (topic id, partition)."""

    error: ErrorCode
    results: Sequence[tuple[bytes, int, ErrorCode]] = ()


@dataclass(frozen=True, slots=True)
class AssignDirectories:
    """The log directories of a broker's replicas: (topic id, partition, directory id).

    `broker_epoch` None: the request is of this node, and no epoch is checked.
    """

    broker_id: int
    chosen: Sequence[tuple[bytes, int, bytes]]
    broker_epoch: int | None = None

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[DirectoriesAssigned]:
        """Decides the request upon `image`."""
        return decide_assign_directories(image, context, self.broker_id, self.chosen, self.broker_epoch)


def decide_assign_directories(
    image: ClusterImage,
    context: ControllerContext,
    broker_id: int,
    chosen: Sequence[tuple[bytes, int, bytes]],
    broker_epoch: int | None = None,
) -> Decision[DirectoriesAssigned]:
    """Notes the log directories that a broker chose for its replicas, given as (topic id, partition, directory id), in
    pieces.

    A replica in a directory that is not online leaves the ISR. A replica without a directory (DIRECTORY_LOST) leaves it
    too, unless it is the only one. `broker_epoch` None: the broker is this node, and no epoch is checked.
    """
    results: list[tuple[bytes, int, ErrorCode]] = []

    def refusal(image: ClusterImage) -> DirectoriesAssigned | None:
        if not levels.supports_directories(image.features.metadata_version):
            return DirectoriesAssigned(ErrorCode.UNSUPPORTED_VERSION)
        broker = image.brokers.get(broker_id)
        if broker_epoch is not None and (broker is None or broker.epoch != broker_epoch):
            return DirectoriesAssigned(ErrorCode.STALE_BROKER_EPOCH)
        return None

    def assign(changes: PartitionChanges, choice: tuple[bytes, int, bytes]) -> None:
        topic_id, index, directory = choice
        topic = changes.image.topics.by_id(topic_id)
        partition = None if topic is None else changes.partition(topic, index)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif partition is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif broker_id not in partition.replicas:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif directory == DIRECTORY_LOST and partition.isr == (broker_id,):
            error = ErrorCode.NONE  # no other replica is complete: it is to lead again after its next start
        else:
            error = ErrorCode.NONE
            partition = changes.assign_directory(topic, partition, broker_id, directory)
            is_known = broker_epoch is not None or directory == DIRECTORY_LOST
            if is_known and not changes.is_online(broker_id, directory):
                isr = [replica for replica in partition.isr if replica != broker_id]
                changes.change(topic, partition, Target(isr=isr, barred=(broker_id,)))
        results.append((topic_id, index, error))

    reply = DirectoriesAssigned(ErrorCode.NONE, results)
    return pieces.ManyThings(chosen, reply, assign, context, refusal).decide(image)


@dataclass(frozen=True, slots=True)
class FailDirectories:
    """The log directories of a broker that still work."""

    broker_id: int
    working: Sequence[bytes]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[None]:
        """Decides the request upon `image`."""
        return decide_directories_failed(image, self.broker_id, self.working)


def decide_directories_failed(image: ClusterImage, node_id: int, working: Sequence[bytes]) -> Decision[None]:
    """Notes that only these log directories of a broker still work; partitions that it leads elsewhere lose their
    leader.

    It is noted in pieces, the directories with the first one: after a crash the broker registers with those that work.
    """
    broker = image.brokers.get(node_id)
    if broker is None or not levels.supports_directories(image.features.metadata_version):
        return Decision(None)
    failed = frozenset(broker.directories) - set(working)
    if not failed:
        return Decision(None)
    record = BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.epoch, log_dirs=sorted(working))
    rest = _step_down(image, node_id, failed)
    return Decision(None, [record, *rest.records], rest.then)


def _step_down(image: ClusterImage, node_id: int, failed: Collection[bytes]) -> Decision[None]:
    """Decides the next piece; partitions without a leader are not looked at again."""
    led = (
        step_down(topic.id, partition)
        for topic in image.topics
        for partition in topic.partitions
        if partition.leader == node_id and partition.directory_of(node_id) in failed
    )
    records = list(islice(led, pieces.PIECE_RECORDS))
    is_over = len(records) < pieces.PIECE_RECORDS
    return Decision(None, records, None if is_over else partial(_step_down, node_id=node_id, failed=failed))
