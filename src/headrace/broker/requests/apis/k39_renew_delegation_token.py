"""RenewDelegationToken (39), versions 1-2: a token lives longer, for as long as it may in all. Source: KIP-48.

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
from headrace.controller.requests import RenewToken
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.RENEW_DELEGATION_TOKEN)
async def handle(
    broker: NodeServices, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Until when it lives now."""
    if not may_ask(context):
        return _answer(TokenChanged(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ERROR_MS))
    answer = await decided_elsewhere(broker, request, context)
    if answer is not None:
        assert isinstance(answer, RenewDelegationTokenResponse)
        return answer
    rules, now_ms = token_rules(broker.config), broker.node.clock.now_ms()
    asked = RenewToken(bytes(request.hmac), context.principal, request.renew_period_ms, rules, now_ms)
    try:
        return _answer(await broker.controller.ask(asked))
    except ControllerError as error:
        return _answer(TokenChanged(error.code))


def _answer(changed: TokenChanged) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=changed.code, expiry_timestamp_ms=changed.expires_ms)
