"""Creates and deletes topics. Source: KIP-4, KIP-464, KIP-516, KIP-525."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

from headrace.controller import names, placement
from headrace.controller.access import Access
from headrace.controller.configs import SETTINGS_MAX, TOO_MANY_SETTINGS
from headrace.controller.context import MAX_RECORDS_PER_REQUEST, QUOTA_USED_UP, ApiError, ControllerContext
from headrace.controller.drawing import Draw, Drawing, Drawn, draw_partitions
from headrace.controller.partition_changes import PartitionChanges
from headrace.controller.pieces import ManyThings, Named
from headrace.machine import Decision
from headrace.metadata.image import ClusterImage, Partition, ResourceType, Topic
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.k20_delete_topics import DeletableTopicResult
from headrace.wire.messages.metadata_records import ConfigRecord, RemoveTopicRecord, TopicRecord

PIECE_RECORDS: Final = 200
"""The limit of records of one piece of a request, without those of its last topic."""
PIECE_TOPICS: Final = 25
"""The limit of topics that one piece looks at."""


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """New topics; each has a result of its own, in the request's order."""

    request: CreateTopicsRequest

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[CreateTopicsResponse]:
        """Decides the request upon `image`."""
        return decide_create_topics(
            image,
            self.request,
            context,
            may_create=access.may_create,
            may_describe_configs=access.may_describe_configs,
            may_change=access.may_change,
        )


def decide_create_topics(
    image: ClusterImage,
    request: CreateTopicsRequest,
    context: ControllerContext,
    *,
    may_create: Callable[[str], bool] = lambda _: True,
    may_describe_configs: Callable[[str], bool] = lambda _: True,
    may_change: Callable[[int], bool] = lambda _: True,
) -> Decision[CreateTopicsResponse]:
    """Creates topics; each succeeds or fails alone, and results keep the request's order.

    Topics are created in pieces, each topic within one. Thousands of partitions of a topic are prepared in pieces
    without records.
    """
    return _ManyTopics(request, context, may_create, may_describe_configs, may_change).decide(image)


class _ManyTopics:
    """A CreateTopics request and the results of its pieces so far."""

    def __init__(
        self,
        request: CreateTopicsRequest,
        context: ControllerContext,
        may_create: Callable[[str], bool],
        may_describe_configs: Callable[[str], bool],
        may_change: Callable[[int], bool],
    ) -> None:
        self._context = context
        self._may_change = may_change
        self._may_create = may_create
        self._may_describe_configs = may_describe_configs
        self._validate_only = request.validate_only
        self._named = Named(request.topics, _name_of)
        self._looked_at: list[str] = []
        """The topics that a validate-only request would have created."""
        self._waiting: Iterator[CreatableTopic] = iter(())
        self._topic: CreatableTopic | None = None
        self._drawing = Drawing()
        self._results: list[CreatableTopicResult] = []
        self._records = 0
        """The number of records in the pieces so far."""

    def decide(self, image: ClusterImage) -> Decision[CreateTopicsResponse]:
        """Decides the next piece."""
        if not self._named.is_counted:
            self._named.count_some()
            if not self._named.is_counted:
                return Decision(CreateTopicsResponse(topics=self._results), [], self.decide)
            self._waiting = self._named.in_order()
            self._topic = next(self._waiting, None)
        # Validated topics are in no image, and a later name of the request may collide with one.
        creation = _Creation(image, self._context, self._looked_at, self._records)
        end = len(self._results) + PIECE_TOPICS
        while self._topic is not None and creation.written < PIECE_RECORDS and len(self._results) < end:
            outcome = self._create(creation, self._topic)
            if outcome is None:
                break
            if self._validate_only and isinstance(outcome, CreatableTopicResult):
                self._looked_at.append(outcome.name)
            self._results.append(refusal(self._topic.name, outcome) if isinstance(outcome, ApiError) else outcome)
            self._topic, self._drawing = next(self._waiting, None), Drawing()
        self._records += creation.written
        rest = None if self._topic is None else self.decide
        records = [] if self._validate_only else creation.records
        return Decision(CreateTopicsResponse(topics=self._results), records, rest)

    def _create(self, creation: _Creation, topic: CreatableTopic) -> CreatableTopicResult | ApiError | None:
        """Creates one topic; returns None if the next piece continues with it."""
        name = topic.name
        if self._named.is_twice(name):
            return ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        if name == names.METADATA_TOPIC:
            why = f"Creation of internal topic {names.METADATA_TOPIC} is prohibited."
            return ApiError(ErrorCode.INVALID_REQUEST, why)
        if not self._may_create(name):
            return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        overrides = creation.overrides_of(topic)
        if isinstance(overrides, ApiError):
            return overrides
        drawn = self._drawing.go_on(creation.image, partial(creation.draw, topic))
        if drawn is None or isinstance(drawn, ApiError):
            return drawn
        if not self._may_change(drawn.partitions):
            return QUOTA_USED_UP
        return creation.create(name, drawn, overrides, self._may_describe_configs(name))


