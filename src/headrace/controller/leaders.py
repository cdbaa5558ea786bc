"""Elections that somebody asks for, or that are made now and then. Source: KIP-460."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.controller.context import MAX_RECORDS_PER_REQUEST, TOO_MANY_RECORDS, ApiError, ControllerContext
from headrace.controller.partition_changes import Election, PartitionChanges, Target
from headrace.machine import Decision
from headrace.metadata.image import NO_LEADER, ClusterImage, Topic
from headrace.wire.errors import ErrorCode, message_of

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


def decide_elect_leaders(
    image: ClusterImage,
    context: ControllerContext,
    election_type: int,
    wanted: Sequence[tuple[str, Sequence[int]]] | None,
) -> Decision[list[tuple[str, list[tuple[int, ApiError]]]]]:
    """Elects leaders of the wanted partitions, or of all (None), where the reply omits those that need none."""
    changes = PartitionChanges(image, context)
    answers: list[tuple[str, list[tuple[int, ApiError]]]] = []
    if wanted is not None:
        for name, indexes in wanted:
            topic = image.topics.by_name(name)
            answers.append((name, [(index, _elect(changes, election_type, name, topic, index)) for index in indexes]))
        return Decision(answers, changes.records)
    for topic in image.topics:
        of_topic = [(p.index, _elect(changes, election_type, topic.name, topic, p.index)) for p in topic.partitions]
        answers.append((topic.name, [each for each in of_topic if each[1].code != ErrorCode.ELECTION_NOT_NEEDED]))
    return Decision(answers, changes.records)


def _elect(changes: PartitionChanges, election_type: int, name: str, topic: Topic | None, index: int) -> ApiError:
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = changes.partition(topic, index)
    if partition is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if len(changes.records) >= MAX_RECORDS_PER_REQUEST:
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


def decide_balance_leaders(image: ClusterImage, context: ControllerContext, max_changes: int) -> Decision[bool]:
    """Gives partitions back to their preferred replicas where these may lead; True where more may be left to do."""
    changes = PartitionChanges(image, context)
    for topic, partition in changes.without_preferred_leader():
        if len(changes.records) >= max_changes:
            return Decision(True, changes.records)
        changes.change(topic, partition, Target(election=Election.PREFERRED))
    return Decision(False, changes.records)


def decide_elect_unclean(image: ClusterImage, context: ControllerContext, max_changes: int) -> Decision[bool]:
    """Elects leaders for partitions without any, where the topic allows unclean ones; True where more may be left."""
    changes = PartitionChanges(image, context)
    for topic, partition in changes.without_leader():
        if changes.allows_unclean(topic):
            if len(changes.records) >= max_changes:
                return Decision(True, changes.records)
            changes.change(topic, partition, Target(election=Election.UNCLEAN))
    return Decision(False, changes.records)
