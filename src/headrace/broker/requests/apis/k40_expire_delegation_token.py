"""ExpireDelegationToken (40), versions 1-2: a token ends sooner, or at once. Source: KIP-48.

v2 flexible.
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.registry import handles
from headrace.broker.requests.token_access import ERROR_MS, decided_elsewhere, may_ask, token_rules
from headrace.controller.delegation_tokens import TokenChanged
from headrace.controller.requests import ExpireToken
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN)
async def handle(
    broker: NodeServices, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """When it ends, or has ended."""
    if not may_ask(context):
        return _answer(TokenChanged(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ERROR_MS))
    answer = await decided_elsewhere(broker, request, context)
    if answer is not None:
        assert isinstance(answer, ExpireDelegationTokenResponse)
        return answer
    rules, now_ms = token_rules(broker.config), broker.node.clock.now_ms()
    asked = ExpireToken(bytes(request.hmac), context.principal, request.expiry_time_period_ms, rules, now_ms)
    try:
        return _answer(await broker.controller.ask(asked))
    except ControllerError as error:
        return _answer(TokenChanged(error.code))


def _answer(changed: TokenChanged) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=changed.code, expiry_timestamp_ms=changed.expires_ms)
