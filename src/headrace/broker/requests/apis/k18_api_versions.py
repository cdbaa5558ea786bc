"""ApiVersions (18), versions 0-5: the APIs of the listener with their versions, and the features.

Advertises exactly what the listener serves, at one release's versions. A version that does not exist is answered in
version 0 with UNSUPPORTED_VERSION and the versions of ApiVersions alone, so that a newer client can try again
(KIP-511).
v3 flexible, software name and version. v4 features from level 0. v5 the cluster and node that the client expects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.metadata.bootstrap import SUPPORTED_FEATURES
from headrace.metadata.levels import KRAFT_VERSION
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import encode_response
from headrace.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_LEVEL_ZERO_VERSION: Final = 4
_NAMED_VERSION: Final = 5
_PRODUCE_MIN_VERSION: Final = 0


def listed(keys: Iterable[int]) -> list[ApiVersion]:
    """Returns the API keys with their versions, Produce from 0 (see `produce_before_v3`)."""
    return [
        ApiVersion(
            api_key=int(key),
            min_version=_PRODUCE_MIN_VERSION if key == ApiKey.PRODUCE else APIS[key].min_version,
            max_version=APIS[key].max_version,
        )
        for key in sorted(keys)
    ]


def answer_unknown_version(correlation_id: int) -> bytearray:
    """Returns the frame that answers an unknown version of ApiVersions with the known ones."""
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=listed([ApiKey.API_VERSIONS]))
    return encode_response(ApiKey.API_VERSIONS, 0, correlation_id, response)


@handles(ApiKey.API_VERSIONS)
def handle(broker: Services, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    client = context.client
    version = context.api_version
    if version >= 3:
        if not SOFTWARE.fullmatch(request.client_software_name) or not SOFTWARE.fullmatch(
            request.client_software_version
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        client.software_name = request.client_software_name
        client.software_version = request.client_software_version
    if version >= _NAMED_VERSION and _is_misrouted(broker, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    response = ApiVersionsResponse(api_keys=listed(client.served))
    _add_features(broker, response, version)
    if client.login is not None:
        client.login.listed()
    return response


def _is_misrouted(broker: Services, request: Any) -> bool:
    """Returns whether the client expects another cluster, or another node of this one."""
    if request.cluster_id is not None and request.cluster_id != broker.cluster_id:
        return True
    return request.node_id not in (-1, broker.node_id)


def _add_features(broker: Services, response: ApiVersionsResponse, version: int) -> None:
    for name, (lowest, highest) in sorted(SUPPORTED_FEATURES.items()):
        # Versions before 4 cannot contain a feature that can be off, as its range starts at 0.
        if lowest == 0 and version < _LEVEL_ZERO_VERSION:
            continue
        response.supported_features.append(SupportedFeatureKey(name=name, min_version=lowest, max_version=highest))
    image = broker.image
    response.finalized_features_epoch = image.offset
    # kraft.version is the quorum's own feature: it is in control records, not in the image.
    finalized = {**image.features.levels, KRAFT_VERSION: broker.quorum.kraft_version}
    for name in sorted(finalized):
        level = finalized[name]
        if level > 0:
            response.finalized_features.append(
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            )
