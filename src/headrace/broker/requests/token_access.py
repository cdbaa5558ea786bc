"""Who may ask about delegation tokens: only who has logged in, and not with such a token; and the rules of a cluster.

Source: KIP-48.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.connection import Connection
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.forwarding import forward, is_token_authenticated
from headrace.config.security_table import PLAINTEXT
from headrace.controller.delegation_tokens import TokenRules

if TYPE_CHECKING:
    from typing import Any

    from headrace.broker.requests.services import NodeServices
    from headrace.config import BrokerConfig

ANONYMOUS: Final = "User:ANONYMOUS"
SECRET_KEY: Final = "delegation.token.secret.key"
ERROR_MS: Final = -1
"""What stands for a time where a client may not ask; where the controller refuses something it is 0, as in Kafka."""


def token_rules(config: BrokerConfig) -> TokenRules:
    """What the settings say of tokens."""
    return TokenRules(
        str(config[SECRET_KEY] or ""), config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms
    )


def may_ask(context: RequestContext) -> bool:
    """Whether a client may ask about tokens at all. What another broker has forwarded was asked over a connection of
    that broker's, which has looked at its protocol."""
    if is_token_authenticated(context):
        return False
    connection = context.connection
    if not isinstance(connection, Connection):
        return True
    protocol = connection.listener.endpoint.protocol
    return protocol != PLAINTEXT and not (protocol == "SSL" and context.principal == ANONYMOUS)


async def decided_elsewhere(broker: NodeServices, request: Any, context: RequestContext) -> Any:
    """The active controller's answer, where this node does not decide and its clients' requests are forwarded; or
    None: it is to be decided here, or refused."""
    if broker.quorum.decides or context.listener in broker.config.controller_listener_names:
        return None
    return await forward(broker, request, context)
