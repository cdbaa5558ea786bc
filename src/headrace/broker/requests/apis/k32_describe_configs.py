"""DescribeConfigs (32), versions 1-4: settings with their values, and the sources of these.

Source: KIP-133, KIP-226, KIP-569.
v1 synonyms. v3 documentation and types. v4 flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.alter_access import config_access
from headrace.broker.requests.pieces import Steps, in_pieces, parts_of
from headrace.broker.requests.registry import handles
from headrace.broker.telemetry import loggers
from headrace.config import Type
from headrace.config.describe import (
    Described,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from headrace.controller.context import ApiError
from headrace.controller.names import illegal_name
from headrace.metadata.image import ResourceType as Config
from headrace.security.authorizer import Operation
from headrace.wire.apis import ApiKey
from headrace.wire.config_source import ConfigSource
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices

_PLAIN_SOURCES = {
    int(Config.BROKER_LOGGER): ConfigSource.DYNAMIC_BROKER_LOGGER,
    int(Config.CLIENT_METRICS): ConfigSource.CLIENT_METRICS,
}
"""ConfigSource of resources whose settings are only names and values."""


_DESCRIBED_STEPS: Final = 5
"""Steps that describing a resource with settings takes."""

_KEYS_PER_STEP: Final = 1000


@handles(ApiKey.DESCRIBE_CONFIGS)
def handle(node: NodeServices, request: DescribeConfigsRequest, context: RequestContext) -> Any:
    """Describes each resource once, in request order."""
    return in_pieces(node, context, _described(node, request, context))


def _described(
    node: NodeServices, request: DescribeConfigsRequest, context: RequestContext
) -> Steps[DescribeConfigsResponse]:
    response = DescribeConfigsResponse()
    seen: set[tuple[int, str]] = set()
    context.keep(seen)
    for resource in request.resources:
        wanted: set[str] = set()
        for keys in parts_of(resource.configuration_keys or (), _KEYS_PER_STEP):
            wanted.update(keys)
            yield 1
        yield 1
        key = resource.resource_type, resource.resource_name
        if not wanted and key in seen:
            continue
        seen.add(key)
        # As in Kafka: without an error the message is empty, not null
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        response.results.append(result)
        denied = config_access(context, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        found = ApiError(denied, message_of(denied)) if denied else _describe(node, resource)
        if isinstance(found, ApiError):
            result.error_code, result.error_message = found
            continue
        result.configs = [_entry(line, request) for line in found if not wanted or line.name in wanted]
        if resource.resource_type in _PLAIN_SOURCES:
            for config in result.configs:
                config.config_source = _PLAIN_SOURCES[resource.resource_type]
        yield _DESCRIBED_STEPS
    return response


def _describe(node: NodeServices, resource: DescribeConfigsResource) -> Sequence[Described] | ApiError:
    name, image = resource.resource_name, node.image
    bad = ErrorCode.INVALID_REQUEST
    if resource.resource_type == Config.TOPIC:
        if (why := illegal_name(name)) is not None:
            return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        if image.topics.by_name(name) is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(node.config, image.configs.topic_overrides(name))
    if resource.resource_type == Config.BROKER:
        return _describe_broker(node, name)
    if resource.resource_type == Config.BROKER_LOGGER:
        if not name:
            return ApiError(bad, "Broker id must not be empty")
        return _not_this_broker(node, name, "") or [_plain(*each) for each in loggers.levels().items()]
    if resource.resource_type == Config.CLIENT_METRICS:
        if not name:
            return ApiError(bad, "Client metrics subscription name must not be empty")
        return [_plain(key, value) for key, value in sorted(image.configs.of(Config.CLIENT_METRICS, name).items())]
    if resource.resource_type == Config.GROUP:
        if not name:
            return ApiError(bad, "Group name must not be empty")
        return describe_group(node.config, image.configs.group_overrides(name))
    return ApiError(bad, f"Unsupported resource type: {resource.resource_type}")


def _describe_broker(node: NodeServices, name: str) -> Sequence[Described] | ApiError:
    if not name:
        return describe_broker_defaults(node.config)
    return _not_this_broker(node, name, " or empty string,") or describe_broker(node.config)


def _not_this_broker(node: NodeServices, name: str, or_else: str) -> ApiError | None:
    try:
        number = int(name)
    except ValueError:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if number != node.node_id:
        return ApiError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node.node_id}{or_else} but received {name}"
        )
    return None


def _plain(name: str, value: str) -> Described:
    return Described(name, value, ConfigSource.DEFAULT, False, False, Type.STRING, (), "")


def _entry(line: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms: list[DescribeConfigsSynonym] = []
    if request.include_synonyms:
        synonyms = [DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in line.synonyms]
    return DescribeConfigsResourceResult(
        name=line.name,
        value=line.value,
        read_only=line.read_only,
        config_source=line.source,
        is_sensitive=line.sensitive,
        synonyms=synonyms,
        config_type=line.type,
        documentation=line.about if request.include_documentation else None,
    )
