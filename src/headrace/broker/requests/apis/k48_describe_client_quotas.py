"""DescribeClientQuotas (48), versions 0-1: the quotas whose entities match a filter. Source: KIP-546.

A filter has a component for each type of entity that it names: exactly this name, the default, or any of the type.
Entities with further types match as well, unless the filter is strict.
v1 flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.metadata.client_quotas import ENTITY_TYPES, IP, Entity, names_of
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
_MATCH_NAMES: Final = {EXACT: "EXACT", DEFAULT: "DEFAULT", ANY: "SPECIFIED"}


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def handle(broker: Services, request: DescribeClientQuotasRequest, context: RequestContext) -> Any:
    """Returns all quotas of the matching entities, sorted."""
    return in_pieces(broker, context, _described(broker, request, context))


def _described(
    broker: Services, request: DescribeClientQuotasRequest, context: RequestContext
) -> Steps[DescribeClientQuotasResponse]:
    if not context.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _refused(ApiError(denied, message_of(denied)))
    refusal = _refusal(request.components)
    if refusal is not None:
        return _refused(refusal)
    found: dict[Entity, list[ValueData]] = {}
    for (entity, key), record in sorted(broker.image.kept.quotas.items()):
        yield 1
        if _matches(names_of(entity), request.components, request.strict):
            found.setdefault(entity, []).append(ValueData(key=key, value=record.value))
    entries: list[EntryData] = []
    for entity, values in found.items():
        yield 1
        names = [EntityData(entity_type=kind, entity_name=name) for kind, name in names_of(entity).items()]
        entries.append(EntryData(entity=names, values=values))
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _refused(error: ApiError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


def _refusal(components: Sequence[ComponentData]) -> ApiError | None:
    """Returns the error if the filter is invalid, else None."""
    bad = ErrorCode.INVALID_REQUEST
    types: set[str] = set()
    for component in components:
        kind, match = component.entity_type, component.match_type
        if not kind:
            return ApiError(bad, "Invalid empty entity type.")
        if kind in types:
            return ApiError(bad, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            return ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match not in _MATCH_NAMES:
            return ApiError(bad, f"Unknown match type {match}")
        if match == EXACT and component.match is None:
            return ApiError(bad, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match != EXACT and component.match is not None:
            name = _MATCH_NAMES[match]
            return ApiError(bad, f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
        types.add(kind)
    if IP in types and len(types) > 1:
        return ApiError(
            bad,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )
    return None


def _matches(names: dict[str, str | None], components: Sequence[ComponentData], strict: bool) -> bool:
    if strict and (len(names) != len(components)):
        return False
    return all(
        component.entity_type in names
        and (component.match_type == ANY or names[component.entity_type] == component.match)
        for component in components
    )
