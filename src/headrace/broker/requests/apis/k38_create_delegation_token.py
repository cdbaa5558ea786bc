"""CreateDelegationToken (38), versions 1-3: creates a token with which clients log in as its owner.

Source: KIP-48, KIP-373.
v2 flexible. v3 an owner other than the requester.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.pieces import listed
from headrace.broker.requests.registry import handles
from headrace.broker.requests.token_access import ERROR_MS, decided_elsewhere, may_ask, token_rules
from headrace.controller.delegation_tokens import USER_TYPE, CreateToken, TokenCreated, TokenWanted
from headrace.metadata.delegation_tokens import hmac_of
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices

_OWNER_VERSION = 3


@handles(ApiKey.CREATE_DELEGATION_TOKEN)
async def handle(
    broker: NodeServices, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Returns the token with its HMAC, which only clients that may describe the token can get again."""
    requester = context.principal
    owner = requester
    if context.api_version >= _OWNER_VERSION and request.owner_principal_name:
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    wanted = TokenWanted(
        owner,
        requester,
        await listed(broker, context, request.renewers, lambda each: f"{each.principal_type}:{each.principal_name}"),
        request.max_lifetime_ms,
    )
    refused = _refusal(wanted, context)
    if refused is not None:
        answer = _answer(wanted, TokenCreated(refused), "", context.api_version)
        answer.issue_timestamp_ms = answer.expiry_timestamp_ms = answer.max_timestamp_ms = ERROR_MS
        return answer
    forwarded = await decided_elsewhere(broker, request, context)
    if forwarded is not None:
        assert isinstance(forwarded, CreateDelegationTokenResponse)
        return forwarded
    rules = token_rules(broker.config)
    try:
        created = await broker.controller.ask(CreateToken(wanted, rules, broker.node.clock.now_ms()))
    except ControllerError as error:
        created = TokenCreated(error.code)
    if created.token is not None:
        broker.audit.token_altered("created", requester, context.client_host, created.token)
    return _answer(wanted, created, rules.secret_key, context.api_version)


def _refusal(wanted: TokenWanted, context: RequestContext) -> ErrorCode | None:
    if not may_ask(context):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if wanted.owner != wanted.requester and not context.authorize(
        Operation.CREATE_TOKENS, ResourceType.USER, wanted.owner
    ):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(not each.startswith(f"{USER_TYPE}:") for each in wanted.renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return None


def _answer(wanted: TokenWanted, created: TokenCreated, secret_key: str, version: int) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = wanted.owner.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=created.code, principal_type=owner_type, principal_name=owner_name
    )
    if version >= _OWNER_VERSION:
        kind, _, name = wanted.requester.partition(":")
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    token = created.token
    if token is not None:
        response.issue_timestamp_ms = token.issue_timestamp
        response.expiry_timestamp_ms = token.expiration_timestamp
        response.max_timestamp_ms = token.max_timestamp
        response.token_id = token.token_id
        response.hmac = hmac_of(secret_key, token.token_id)
    return response
