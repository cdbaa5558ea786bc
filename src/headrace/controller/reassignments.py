"""Reassigns partitions to other replicas. Source: KIP-455, KIP-860.

During a reassignment the replicas are those of the target, followed by those to be removed. It is completed by the
first change that finds the added replicas in sync, see `partition_changes`; without added replicas it is completed at
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.controller import placement
from headrace.controller.access import Access
from headrace.controller.context import DONE, TOO_MANY_RECORDS, ApiError, ControllerContext, OfPartitions
from headrace.controller.partition_changes import Election, PartitionChanges, Target
from headrace.controller.pieces import ManyThings
from headrace.machine import Decision
from headrace.metadata.image import ClusterImage, Partition, Topic
from headrace.wire.errors import ErrorCode, message_of


class _Wanted(NamedTuple):
    """A partition to reassign, and the list that takes its result."""

    name: str
    partition_id: int
    replicas: Sequence[int] | None
    outcomes: list[tuple[int, ApiError]]


@dataclass(frozen=True, slots=True)
class ReassignPartitions:
    """New replicas for partitions (topic, (index, replicas)); None as replicas cancels a reassignment."""

    wanted: Sequence[tuple[str, Sequence[tuple[int, Sequence[int] | None]]]]
    allow_factor_change: bool

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[OfPartitions]:
        """Decides the request upon `image`."""
        return decide_reassign(image, context, self.wanted, self.allow_factor_change)


def decide_reassign(
    image: ClusterImage,
    context: ControllerContext,
    wanted: Sequence[tuple[str, Sequence[tuple[int, Sequence[int] | None]]]],
    allow_factor_change: bool,
) -> Decision[list[tuple[str, list[tuple[int, ApiError]]]]]:
    """Reassigns partitions to the given replicas, which may be down; None cancels a reassignment. Decides in pieces."""
    answers: list[tuple[str, list[tuple[int, ApiError]]]] = []

    def partitions() -> Iterator[_Wanted | None]:
        for name, parts in wanted:
            answers.append((name, []))
            yield None
            for index, target in parts:
                yield _Wanted(name, index, target, answers[-1][1])

    def move(changes: PartitionChanges, each: _Wanted) -> None:
        outcome = _reassign(changes, each.name, each.partition_id, each.replicas, allow_factor_change)
        each.outcomes.append((each.partition_id, outcome))

    return ManyThings(partitions(), answers, move, context).decide(image)


def _reassign(
    changes: PartitionChanges, name: str, index: int, target: Sequence[int] | None, allow_factor_change: bool
) -> ApiError:
    topic = changes.image.topics.by_name(name)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = changes.partition(topic, index)
    if partition is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}-{index}.")
    if changes.is_full:
        return TOO_MANY_RECORDS
    if target is None:
        return _call_off(changes, topic, partition)
    error = placement.check_manual(changes.image, target, None)
    if error is not None:
        return error
    current = {*partition.replicas, *partition.adding} - set(partition.removing)
    if not allow_factor_change and len(target) != len(current):
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The request changes the replication factor from {len(current)} to {len(target)}",
        )
    removing = sorted(set(partition.replicas) - set(target))
    # A replica that an earlier reassignment began to add is still being added.
    adding = sorted(r for r in target if r not in partition.replicas or r in partition.adding)
    assert set(adding).isdisjoint(removing), "a replica comes or goes"
    changes.change(
        topic,
        partition,
        Target(replicas=[*target, *removing], removing=removing, adding=adding, election=Election.ONLINE),
    )
    return DONE


def _call_off(changes: PartitionChanges, topic: Topic, partition: Partition) -> ApiError:
    if not partition.is_reassigning:
        return ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, message_of(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))
    replicas = [replica for replica in partition.replicas if replica not in partition.adding]
    if not replicas:
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No replica is left when those being added are dropped.")
    isr = [replica for replica in partition.isr if replica in replicas]
    if not isr:
        if not changes.allows_unclean(topic):
            return ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "None of the original replicas is in sync: to cancel the reassignment would lose data.",
            )
        isr = replicas[:1]
    changes.change(topic, partition, Target(isr=isr, replicas=replicas, removing=(), adding=()))
    return DONE


def list_reassignments(
    image: ClusterImage, wanted: Sequence[tuple[str, Sequence[int]]] | None
) -> list[tuple[str, list[Partition]]]:
    """Returns the partitions under reassignment, of those wanted or of all (None)."""
    if wanted is None:
        wanted = [(topic.name, range(len(topic.partitions))) for topic in image.topics]
    found: list[tuple[str, list[Partition]]] = []
    for name, indexes in wanted:
        partitions = [p for i in indexes if (p := image.topics.partition(name, i)) is not None and p.is_reassigning]
        if partitions:
            found.append((name, partitions))
    return found
