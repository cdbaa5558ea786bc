"""UpdateFeatures (57), versions 0-2: raises the finalized feature levels, metadata.version above all.

Source: KIP-584, KIP-778.
v1 validate only and types of upgrade. v2 no results by feature.
Unsupported: lower levels of metadata.version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.pieces import Steps, in_turn
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.features import SAFE_DOWNGRADE, UPGRADE, FeatureUpdate, UpdateFeatures
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k57_update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

NO_ERROR: Final = "NONE"
"""Kafka's message for a feature without an error."""


@handles(ApiKey.UPDATE_FEATURES)
async def handle(broker: Services, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Applies all updates or none. Up to version 1 each feature has its own result."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return UpdateFeaturesResponse(error_code=denied, error_message=message_of(denied))
    updates = await in_turn(broker, context, _read(request, context.api_version))
    try:
        error = await broker.controller.ask(UpdateFeatures(updates, request.validate_only))
    except ControllerError as failure:
        error = ApiError(failure.code, str(failure))
    response = UpdateFeaturesResponse(error_message=None)
    if error.code:
        response.error_code = error.code
        response.error_message = (
            f"The update failed for all features since the following feature had an error: {error.message}"
        )
    elif context.api_version < 2:
        response.results = [UpdatableFeatureResult(feature=update.name, error_message=NO_ERROR) for update in updates]
    return response


def _read(request: UpdateFeaturesRequest, version: int) -> Steps[list[FeatureUpdate]]:
    """Returns the requested updates; the last one of each feature counts."""
    updates: dict[str, FeatureUpdate] = {}
    for update in request.feature_updates:
        kind = update.upgrade_type if version >= 1 else SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
        updates[update.feature] = FeatureUpdate(update.feature, update.max_version_level, kind)
        yield 1
    return list(updates.values())
