"""SaslHandshake (17), versions 0-1: the client chooses the mechanism of its login. Source: KIP-43, KIP-152.

v1 the mechanism's tokens follow in SaslAuthenticate requests; after v0 they follow without a request header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.SASL_HANDSHAKE)
def handle(_broker: NodeServices, request: SaslHandshakeRequest, context: RequestContext) -> Any:
    """Returns the enabled mechanisms; a client that has logged in, or need not, gets ILLEGAL_SASL_STATE."""
    login = context.client.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    answer = login.handshake(request.mechanism, context.api_version)
    response = SaslHandshakeResponse(error_code=answer.error, mechanisms=list(answer.mechanisms))
    return login.settle(answer, response)
