"""Administration: topics, partitions, records, configurations.

Operations, one a task. Each takes and returns plain values; an error that a broker answers is raised as
`BrokerError` naming the thing it is about, at the first thing that fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from headrace.client.conversation import Steps
from headrace.client.errors import BrokerError, TimedOutError, UnknownTopicError
from headrace.client.metadata import TopicPartition
from headrace.client.operations import operation
from headrace.client.routing import Router
from headrace.wire.config_source import ConfigSource
from headrace.wire.errors import ErrorCode

VISIBLE_PATIENCE_S = 10.0
"""How long `create_topic` and `delete_topic` wait for the brokers to know."""

TOPICS_PER_REQUEST = 500
"""How many topics `topic_setting` asks for at once."""


class Resource(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration of one resource, in effect now."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    documentation: str | None
    synonyms: tuple[tuple[str, str | None, int], ...]

    @property
    def is_set(self) -> bool:
        """Whether somebody set it: neither the default nor the broker's file."""
        return self.source not in (ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER, ConfigSource.UNKNOWN)


def source_name(source: int) -> str:
    try:
        return ConfigSource(source).name.lower().replace("_", "-")
    except ValueError:
        return str(source)


@operation
def create_topic(
    router: Router,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignment: Mapping[int, list[int]] | None = None,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
    exist_ok: bool = False,
) -> Steps[bool]:
    """Create a topic; -1 means the brokers' default. Returns False where it was there already and `exist_ok`.

    Comes back once the topic is in the metadata with leaders. Raises `BrokerError`.
    """
    from headrace.wire.messages.k19_create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

    topic = CreatableTopic(
        name=name,
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=p, broker_ids=b) for p, b in (assignment or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(router.timeout_s * 1000), validate_only=validate_only)
    try:
        yield from router.checked(
            request,
            CreateTopicsResponse,
            lambda r: (r.topics[0].error_code, r.topics[0].error_message),
            f"topic {name}",
        )
    except BrokerError as error:
        if exist_ok and error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise
    if not validate_only:
        yield from _wait_until_led(router, name)
    return True


def _wait_until_led(router: Router, name: str) -> Steps[None]:
    retry = router.retry(min(router.timeout_s, VISIBLE_PATIENCE_S))
    while True:
        errors = yield from router.refresh([name])
        if not errors and all(p.leader in router.brokers.nodes for p in (yield from router.topic(name)).partitions):
            return
        yield from retry.pause(TimedOutError(f"topic {name} is created, but has no leader yet"))


@operation
def delete_topic(router: Router, name: str) -> Steps[None]:
    """Delete a topic; comes back once the metadata lacks it. Raises `UnknownTopicError`, `BrokerError`."""
    from headrace.wire.apis import ApiKey
    from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

    if (yield from router.brokers.any_connection()).channel.version_for(ApiKey.DELETE_TOPICS) >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
    else:
        request = DeleteTopicsRequest(topic_names=[name])
    request.timeout_ms = int(router.timeout_s * 1000)

    def error_of(response: DeleteTopicsResponse) -> tuple[int, str | None]:
        answer = response.responses[0]
        if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(name)
        return answer.error_code, answer.error_message

    yield from router.checked(request, DeleteTopicsResponse, error_of, f"topic {name}")
    router.forget([name])
    retry = router.retry(min(router.timeout_s, VISIBLE_PATIENCE_S))
    while name not in (yield from router.refresh([name])):
        yield from retry.pause(TimedOutError(f"topic {name} is deleted, but brokers still list it"))


@operation
def add_partitions(router: Router, name: str, count: int, *, validate_only: bool = False) -> Steps[None]:
    """Grow a topic to `count` partitions. Raises `BrokerError`."""
    from headrace.wire.messages.k37_create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
    )

    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=int(router.timeout_s * 1000),
        validate_only=validate_only,
    )
    yield from router.checked(
        request,
        CreatePartitionsResponse,
        lambda r: (r.results[0].error_code, r.results[0].error_message),
        f"topic {name}",
    )
    if not validate_only:
        yield from _wait_until_led(router, name)


