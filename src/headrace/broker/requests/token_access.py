"""Who may ask about delegation tokens: only who has logged in, and not with such a token; the rules of a cluster; and
how a token is renewed or ended.

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
"""The time in the answer to a client that may not ask; if the controller refuses it is 0, as in Kafka."""


def token_rules(config: BrokerConfig) -> TokenRules:
    """What the settings say of tokens."""
    return TokenRules(
        str(config[SECRET_KEY] or ""),
        config.delegation_token_max_lifetime_ms,
        config.delegation_token_expiry_time_ms,
        config.delegation_token_max_per_owner,
    )


def may_ask(context: RequestContext) -> bool:
    """Returns whether a client may ask about tokens at all. The broker that forwards a request has checked the protocol
    of its client."""
    client = context.client
    if client.is_token:
        return False
    if client.is_forwarded:
        return True
    return client.protocol != PLAINTEXT and not (client.protocol == "SSL" and context.principal == ANONYMOUS)


async def decided_elsewhere(broker: NodeServices, request: Any, context: RequestContext) -> Any:
    """The active controller's answer, where this node does not decide and its clients' requests are forwarded; or
    None: it is to be decided here, or refused."""
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
    """The answer to a request that renews or ends the token with its HMAC: `change` of it by `period_ms`."""
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
    """Records in the audit who has altered a token, and who was not allowed to: ACLs do not decide that."""
    audit, principal, host = broker.audit, context.principal, context.client_host
    if code:
        kind, name = ResourceType.DELEGATION_TOKEN, token.token_id
        audit.decided(principal, host, Operation.ALTER, kind, name, context.api_key, allowed=False)
    else:
        audit.token_altered(done, principal, host, token)


def _changed(response: type[Changed], changed: TokenChanged) -> Changed:
    return response(error_code=changed.code, expiry_timestamp_ms=changed.expires_ms)
