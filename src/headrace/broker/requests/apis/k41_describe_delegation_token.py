"""DescribeDelegationToken (41), versions 1-3: the tokens that the client may see, with their HMACs.

Every client sees tokens that it owns, requested, or may renew; others with a permission on the token or on its owner's
tokens. Source: KIP-48, KIP-373.
v2 flexible. v3 the requester of the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.broker.requests.token_access import may_ask, token_rules
from headrace.metadata.delegation_tokens import hmac_of
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k41_describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices

_REQUESTER_VERSION = 3


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN)
def handle(broker: NodeServices, request: DescribeDelegationTokenRequest, context: RequestContext) -> Any:
    """Returns the tokens that the named principals own, requested or may renew, or all tokens (None)."""
    return in_pieces(broker, context, _found(broker, request, context))


def _found(
    broker: NodeServices, request: DescribeDelegationTokenRequest, context: RequestContext
) -> Steps[DescribeDelegationTokenResponse]:
    if not may_ask(context):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret_key = token_rules(broker.config).secret_key
    if not secret_key:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners: set[str] | None = None
    if request.owners is not None:
        owners = set()
        for each in request.owners:
            owners.add(f"{each.principal_type}:{each.principal_name}")
            yield 1
    tokens = broker.image.kept.delegation_tokens
    response = DescribeDelegationTokenResponse()
    for token_id in sorted(tokens):
        yield 1
        token = tokens[token_id]
        if (owners is None or not owners.isdisjoint(_whose(token))) and _may_see(token, context):
            response.tokens.append(_described(token, secret_key, context.api_version))
    return response


def _whose(token: Any) -> tuple[str, ...]:
    return (token.owner, token.requester, *token.renewers)


def _may_see(token: Any, context: RequestContext) -> bool:
    return (
        context.principal in _whose(token)
        or context.may(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.may(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(token: Any, secret_key: str, version: int) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    described = DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac_of(secret_key, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(kind, name)
            for kind, _, name in (each.partition(":") for each in token.renewers)
        ],
    )
    if version >= _REQUESTER_VERSION:
        kind, _, name = token.requester.partition(":")
        described.token_requester_principal_type, described.token_requester_principal_name = kind, name
    return described
