"""Authorization and rules of delegation tokens, and their renewal and expiry: only a client that has logged in, and not
with a token, may use the APIs.

Source: KIP-48.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.forwarding import forward
from headrace.config.security_table import PLAINTEXT
from headrace.controller.delegation_tokens import ExpireToken, RenewToken, TokenChanged, TokenRules
from headrace.security.authorizer import Operation, ResourceType
from headrace.security.login import ANONYMOUS
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from typing import Any

    from headrace.broker.requests.services import NodeServices
    from headrace.config import BrokerConfig
    from headrace.wire.messages.k39_renew_delegation_token import RenewDelegationTokenResponse
    from headrace.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenResponse
    from headrace.wire.messages.metadata_records import DelegationTokenRecord

Changed = TypeVar("Changed", "RenewDelegationTokenResponse", "ExpireDelegationTokenResponse")
SECRET_KEY: Final = "delegation.token.secret.key"
ERROR_MS: Final = -1
"""The time in the answer to a client that may not use the API; if the controller refuses it is 0, as in Kafka."""


def token_rules(config: BrokerConfig) -> TokenRules:
    """Returns the rules for tokens from the settings."""
    return TokenRules(
        str(config[SECRET_KEY] or ""),
        config.delegation_token_max_lifetime_ms,
        config.delegation_token_expiry_time_ms,
        config.delegation_token_max_per_owner,
    )


def may_ask(context: RequestContext) -> bool:
    """Returns whether a client may use the APIs of tokens at all. For a forwarded request the sending broker has
    checked the protocol of its client."""
    client = context.client
    if client.is_token:
        return False
    if client.is_forwarded:
        return True
    return client.protocol != PLAINTEXT and not (client.protocol == "SSL" and context.principal == ANONYMOUS)


async def decided_elsewhere(broker: NodeServices, request: Any, context: RequestContext) -> Any:
    """Returns the active controller's answer to a request that this node forwards; None if it is to be decided or
    refused here."""
    if broker.quorum.decides or context.listener in broker.config.controller_listener_names:
        return None
    with broker.long_answers.freed_later(context):
        return await forward(broker, request, context)


async def change_token(
    broker: NodeServices,
    request: Any,
    context: RequestContext,
    change: type[RenewToken | ExpireToken],
    period_ms: int,
    response: type[Changed],
) -> Changed:
    """Returns the answer to a request that renews or expires the token with its HMAC, by a `change` with
    `period_ms`."""
    if not may_ask(context):
        return _changed(response, TokenChanged(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ERROR_MS))
    answer = await decided_elsewhere(broker, request, context)
    if answer is not None:
        assert isinstance(answer, response)
        return answer
    rules, now_ms = token_rules(broker.config), broker.node.clock.now_ms()
    asked = change(bytes(request.hmac), context.principal, period_ms, rules, now_ms)
    try:
        changed = await broker.controller.ask(asked)
    except ControllerError as error:
        return _changed(response, TokenChanged(error.code))
    if changed.token is not None:
        _tell(broker, context, changed.code, "renewed" if change is RenewToken else "expired", changed.token)
    return _changed(response, changed)


def _tell(
    broker: NodeServices, context: RequestContext, code: ErrorCode, done: str, token: DelegationTokenRecord
) -> None:
    """Records in the audit log that a client changed a token, or was not allowed to: ACLs do not decide that."""
    audit, principal, host = broker.audit, context.principal, context.client_host
    if code:
        kind, name = ResourceType.DELEGATION_TOKEN, token.token_id
        audit.decided(principal, host, Operation.ALTER, kind, name, context.api_key, allowed=False)
    else:
        audit.token_altered(done, principal, host, token)


def _changed(response: type[Changed], changed: TokenChanged) -> Changed:
    return response(error_code=changed.code, expiry_timestamp_ms=changed.expires_ms)
