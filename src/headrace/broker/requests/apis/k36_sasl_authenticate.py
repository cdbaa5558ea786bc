"""SaslAuthenticate (36), versions 0-2: a token of the mechanism chosen by SaslHandshake. Source: KIP-152, KIP-368.

v1 the lifetime of the session. v2 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.security.sasl import READY_TEXT, SaslAnswer
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices

_LIFETIME_VERSION: Final = 1


@handles(ApiKey.SASL_AUTHENTICATE)
def handle(_broker: NodeServices, request: SaslAuthenticateRequest, context: RequestContext) -> Any:
    """Returns the server's next token, or the result of the login; answers a failure after a delay."""
    login = context.client.login
    if login is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=READY_TEXT)
    return login.authenticate(bytes(request.auth_bytes), partial(_response, context.api_version))


def _response(version: int, answer: SaslAnswer) -> SaslAuthenticateResponse | None:
    if answer.ends and answer.is_silent:
        return None
    response = SaslAuthenticateResponse(
        error_code=answer.error, error_message=answer.text or "", auth_bytes=answer.token
    )
    if version >= _LIFETIME_VERSION:
        response.session_lifetime_ms = answer.lifetime_ms
    return response
