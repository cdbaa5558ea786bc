"""RenewDelegationToken (39), versions 1-2: extends the life of a token, up to its maximum. Source: KIP-48.

v2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.broker.requests.token_access import change_token
from headrace.controller.delegation_tokens import RenewToken
from headrace.wire.apis import ApiKey
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
    """Returns the new time of expiry."""
    return await change_token(
        broker, request, context, RenewToken, request.renew_period_ms, RenewDelegationTokenResponse
    )
