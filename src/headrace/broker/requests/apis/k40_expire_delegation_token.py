"""ExpireDelegationToken (40), versions 1-2: lets a token expire sooner, or at once. Source: KIP-48.

v2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.broker.requests.token_access import change_token
from headrace.controller.delegation_tokens import ExpireToken
from headrace.wire.apis import ApiKey
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
    """Returns the new time of expiry, which may be past."""
    return await change_token(
        broker, request, context, ExpireToken, request.expiry_time_period_ms, ExpireDelegationTokenResponse
    )
