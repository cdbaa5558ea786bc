"""Creating and deleting topics. Source: KIP-4, KIP-464, KIP-516, KIP-525."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.controller import names, placement
from headrace.controller.context import MAX_RECORDS_PER_REQUEST, ApiError, ControllerContext
from headrace.machine import Decision
from headrace.metadata.image import ClusterImage, Partition, ResourceType
from headrace.metadata.snapshot import partition_record
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


def decide_create_topics(
    image: ClusterImage,
    request: CreateTopicsRequest,
    context: ControllerContext,
    *,
    may_create: Callable[[str], bool] = lambda _: True,
    may_describe_configs: Callable[[str], bool] = lambda _: True,
) -> Decision[CreateTopicsResponse]:
    """Creates what can be created of a request; each topic stands or falls alone; results keep the request's order."""
    creation = _Creation(image, context)
    seen: dict[str, int] = {}
    for topic in request.topics:
        seen[topic.name] = seen.get(topic.name, 0) + 1
    results: list[CreatableTopicResult] = []
    answered: set[str] = set()
    for topic in request.topics:
        name = topic.name
        if name in answered:
            continue
        answered.add(name)
        if seen[name] > 1:
            outcome: ApiError | CreatableTopicResult = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif name == names.METADATA_TOPIC:
            outcome = ApiError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {names.METADATA_TOPIC} is prohibited."
            )
        elif not may_create(name):
            outcome = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            outcome = creation.create(topic, may_describe_configs(name))
        results.append(refusal(name, outcome) if isinstance(outcome, ApiError) else outcome)
    response = CreateTopicsResponse(topics=results)
    return Decision(response, [] if request.validate_only else creation.records)


def refusal(name: str, error: ApiError) -> CreatableTopicResult:
    """The result of a topic that was not created."""
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message, configs=[])


class _Creation:
    """The topics of one request, created on top of one image."""

    def __init__(self, image: ClusterImage, context: ControllerContext) -> None:
        self.image = image
        self.context = context
        self.records: list[Any] = []
        self._collisions = names.Collisions(image.topics.topics_by_name)

    def create(self, topic: CreatableTopic, describe: bool) -> CreatableTopicResult | ApiError:
        name = topic.name
        if (why := names.illegal_name(name)) is not None:
            return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        if self.image.topics.by_name(name) is not None:
            return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._collisions.find(name)
        if other is not None:
            return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
        nulls = [config.name for config in topic.configs if config.value is None]
        if nulls:
            return ApiError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls))
        overrides = {config.name: config.value or "" for config in topic.configs}
        if (why := self.context.rules.check_topic(overrides)) is not None:
            return ApiError(ErrorCode.INVALID_CONFIG, why)
        partitions = self._place(topic)
        if isinstance(partitions, ApiError):
            return partitions
        if len(self.records) + 1 + len(overrides) + len(partitions) > MAX_RECORDS_PER_REQUEST:
            return ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"Unable to perform excessively large batch operation: a request may write {MAX_RECORDS_PER_REQUEST} "
                "metadata records.",
            )
        return self._write(name, partitions, overrides, describe)

    def _write(
        self, name: str, partitions: list[Partition], overrides: dict[str, str], describe: bool
    ) -> CreatableTopicResult:
        topic_id = self.context.new_id()
        level = self.image.features.metadata_version
        self._collisions.add(name)
        # Configurations stand between the topic and its partitions, so that a partition never exists without them.
        self.records.append(TopicRecord(name=name, topic_id=topic_id))
        self.records += [
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value)
            for key, value in overrides.items()
        ]
        self.records += [partition_record(topic_id, partition, level) for partition in partitions]
        result = CreatableTopicResult(name=name, topic_id=topic_id, error_message=None, configs=[])
        if not describe:
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return result
        result.num_partitions = len(partitions)
        result.replication_factor = len(partitions[0].replicas)
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

    def _place(self, topic: CreatableTopic) -> list[Partition] | ApiError:
        if topic.assignments:
            return self._place_by_hand(topic)
        factor, count = topic.replication_factor, topic.num_partitions
        if factor < -1 or factor == 0:
            return ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if count < -1 or count == 0:
            return ApiError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        factor = self.context.default_replication_factor if factor == -1 else factor
        count = self.context.num_partitions if count == -1 else count
        if count > MAX_RECORDS_PER_REQUEST:
            return ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"Excessively large number of partitions per request: {count} exceeds the limit of "
                f"{MAX_RECORDS_PER_REQUEST}.",
            )
        prefix = f"Unable to replicate the partition {factor} time(s): "
        replicas = placement.place(self.image, 0, count, factor, self.context.random)
        if isinstance(replicas, str):
            return ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, prefix + replicas)
        partitions: list[Partition] = []
        for index, of_partition in enumerate(replicas):
            partition = placement.new_partition(self.image, index, of_partition)
            if partition is None:
                return ApiError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    prefix + "All brokers are currently fenced or in controlled shutdown.",
                )
            partitions.append(partition)
        return partitions

    def _place_by_hand(self, topic: CreatableTopic) -> list[Partition] | ApiError:
        if topic.replication_factor != -1:
            return ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != -1:
            return ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        placed: dict[int, Partition] = {}
        factor: int | None = None
        for assignment in topic.assignments:
            index = assignment.partition_index
            if index in placed:
                return ApiError(bad, f"Found multiple manual partition assignments for partition {index}")
            error = placement.check_manual(self.image, assignment.broker_ids, factor)
            if error is not None:
                return error
            factor = len(assignment.broker_ids)
            partition = placement.new_partition(self.image, index, assignment.broker_ids)
            if partition is None:
                return ApiError(
                    bad,
                    f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                    "controlled shutdown.",
                )
            placed[index] = partition
        if any(index not in placed for index in range(len(placed))):
            return ApiError(bad, "partitions should be a consecutive 0-based integer sequence")
        return [placed[index] for index in range(len(placed))]


def decide_delete_topics(
    image: ClusterImage,
    wanted: Sequence[tuple[str | None, bytes]],
    *,
    may_describe: Callable[[str], bool] = lambda _: True,
    may_delete: Callable[[str], bool] = lambda _: True,
) -> Decision[list[DeletableTopicResult]]:
    """Deletes topics given as (name, id), of which exactly one is set; each has a result of its own, in order.

    Who may not describe a topic learns neither the name behind an id nor the id behind a name. Source: KIP-516.
    """
    results: list[DeletableTopicResult] = []
    records: list[RemoveTopicRecord] = []
    gone: set[bytes] = set()
    for name, topic_id in wanted:
        topic = image.topics.by_id(topic_id) if name is None else image.topics.by_name(name)
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
            elif topic.id in gone:
                _refuse(result, ErrorCode.INVALID_REQUEST)
                result.error_message = "The provided topic name maps to an ID that was already supplied."
            else:
                gone.add(topic.id)
                records.append(RemoveTopicRecord(topic_id=topic.id))
    return Decision(results, records)


def _refuse(result: DeletableTopicResult, code: ErrorCode) -> None:
    result.error_code = code
    result.error_message = message_of(code)
