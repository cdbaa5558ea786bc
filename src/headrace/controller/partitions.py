"""Adding partitions to topics. Source: KIP-195."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.controller import placement
from headrace.controller.context import MAX_RECORDS_PER_REQUEST, TOO_MANY_RECORDS, ApiError, first
from headrace.machine import Decision
from headrace.metadata.image import ClusterImage
from headrace.metadata.snapshot import partition_record
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k37_create_partitions import CreatePartitionsTopic

_OK = ApiError(ErrorCode.NONE)


def _plain(code: ErrorCode) -> ApiError:
    return ApiError(code, message_of(code))


def decide_create_partitions(
    image: ClusterImage,
    topics: Sequence[CreatePartitionsTopic],
    *,
    may_alter: Callable[[str], bool] = lambda _: True,
    random: Callable[[int], int] = first,
    validate_only: bool = False,
) -> Decision[list[tuple[str, ApiError]]]:
    """Adds partitions; each topic stands or falls alone, and a name that is given twice is refused."""
    counts: dict[str, int] = {}
    for asked in topics:
        counts[asked.name] = counts.get(asked.name, 0) + 1
    placer = placement.Placer(image, random)
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
            outcome = _add_partitions(image, asked, placer)
            if not isinstance(outcome, ApiError) and len(records) + len(outcome) > MAX_RECORDS_PER_REQUEST:
                outcome = TOO_MANY_RECORDS
            if isinstance(outcome, ApiError):
                answers[asked.name] = outcome
            else:
                answers[asked.name] = _OK
                records += outcome
    return Decision(list(answers.items()), [] if validate_only else records)


def _add_partitions(
    image: ClusterImage, asked: CreatePartitionsTopic, placer: placement.Placer
) -> list[Any] | ApiError:
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
        found = placer.place(existing, additional, factor)
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
