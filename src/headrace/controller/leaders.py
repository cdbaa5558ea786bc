"""Leader elections on request or at intervals. Source: KIP-460."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.controller.access import Access
from headrace.controller.context import TOO_MANY_RECORDS, ApiError, ControllerContext, OfPartitions
from headrace.controller.partition_changes import Election, PartitionChanges, Target
from headrace.controller.pieces import ManyThings, Sweep, decide_sweep
from headrace.machine import Decision
from headrace.metadata.image import NO_LEADER, ClusterImage, Partition, Topic
from headrace.wire.errors import ErrorCode, message_of

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


class _Wanted(NamedTuple):
    """A partition to elect a leader for, and the list that takes its result."""

    name: str
    partition_id: int
    outcomes: list[tuple[int, ApiError]]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elections for the named partitions (topic, indexes), or for all (None)."""

    election_type: int
    wanted: Sequence[tuple[str, Sequence[int]]] | None

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[OfPartitions]:
        """Decides the request upon `image`."""
        return decide_elect_leaders(image, context, self.election_type, self.wanted)


def decide_elect_leaders(
    image: ClusterImage,
    context: ControllerContext,
    election_type: int,
    wanted: Sequence[tuple[str, Sequence[int]]] | None,
) -> Decision[list[tuple[str, list[tuple[int, ApiError]]]]]:
    """Elects leaders of the wanted partitions, or of all (None); then the reply omits those that need none. Decides in
    pieces."""
    answers: list[tuple[str, list[tuple[int, ApiError]]]] = []
    omitted = () if wanted is not None else (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    requested: Iterator[tuple[str, Sequence[int]]]
    if wanted is None:
        requested = ((topic.name, range(len(topic.partitions))) for topic in image.topics)
    else:
        requested = iter(wanted)

    def partitions() -> Iterator[_Wanted | None]:
        for name, indexes in requested:
            answers.append((name, []))
            yield None
            for index in indexes:
                yield _Wanted(name, index, answers[-1][1])

    def elect(changes: PartitionChanges, each: _Wanted) -> None:
        outcome = _elect(changes, election_type, each.name, each.partition_id)
        if outcome.code not in omitted:
            each.outcomes.append((each.partition_id, outcome))

    return ManyThings(partitions(), answers, elect, context).decide(image)


def _elect(changes: PartitionChanges, election_type: int, name: str, index: int) -> ApiError:
    topic = changes.image.topics.by_name(name)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = changes.partition(topic, index)
    if partition is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if changes.is_full:
        return TOO_MANY_RECORDS
    code = ErrorCode.NONE
    if election_type == PREFERRED_ELECTION:
        if partition.leader == partition.replicas[0]:
            code = ErrorCode.ELECTION_NOT_NEEDED
        else:
            after = changes.change(topic, partition, Target(election=Election.PREFERRED))
            if after.leader != after.replicas[0]:
                code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    elif partition.leader != NO_LEADER:
        code = ErrorCode.ELECTION_NOT_NEEDED
    elif changes.change(topic, partition, Target(election=Election.UNCLEAN)).leader == NO_LEADER:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return ApiError(code, message_of(code) if code else None)


@dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """Returns leaderships to preferred replicas, a limited number at once; the reply is whether more may be left."""

    max_changes: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[bool]:
        """Decides the request upon `image`."""
        return decide_balance_leaders(image, context, self.max_changes)


def decide_balance_leaders(image: ClusterImage, context: ControllerContext, max_changes: int) -> Decision[bool]:
    """Elects preferred replicas if they may lead; replies whether more may be left."""
    sweep = Sweep(PartitionChanges.without_preferred_leader, Target(election=Election.PREFERRED), max_changes)
    return decide_sweep(image, context, sweep)


@dataclass(frozen=True, slots=True)
class ElectUnclean:
    """Elects leaders that may lack records, if the topic allows it, a limited number at once; the reply is whether more
    may be left."""

    max_changes: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[bool]:
        """Decides the request upon `image`."""
        return decide_elect_unclean(image, context, self.max_changes)


def decide_elect_unclean(image: ClusterImage, context: ControllerContext, max_changes: int) -> Decision[bool]:
    """Elects unclean leaders for partitions without a leader, if the topic allows it; replies whether more may be
    left."""

    def find(changes: PartitionChanges, topic: Topic) -> Sequence[Partition]:
        leaderless = changes.without_leader(topic)
        return leaderless if leaderless and changes.allows_unclean(topic) else ()

    return decide_sweep(image, context, Sweep(find, Target(election=Election.UNCLEAN), max_changes))


@dataclass(frozen=True, slots=True)
class ElectMissing:
    """Elects the leaders that the previous controller may have left open; the reply is False."""

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[bool]:
        """Decides the request upon `image`."""
        return decide_elect_missing(image, context)


def decide_elect_missing(image: ClusterImage, context: ControllerContext) -> Decision[bool]:
    """Elects leaders for all partitions that have none and can have one: a controller that died may have left them
    between two pieces of a decision."""
    return decide_sweep(image, context, Sweep(PartitionChanges.without_leader, Target()))


def returned(broker_id: int) -> Sweep:
    """Returns a sweep that elects leaders after a broker was unfenced: it may lead partitions without a leader."""

    def find(changes: PartitionChanges, topic: Topic) -> Sequence[Partition]:
        return [each for each in changes.without_leader(topic) if broker_id in each.replicas]

    return Sweep(find, Target())
