"""Adding partitions to topics. Source: KIP-195."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.controller import pieces, placement
from headrace.controller.access import Access
from headrace.controller.context import (
    DONE,
    MAX_RECORDS_PER_REQUEST,
    QUOTA_USED_UP,
    TOO_MANY_RECORDS,
    ApiError,
    ControllerContext,
    first,
)
from headrace.controller.drawing import Drawing, draw_partitions
from headrace.machine import Decision
from headrace.metadata.image import ClusterImage, Partition, Topic
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k37_create_partitions import CreatePartitionsTopic


def _name_of(topic: CreatePartitionsTopic) -> str:
    return topic.name


def _plain(code: ErrorCode) -> ApiError:
    return ApiError(code, message_of(code))


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """More partitions for topics that exist."""

    topics: Sequence[CreatePartitionsTopic]
    validate_only: bool = False

    def decide(
        self, image: ClusterImage, context: ControllerContext, access: Access
    ) -> Decision[list[tuple[str, ApiError]]]:
        """Decides the request upon `image`."""
        return decide_create_partitions(
            image,
            self.topics,
            may_alter=access.may_alter,
            may_change=access.may_change,
            random=context.random,
            validate_only=self.validate_only,
        )


def decide_create_partitions(
    image: ClusterImage,
    topics: Sequence[CreatePartitionsTopic],
    *,
    may_alter: Callable[[str], bool] = lambda _: True,
    may_change: Callable[[int], bool] = lambda _: True,
    random: Callable[[int], int] = first,
    validate_only: bool = False,
) -> Decision[list[tuple[str, ApiError]]]:
    """Adds partitions; each topic succeeds or fails alone, and a name that is given twice is refused.

    Topics are decided in pieces, each topic within one. Thousands of new partitions of a topic are prepared in pieces
    without records.
    """
    return _ManyTopics(topics, may_alter, may_change, random, validate_only).decide(image)


class _ManyTopics:
    """A CreatePartitions request and the results of its pieces so far."""

    def __init__(
        self,
        topics: Sequence[CreatePartitionsTopic],
        may_alter: Callable[[str], bool],
        may_change: Callable[[int], bool],
        random: Callable[[int], int],
        validate_only: bool,
    ) -> None:
        self._may_change = may_change
        self._may_alter = may_alter
        self._random = random
        self._validate_only = validate_only
        self._named = pieces.Named(topics, _name_of)
        self._waiting: Iterator[CreatePartitionsTopic] = iter(())
        self._current: CreatePartitionsTopic | None = None
        self._drawing = Drawing()
        self._answers: list[tuple[str, ApiError]] = []
        self._records = 0
        """The number of records in the pieces so far."""

    def decide(self, image: ClusterImage) -> Decision[list[tuple[str, ApiError]]]:
        """Decides the next piece."""
        if not self._named.is_counted:
            self._named.count_some()
            if not self._named.is_counted:
                return Decision(self._answers, [], self.decide)
            self._waiting = self._named.in_order()
            self._current = next(self._waiting, None)
        placer = placement.Placer(image, self._random)
        records: list[Any] = []
        end, full = len(self._answers) + pieces.PIECE_TRIES, self._records + pieces.PIECE_RECORDS
        while self._current is not None and len(self._answers) < end and self._records < full:
            outcome = self._grow(image, self._current, placer, records)
            if outcome is None:
                break
            self._answers.append((self._current.name, outcome))
            self._current, self._drawing = next(self._waiting, None), Drawing()
        rest = None if self._current is None else self.decide
        return Decision(self._answers, [] if self._validate_only else records, rest)

    def _grow(
        self, image: ClusterImage, wanted: CreatePartitionsTopic, placer: placement.Placer, records: list[Any]
    ) -> ApiError | None:
        """Adds partitions to one topic; returns None if the next piece continues with it."""
        if self._named.is_twice(wanted.name):
            return ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        if not self._may_alter(wanted.name):
            return _plain(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = image.topics.by_name(wanted.name)
        if topic is None:
            return _plain(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = _refusal(wanted, len(topic.partitions))
        if error is not None:
            return error
        draw = partial(
            draw_partitions, _place(image, topic, wanted, placer), lambda: topic.id, image.features.metadata_version
        )
        basis = (topic.id, len(topic.partitions), len(topic.partitions[0].replicas))
        drawn = self._drawing.go_on(image, draw, basis)
        if drawn is None or isinstance(drawn, ApiError):
            return drawn
        if self._records + drawn.partitions > MAX_RECORDS_PER_REQUEST:
            return TOO_MANY_RECORDS
        if not self._may_change(drawn.partitions):
            return QUOTA_USED_UP
        self._records += drawn.partitions
        records += drawn.records
        return DONE


def _refusal(wanted: CreatePartitionsTopic, existing: int) -> ApiError | None:
    if wanted.count == existing:
        return ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    if wanted.count < existing:
        return ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {existing} partition(s); {wanted.count} would not be an increase.",
        )
    if wanted.count - existing > MAX_RECORDS_PER_REQUEST:
        return ApiError(ErrorCode.POLICY_VIOLATION, "A request may not add so many partitions.")
    return None


def _place(
    image: ClusterImage, topic: Topic, wanted: CreatePartitionsTopic, placer: placement.Placer
) -> Iterator[Partition | ApiError]:
    """Yields the new partitions, or an error as the last item."""
    existing, factor = len(topic.partitions), len(topic.partitions[0].replicas)
    if wanted.assignments is not None:
        placed: Iterator[tuple[int, ...] | ApiError] = _given_replicas(image, wanted, wanted.count - existing, factor)
    else:
        found = placer.place(existing, wanted.count - existing, factor)
        if isinstance(found, str):
            why = f"Unable to replicate the partition {factor} time(s): {found}"
            yield ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
            return
        placed = found
    for index, replicas in enumerate(placed, existing):
        if isinstance(replicas, ApiError):
            yield replicas
            return
        partition = placement.new_partition(image, index, replicas)
        if partition is None:
            yield ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown.",
            )
            return
        yield partition


def _given_replicas(
    image: ClusterImage, wanted: CreatePartitionsTopic, additional: int, factor: int
) -> Iterator[tuple[int, ...] | ApiError]:
    assignments = wanted.assignments or []
    if len(assignments) != additional:
        yield ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(assignments)} assignment(s) were "
            "specified.",
        )
        return
    for assignment in assignments:
        error = placement.check_manual(image, assignment.broker_ids, factor)
        if error is not None:
            yield error
            return
        yield tuple(assignment.broker_ids)
