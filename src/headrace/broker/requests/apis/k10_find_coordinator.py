"""FindCoordinator (10), versions 0-6: the coordinators of groups or of transactional ids.

The coordinator of a group is the leader of its `__consumer_offsets` partition, that of a transactional id the leader of
its `__transaction_state` partition. The first request creates the topic, and is answered when it exists (Kafka answers
COORDINATOR_NOT_AVAILABLE until then). Keys of share groups, which are not served, get an error that no client retries.

v1: key types. v3: flexible. v4: batched (KIP-699). v6: share groups (KIP-932).
Unsupported: coordinators of share groups.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from headrace.broker.coordinators.transaction_coordinator import TRANSACTIONS_TOPIC
from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.pieces import Steps, in_pieces, in_turn
from headrace.broker.requests.readiness import until_ready
from headrace.broker.requests.registry import handles
from headrace.broker.requests.topic_creation import create_automatically
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_BATCHED_FROM: Final = 4
_SHARE_FROM: Final = 6


class _Kind(NamedTuple):
    """The topic and the authorization of a key type."""

    topic: str
    resource: ResourceType
    forbidden: ErrorCode


_KINDS: Final = {
    _GROUP: _Kind(OFFSETS_TOPIC, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    _TRANSACTION: _Kind(
        TRANSACTIONS_TOPIC, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ),
}


def _coordinators(broker: Services, key_type: int) -> Any:
    return broker.groups if key_type == _GROUP else broker.transactions


@handles(ApiKey.FIND_COORDINATOR)
async def handle(broker: Services, request: FindCoordinatorRequest, context: RequestContext) -> Any:
    """Returns the coordinator of each key."""
    batched = context.api_version >= _BATCHED_FROM
    keys = request.coordinator_keys if batched else [request.key]
    kind = _KINDS.get(request.key_type)
    if kind is not None:
        await _made(broker, context, request.key_type, kind, keys)
        lost_leaders = broker.replicas.lost_leaders
        if lost_leaders:
            leaders = await in_turn(broker, context, _leaders(broker, request.key_type, kind, keys))
            if lost := lost_leaders.among(leaders):
                await lost_leaders.known(lost)
    if batched:
        answer = in_pieces(broker, context, _found(broker, context, request.key_type, keys))
        return await answer if isinstance(answer, Coroutine) else answer
    only = _find(broker, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message if only.error_code else "NONE",
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _made(broker: Services, context: RequestContext, key_type: int, kind: _Kind, keys: list[str]) -> None:
    """Creates the topic if it does not exist and the client is authorized for a key."""
    if broker.image.topics.by_name(kind.topic) is not None:
        return
    if not await in_turn(broker, context, _may_any(context, kind, keys)):
        return
    try:
        codes = await create_automatically(broker, [kind.topic])
    except ControllerError:
        codes = {}  # logged there; the answers below have no coordinator
    for code in codes.values():
        if code is not ErrorCode.NONE:
            lines = _coordinators(broker, key_type).lines
            lines.warning(kind.topic, "topic of a coordinator cannot be created", topic=kind.topic, error=code.name)
    # A client that is sent to a new coordinator must find it loaded.
    indexes = await in_turn(broker, context, _indexes(broker, key_type, keys))
    await until_ready(broker, {(kind.topic, index): None for index in indexes}, for_appends=True)


def _may_any(context: RequestContext, kind: _Kind, keys: Iterable[str]) -> Steps[bool]:
    for key in keys:
        if context.authorize(Operation.DESCRIBE, kind.resource, key):
            return True
        yield 1
    return False


def _indexes(broker: Services, key_type: int, keys: Iterable[str]) -> Steps[set[int]]:
    """Returns the indexes of the keys' partitions."""
    indexes: set[int] = set()
    partition_for = _coordinators(broker, key_type).partition_for
    for key in keys:
        indexes.add(partition_for(key))
        yield 1
    return indexes


def _leaders(broker: Services, key_type: int, kind: _Kind, keys: Iterable[str]) -> Steps[set[int]]:
    """Returns the leaders of the keys' partitions."""
    topic = broker.image.topics.by_name(kind.topic)
    if topic is None:
        return set()
    indexes = yield from _indexes(broker, key_type, keys)
    return {topic.partitions[index].leader for index in indexes if index < len(topic.partitions)}


def _found(
    broker: Services, context: RequestContext, key_type: int, keys: Iterable[str]
) -> Steps[FindCoordinatorResponse]:
    found: list[Coordinator] = []
    for key in keys:
        found.append(_find(broker, context, key_type, key))
        yield 1
    return FindCoordinatorResponse(coordinators=found)


def _find(broker: Services, context: RequestContext, key_type: int, key: str) -> Coordinator:
    kind = _KINDS.get(key_type)
    if key_type == _SHARE and context.api_version >= _SHARE_FROM:
        if not context.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return _refused(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    if kind is None:
        why = f"This broker does not serve coordinator keys of type {key_type}."
        return _refused(key, ErrorCode.INVALID_REQUEST, why)
    if not context.authorize(Operation.DESCRIBE, kind.resource, key):
        return _refused(key, kind.forbidden, None)
    image = broker.image
    topic = image.topics.by_name(kind.topic)
    index = _coordinators(broker, key_type).partition_for(key)
    if topic is None or index >= len(topic.partitions):
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    leader = image.brokers.get(topic.partitions[index].leader)
    endpoint = leader.endpoint(context.listener) if leader is not None and not leader.fenced else None
    if leader is None or endpoint is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    return Coordinator(key=key, node_id=leader.id, host=endpoint.host, port=endpoint.port)


def _refused(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message or message_of(error)
    )
