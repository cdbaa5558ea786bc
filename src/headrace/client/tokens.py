"""Delegation tokens of a cluster: made, listed, renewed, ended.

Functions over a `Client`, one a task. Every broker answers them and has the controller decide. Principals are
`User:ann`, times ms since 1970. Source: KIP-48, KIP-373 (tokens for others).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headrace.client.conversation import Steps
from headrace.client.errors import BrokerError, ClientError, TimedOutError
from headrace.client.operations import operation
from headrace.client.routing import Router
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

VISIBLE_PATIENCE_S: Final = 10.0
"""How long `create_token` and `expire_token` wait until the brokers tell of it."""
OWNER_VERSION: Final = 3
"""From this version of the requests on a token may be made for somebody else."""
AT_ONCE_MS: Final = -1
"""In `expire_token`: the token ends now."""
CLUSTERS_TIME_MS: Final = -1
"""In `create_token` and `renew_token`: as long as the cluster allows."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its id and `hmac` are the user and, in base64, the password of a login by SCRAM. It ends at
    `expires_ms` unless it is renewed, and at `last_ms` in any case. `repr` shows no HMAC."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    last_ms: int
    hmac: bytes = field(repr=False)


@operation
def create_token(
    router: Router, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = CLUSTERS_TIME_MS
) -> Steps[Token]:
    """Make a token of the user who asks, or of `owner`. Comes back once brokers tell of it.

    Raises `BrokerError`: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED where who asks has logged in by a token or not at all,
    DELEGATION_TOKEN_AUTHORIZATION_FAILED where he may not make tokens of that owner.
    """
    from headrace.wire.messages import k38_create_delegation_token as k38

    kind, name = (None, None) if owner is None else _parts(owner)
    if not (yield from _names_owners(router)):
        if owner is not None:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"a token of {owner}", "the brokers know no such tokens")
        kind = name = ""
    listed = tuple(renewers)
    made = yield from router.checked(
        k38.CreateDelegationTokenRequest(
            kind, name, [k38.CreatableRenewers(*_parts(each)) for each in listed], max_lifetime_ms
        ),
        k38.CreateDelegationTokenResponse,
        lambda r: (r.error_code, None),
        "a token" if owner is None else f"a token of {owner}",
    )
    whose = f"{made.principal_type}:{made.principal_name}"
    token = Token(
        made.token_id,
        whose,
        _requester(made.token_requester_principal_type, made.token_requester_principal_name, whose),
        listed,
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
        bytes(made.hmac),
    )
    yield from _wait_until_listed(router, token, is_there=True)
    return token


@operation
def list_tokens(router: Router, owners: Iterable[str] | None = None) -> Steps[list[Token]]:
    """List the tokens that this principal may see, sorted by owner and age: all, or those that one of `owners` owns,
    has requested, or may renew. Raises `BrokerError`.
    """
    from headrace.wire.messages import k41_describe_delegation_token as k41

    wanted = None
    if owners is not None:
        wanted = [k41.DescribeDelegationTokenOwner(*_parts(each)) for each in dict.fromkeys(owners)]
    response = yield from router.checked(
        k41.DescribeDelegationTokenRequest(wanted),
        k41.DescribeDelegationTokenResponse,
        lambda r: (r.error_code, None),
        "tokens",
    )
    found = []
    for each in response.tokens:
        owner = f"{each.principal_type}:{each.principal_name}"
        found.append(
            Token(
                each.token_id,
                owner,
                _requester(each.token_requester_principal_type, each.token_requester_principal_name, owner),
                tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in each.renewers),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
                bytes(each.hmac),
            )
        )
    return sorted(found, key=lambda token: (token.owner, token.issued_ms, token.token_id))


@operation
def renew_token(router: Router, token: Token, period_ms: int = CLUSTERS_TIME_MS) -> Steps[int]:
    """Let a token last for `period_ms` from now; returns until when it does, as the cluster may allow less.

    Raises `BrokerError`: DELEGATION_TOKEN_OWNER_MISMATCH for all but its owner and its renewers.
    """
    from headrace.wire.messages import k39_renew_delegation_token as k39

    renewed = yield from router.checked(
        k39.RenewDelegationTokenRequest(token.hmac, period_ms),
        k39.RenewDelegationTokenResponse,
        lambda r: (r.error_code, None),
        f"token {token.token_id}",
    )
    return renewed.expiry_timestamp_ms


@operation
def expire_token(router: Router, token: Token, period_ms: int = AT_ONCE_MS) -> Steps[int]:
    """Let a token expire in `period_ms`, or now; returns when it does.

    If it expires now, waits until no broker lists it any longer. Raises `BrokerError` as `renew_token` does.
    """
    from headrace.wire.messages import k40_expire_delegation_token as k40

    response = yield from router.checked(
        k40.ExpireDelegationTokenRequest(token.hmac, period_ms),
        k40.ExpireDelegationTokenResponse,
        lambda r: (r.error_code, None),
        f"token {token.token_id}",
    )
    if period_ms < 0:
        yield from _wait_until_listed(router, token, is_there=False)
    return response.expiry_timestamp_ms


def _wait_until_listed(router: Router, token: Token, *, is_there: bool) -> Steps[None]:
    """Waits until the brokers have applied the controller's decision.

    The decision holds in any case, and the creator of a token must get it, so a timeout raises nothing.
    """
    retry = router.retry(min(router.timeout_s, VISIBLE_PATIENCE_S))
    try:
        while True:
            listed = yield from list_tokens.steps(router, [token.owner])
            if (token.token_id in {each.token_id for each in listed}) is is_there:
                return
            yield from retry.pause(TimedOutError(f"token {token.token_id} is not known to brokers yet"))
    except ClientError:
        return


def _names_owners(router: Router) -> Steps[bool]:
    return (yield from router.supports(ApiKey.CREATE_DELEGATION_TOKEN, OWNER_VERSION))


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _requester(kind: str, name: str, owner: str) -> str:
    """Brokers without tokens for others do not say who asked: it was the owner."""
    return f"{kind}:{name}" if kind else owner
