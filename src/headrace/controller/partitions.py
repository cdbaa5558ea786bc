"""Adding partitions, electing leaders, and moving replicas. Source: KIP-195, KIP-460, KIP-455, KIP-860."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.controller import placement
from headrace.controller.context import MAX_RECORDS_PER_REQUEST, ApiError
from headrace.machine import Decision
from headrace.metadata.image import NO_LEADER, ClusterImage, Partition, Topic
from headrace.metadata.snapshot import partition_record
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k37_create_partitions import CreatePartitionsTopic
from headrace.wire.messages.metadata_records import PartitionChangeRecord

_OK = ApiError(ErrorCode.NONE)


def _plain(code: ErrorCode) -> ApiError:
    return ApiError(code, message_of(code))


def decide_create_partitions(
    image: ClusterImage,
    topics: Sequence[CreatePartitionsTopic],
    *,
    may_alter: Callable[[str], bool] = lambda _: True,
    validate_only: bool = False,
) -> Decision[list[tuple[str, ApiError]]]:
    """Adds partitions; each topic stands or falls alone, and a name that is given twice is refused."""
    counts: dict[str, int] = {}
    for asked in topics:
        counts[asked.name] = counts.get(asked.name, 0) + 1
    answers: dict[str, ApiError] = {}
    records: list[Any] = []
    for asked in topics:
        if asked.name in answers:
            continue
        if counts[asked.name] > 1:
            answers[asked.name] = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif not may_alter(asked.name):
            answers[asked.name] = _plain(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            outcome = _add_partitions(image, asked)
            if not isinstance(outcome, ApiError) and len(records) + len(outcome) > MAX_RECORDS_PER_REQUEST:
                outcome = ApiError(ErrorCode.POLICY_VIOLATION, "A request may not write so many metadata records.")
            if isinstance(outcome, ApiError):
                answers[asked.name] = outcome
            else:
                answers[asked.name] = _OK
                records += outcome
    return Decision(list(answers.items()), [] if validate_only else records)


def _add_partitions(image: ClusterImage, asked: CreatePartitionsTopic) -> list[Any] | ApiError:
    topic = image.topics.by_name(asked.name)
    if topic is None:
        return _plain(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = len(topic.partitions)
    if asked.count == existing:
        return ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    if asked.count < existing:
        return ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {existing} partition(s); {asked.count} would not be an increase.",
        )
    additional = asked.count - existing
    if additional > MAX_RECORDS_PER_REQUEST:
        return ApiError(ErrorCode.POLICY_VIOLATION, "A request may not add so many partitions.")
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is not None:
        placed = _given_replicas(image, asked, additional, factor)
    else:
        found = placement.place(image, existing, additional, factor)
        placed = (
            ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {factor} time(s): {found}"
            )
            if isinstance(found, str)
            else found
        )
    if isinstance(placed, ApiError):
        return placed
    level = image.features.metadata_version
    records: list[Any] = []
    for index, replicas in enumerate(placed, existing):
        partition = placement.new_partition(image, index, replicas)
        if partition is None:
            return ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown.",
            )
        records.append(partition_record(topic.id, partition, level))
    return records


def _given_replicas(
    image: ClusterImage, asked: CreatePartitionsTopic, additional: int, factor: int
) -> list[tuple[int, ...]] | ApiError:
    assignments = asked.assignments or []
    if len(assignments) != additional:
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(assignments)} assignment(s) were "
            "specified.",
        )
    for assignment in assignments:
        error = placement.check_manual(image, assignment.broker_ids, factor)
        if error is not None:
            return error
    return [tuple(assignment.broker_ids) for assignment in assignments]


PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


def decide_elect_leaders(
    image: ClusterImage, election_type: int, wanted: Sequence[tuple[str, Sequence[int]]] | None
) -> Decision[list[tuple[str, list[tuple[int, ApiError]]]]]:
    """Elects leaders of the wanted partitions, or of all (None), where the reply omits those that need none."""
    records: list[PartitionChangeRecord] = []
    answers: list[tuple[str, list[tuple[int, ApiError]]]] = []
    if wanted is not None:
        for name, indexes in wanted:
            topic = image.topics.by_name(name)
            of_topic = [(index, _elect(image, election_type, name, topic, index, records)) for index in indexes]
            answers.append((name, of_topic))
        return Decision(answers, records)
    for topic in image.topics:
        of_topic = [
            (p.index, _elect(image, election_type, topic.name, topic, p.index, records)) for p in topic.partitions
        ]
        answers.append((topic.name, [each for each in of_topic if each[1].code != ErrorCode.ELECTION_NOT_NEEDED]))
    return Decision(answers, records)


def _elect(
    image: ClusterImage,
    election_type: int,
    name: str,
    topic: Topic | None,
    index: int,
    records: list[PartitionChangeRecord],
) -> ApiError:
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    partition = topic.partitions[index]
    preferred = partition.replicas[0]
    if election_type == PREFERRED_ELECTION:
        if partition.leader == preferred:
            return _plain(ErrorCode.ELECTION_NOT_NEEDED)
        if preferred not in partition.isr or not placement.is_active(image, preferred):
            return _plain(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        records.append(PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=preferred))
        return _OK
    if partition.leader != NO_LEADER:
        return _plain(ErrorCode.ELECTION_NOT_NEEDED)
    up = [replica for replica in partition.replicas if placement.is_active(image, replica)]
    if not up:
        return _plain(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    clean = [replica for replica in up if replica in partition.isr]
    leader = (clean or up)[0]
    change = PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=leader)
    if not clean:
        change.isr = [leader]
        change.leader_recovery_state = 1
    records.append(change)
    return _OK


def decide_reassign(
    image: ClusterImage,
    wanted: Sequence[tuple[str, Sequence[tuple[int, Sequence[int] | None]]]],
    allow_factor_change: bool,
) -> Decision[list[tuple[str, list[tuple[int, ApiError]]]]]:
    """Moves partitions to the given replicas; None calls off a move that is under way.

    Only brokers that are up may be given: what one broker can do is to reorder, or to shed the replicas of others.
    """
    records: list[PartitionChangeRecord] = []
    answers = [
        (
            name,
            [(index, _reassign(image, name, index, target, allow_factor_change, records)) for index, target in parts],
        )
        for name, parts in wanted
    ]
    return Decision(answers, records)


def _reassign(
    image: ClusterImage,
    name: str,
    index: int,
    target: Sequence[int] | None,
    allow_factor_change: bool,
    records: list[PartitionChangeRecord],
) -> ApiError:
    topic = image.topics.by_name(name)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions):
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}-{index}.")
    partition = topic.partitions[index]
    if target is None:
        return _call_off(topic, partition, records)
    error = placement.check_manual(image, target, None)
    if error is not None:
        return error
    if not allow_factor_change and len(target) != len(partition.replicas):
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The request changes the replication factor from {len(partition.replicas)} to {len(target)}",
        )
    down = [replica for replica in target if not placement.is_active(image, replica)]
    missing = [replica for replica in target if replica not in partition.isr]
    if down or missing:
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The replicas {down or missing} cannot take part: only brokers that are up and in sync can, so far.",
        )
    if tuple(target) == partition.replicas and not partition.is_reassigning:
        return _OK
    change = PartitionChangeRecord(partition_id=index, topic_id=topic.id, replicas=list(target))
    change.directories = [partition.directory_of(replica) for replica in target]
    change.isr = [replica for replica in partition.isr if replica in target]
    if partition.leader not in target:
        change.leader = target[0]
    if partition.is_reassigning:
        change.adding_replicas = []
        change.removing_replicas = []
    records.append(change)
    return _OK


def _call_off(topic: Topic, partition: Partition, records: list[PartitionChangeRecord]) -> ApiError:
    if not partition.is_reassigning:
        return _plain(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    back = [replica for replica in partition.replicas if replica not in partition.adding]
    isr = [replica for replica in partition.isr if replica in back]
    if not isr:
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "None of the original replicas is in sync: to cancel the reassignment would lose data.",
        )
    change = PartitionChangeRecord(
        partition_id=partition.index,
        topic_id=topic.id,
        replicas=back,
        isr=isr,
        adding_replicas=[],
        removing_replicas=[],
    )
    change.directories = [partition.directory_of(replica) for replica in back]
    if partition.leader not in isr:
        change.leader = isr[0]
    records.append(change)
    return _OK


def list_reassignments(
    image: ClusterImage, wanted: Sequence[tuple[str, Sequence[int]]] | None
) -> list[tuple[str, list[Partition]]]:
    """The partitions whose replicas are on the move, of those wanted or of all (None)."""
    if wanted is None:
        wanted = [(topic.name, range(len(topic.partitions))) for topic in image.topics]
    found: list[tuple[str, list[Partition]]] = []
    for name, indexes in wanted:
        partitions = [p for i in indexes if (p := image.topics.partition(name, i)) is not None and p.is_reassigning]
        if partitions:
            found.append((name, partitions))
    return found