@operation
def delete_records(router: Router, before: Mapping[TopicPartition, int]) -> Steps[dict[TopicPartition, int]]:
    """Delete the records below an offset (-1: all up to the high watermark); returns the new log start offsets."""
    from headrace.wire.messages.k21_delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    def request_of(part: dict[TopicPartition, int]) -> DeleteRecordsRequest:
        topics: dict[str, DeleteRecordsTopic] = {}
        for (name, index), offset in part.items():
            topic = topics.setdefault(name, DeleteRecordsTopic(name=name))
            topic.partitions.append(DeleteRecordsPartition(partition_index=index, offset=offset))
        return DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=int(router.timeout_s * 1000))

    def results_of(response: DeleteRecordsResponse) -> Iterator[tuple[TopicPartition, int, int]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield (topic.name, p.partition_index), p.error_code, p.low_watermark

    return (yield from router.at_leaders(before, request_of, DeleteRecordsResponse, results_of))


# -- configurations


def _config_node(router: Router, resource: Resource, name: str) -> Steps[int | None]:
    """A broker's own configuration is asked of that broker; anything else of anyone."""
    if resource not in (Resource.BROKER, Resource.BROKER_LOGGER) or not name:
        return None
    node_id = int(name)
    if node_id not in router.brokers.nodes:
        yield from router.refresh([])
    if node_id not in router.brokers.nodes:
        raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {name}", "the cluster has no such broker")
    return node_id


@operation
def describe_configs(
    router: Router,
    resource: Resource,
    name: str,
    *,
    keys: Iterable[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> Steps[list[ConfigEntry]]:
    """The configurations of a resource, sorted by name. Broker "" is the cluster-wide default. Raises `BrokerError`."""
    from headrace.wire.messages.k32_describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource,
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    response = yield from router.checked(
        request,
        DescribeConfigsResponse,
        lambda r: (r.results[0].error_code, r.results[0].error_message),
        f"configuration of {resource.name.lower()} {name or '(default)'}",
        node_id=(yield from _config_node(router, resource, name)),
    )
    entries = [
        ConfigEntry(
            name=entry.name,
            value=entry.value,
            source=entry.config_source,
            read_only=entry.read_only,
            sensitive=entry.is_sensitive,
            documentation=entry.documentation,
            synonyms=tuple((s.name, s.value, s.source) for s in entry.synonyms),
        )
        for entry in response.results[0].configs
    ]
    return sorted(entries, key=lambda entry: entry.name)


@operation
def topic_setting(router: Router, names: Iterable[str], key: str) -> Steps[dict[str, str | None]]:
    """One setting of many topics, as in effect; those that are gone meanwhile are left out. Raises `BrokerError`."""
    from headrace.wire.messages.k32_describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    resources = [
        DescribeConfigsResource(resource_type=Resource.TOPIC, resource_name=name, configuration_keys=[key])
        for name in sorted(set(names))
    ]
    found: dict[str, str | None] = {}
    for at in range(0, len(resources), TOPICS_PER_REQUEST):
        request = DescribeConfigsRequest(resources=resources[at : at + TOPICS_PER_REQUEST])
        for result in (yield from router.call(request, DescribeConfigsResponse)).results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if result.error_code != ErrorCode.NONE:
                raise BrokerError(result.error_code, f"configuration of topic {result.resource_name}")
            found[result.resource_name] = next((entry.value for entry in result.configs if entry.name == key), None)
    return found


@operation
def alter_configs(
    router: Router,
    resource: Resource,
    name: str,
    *,
    set_values: Mapping[str, str] | None = None,
    delete: Iterable[str] = (),
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> Steps[None]:
    """Change single configurations of a resource, leaving the others alone (KIP-339). Raises `BrokerError`."""
    from headrace.wire.messages.k44_incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    changes = [AlterableConfig(name=key, config_operation=0, value=text) for key, text in (set_values or {}).items()]
    changes += [AlterableConfig(name=key, config_operation=1, value=None) for key in delete]
    changes += [AlterableConfig(name=key, config_operation=2, value=text) for key, text in (append or {}).items()]
    changes += [AlterableConfig(name=key, config_operation=3, value=text) for key, text in (subtract or {}).items()]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=resource, resource_name=name, configs=changes)],
        validate_only=validate_only,
    )
    yield from router.checked(
        request,
        IncrementalAlterConfigsResponse,
        lambda r: (r.responses[0].error_code, r.responses[0].error_message),
        f"configuration of {resource.name.lower()} {name or '(default)'}",
        node_id=(yield from _config_node(router, resource, name)),
    )