def _name_of(topic: CreatableTopic) -> str:
    return topic.name


def refusal(name: str, error: ApiError) -> CreatableTopicResult:
    """Returns the result of a topic that was not created."""
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message, configs=[])


class _Creation:
    """The topics of one piece, created upon one image. `also` are names that exist beside those of the image, and
    `records_before` is the number of records that the request has written before."""

    def __init__(
        self, image: ClusterImage, context: ControllerContext, also: Iterable[str], records_before: int
    ) -> None:
        self.image = image
        self.context = context
        self.records: list[Any] = []
        self.written = 0
        """The number of records that this piece writes."""
        self._records_before = records_before
        self._placer = placement.Placer(image, context.random)
        self._collisions = names.Collisions(chain(image.topics.topics_by_name, also))

    def overrides_of(self, topic: CreatableTopic) -> dict[str, str] | ApiError:
        """Returns the settings of a new topic, or why it is refused."""
        name = topic.name
        if (why := names.illegal_name(name)) is not None:
            return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        if self.image.topics.by_name(name) is not None:
            return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._collisions.find(name)
        if other is not None:
            return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
        if len(topic.configs) > SETTINGS_MAX:
            return TOO_MANY_SETTINGS
        nulls = [config.name for config in topic.configs if config.value is None]
        if nulls:
            return ApiError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls))
        overrides = {config.name: config.value or "" for config in topic.configs}
        if (why := self.context.rules.check_topic(overrides)) is not None:
            return ApiError(ErrorCode.INVALID_CONFIG, why)
        return overrides

    def draw(self, topic: CreatableTopic) -> Draw:
        """Draws the partitions of a topic."""
        return draw_partitions(self._place(topic), self.context.new_id, self.image.features.metadata_version)

    def create(
        self, name: str, drawn: Drawn, overrides: dict[str, str], describe: bool
    ) -> CreatableTopicResult | ApiError:
        """Writes a topic down, unless these are too many records."""
        count = 1 + len(overrides) + drawn.partitions
        if self._records_before + self.written + count > MAX_RECORDS_PER_REQUEST:
            return ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"Unable to perform excessively large batch operation: a request may write {MAX_RECORDS_PER_REQUEST} "
                "metadata records.",
            )
        self.written += count
        self._collisions.add(name)
        topic_id = drawn.topic_id
        # Configurations precede the partitions, so that a partition never exists without them.
        self.records.append(TopicRecord(name=name, topic_id=topic_id))
        self.records += [
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value)
            for key, value in overrides.items()
        ]
        self.records += drawn.records
        result = CreatableTopicResult(name=name, topic_id=topic_id, error_message=None, configs=[])
        if not describe:
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return result
        result.num_partitions = drawn.partitions
        result.replication_factor = drawn.replication_factor
        result.configs = [
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.is_sensitive,
            )
            for config in self.context.rules.describe_topic(overrides)
        ]
        return result

    def _place(self, topic: CreatableTopic) -> Iterator[Partition | ApiError]:
        """Yields the partitions, or an error as the last item."""
        if topic.assignments:
            yield from self._place_by_hand(topic)
            return
        factor, count = topic.replication_factor, topic.num_partitions
        if factor < -1 or factor == 0:
            yield ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
            return
        if count < -1 or count == 0:
            yield ApiError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
            return
        factor = self.context.default_replication_factor if factor == -1 else factor
        count = self.context.num_partitions if count == -1 else count
        if count > MAX_RECORDS_PER_REQUEST:
            yield ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"Excessively large number of partitions per request: {count} exceeds the limit of "
                f"{MAX_RECORDS_PER_REQUEST}.",
            )
            return
        prefix = f"Unable to replicate the partition {factor} time(s): "
        replicas = self._placer.place(0, count, factor)
        if isinstance(replicas, str):
            yield ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, prefix + replicas)
            return
        for index, of_partition in enumerate(replicas):
            partition = placement.new_partition(self.image, index, of_partition)
            if partition is None:
                yield ApiError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    prefix + "All brokers are currently fenced or in controlled shutdown.",
                )
                return
            yield partition

    def _place_by_hand(self, topic: CreatableTopic) -> Iterator[Partition | ApiError]:
        if topic.replication_factor != -1:
            yield ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
            return
        if topic.num_partitions != -1:
            yield ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
            return
        bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        placed: set[int] = set()
        factor: int | None = None
        for assignment in topic.assignments:
            index = assignment.partition_index
            if index in placed:
                yield ApiError(bad, f"Found multiple manual partition assignments for partition {index}")
                return
            error = placement.check_manual(self.image, assignment.broker_ids, factor)
            if error is not None:
                yield error
                return
            factor = len(assignment.broker_ids)
            partition = placement.new_partition(self.image, index, assignment.broker_ids)
            if partition is None:
                yield ApiError(
                    bad,
                    f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                    "controlled shutdown.",
                )
                return
            placed.add(index)
            yield partition
        if any(index not in placed for index in range(len(placed))):
            yield ApiError(bad, "partitions should be a consecutive 0-based integer sequence")


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Topics to delete, given as (name, id), of which exactly one is set."""

    wanted: Sequence[tuple[str | None, bytes]]

    def decide(
        self, image: ClusterImage, context: ControllerContext, access: Access
    ) -> Decision[list[DeletableTopicResult]]:
        """Decides the request upon `image`."""
        return decide_delete_topics(
            image,
            self.wanted,
            context,
            may_describe=access.may_see_to_delete,
            may_delete=access.may_delete,
            may_change=access.may_change,
        )


def decide_delete_topics(
    image: ClusterImage,
    wanted: Sequence[tuple[str | None, bytes]],
    context: ControllerContext,
    *,
    may_describe: Callable[[str], bool] = lambda _: True,
    may_delete: Callable[[str], bool] = lambda _: True,
    may_change: Callable[[int], bool] = lambda _: True,
) -> Decision[list[DeletableTopicResult]]:
    """Deletes topics given as (name, id), of which exactly one is set; each has its own result, in order.

    A client that may not describe a topic learns neither the name of an id nor the id of a name. Topics are deleted in
    pieces. Source: KIP-516.
    """
    results: list[DeletableTopicResult] = []
    gone: dict[str | bytes, Topic] = {}
    """Topics deleted by this request, by name and by id: between two pieces another topic may get the name."""

    def delete(changes: PartitionChanges, which: tuple[str | None, bytes]) -> None:
        name, topic_id = which
        topics = changes.image.topics
        topic = gone.get(topic_id if name is None else name)
        is_gone = topic is not None
        if topic is None:
            topic = topics.by_id(topic_id) if name is None else topics.by_name(name)
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        results.append(result)
        if name is not None and not may_describe(name):
            _refuse(result, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif topic is None:
            _refuse(result, ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif not may_describe(topic.name):
            _refuse(result, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            result.name, result.topic_id = topic.name, topic.id
            if not may_delete(topic.name):
                _refuse(result, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif is_gone:
                _refuse(result, ErrorCode.INVALID_REQUEST)
                result.error_message = "The provided topic name maps to an ID that was already supplied."
            elif not may_change(len(topic.partitions)):
                result.error_code, result.error_message = QUOTA_USED_UP
            else:
                gone[topic.name] = gone[topic.id] = topic
                changes.looked_at += len(topic.partitions)
                changes.records.append(RemoveTopicRecord(topic_id=topic.id))

    return ManyThings(wanted, results, delete, context).decide(image)


def _refuse(result: DeletableTopicResult, code: ErrorCode) -> None:
    result.error_code = code
    result.error_message = message_of(code)
