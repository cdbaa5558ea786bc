"""Delegation tokens are made, live longer, and end: the controller's decisions.

All times are ms since 1970. Source: KIP-48, KIP-373, KIP-900.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.controller.access import Access
from headrace.controller.context import ControllerContext
from headrace.machine import Decision
from headrace.metadata import levels
from headrace.metadata.delegation_tokens import PRINCIPALS_CHARACTERS_MAX, TOKENS_MAX, is_over, token_of
from headrace.metadata.image import ClusterImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord

TIME_MAX: Final = 2**63 - 1
USER_TYPE: Final = "User"
SWEPT_AT_ONCE: Final = 1000
"""Tokens that one sweep removes at most, as in Kafka."""


class TokenRules(NamedTuple):
    """How the cluster makes tokens: its secret key (empty: it has none), how long a token may live in all, how long
    until it has to be renewed, and how many an owner may have."""

    secret_key: str
    max_lifetime_ms: int
    renewal_ms: int
    max_per_owner: int

    def __repr__(self) -> str:
        return f"TokenRules({self.max_lifetime_ms}, {self.renewal_ms}, {self.max_per_owner})"


class TokenWanted(NamedTuple):
    """A token that somebody asks for: principals as `User:ann`. `max_lifetime_ms`: 0 or less is the cluster's."""

    owner: str
    requester: str
    renewers: Sequence[str]
    max_lifetime_ms: int


class TokenCreated(NamedTuple):
    """The outcome: an error, or what the metadata hold of the new token."""

    code: ErrorCode
    token: DelegationTokenRecord | None = None


class TokenChanged(NamedTuple):
    """The outcome of a renewal or an end: an error, or until when the token lasts. `token` is what the metadata hold
    now, or held of it last; of one that somebody else's is, too."""

    code: ErrorCode
    expires_ms: int = 0
    token: DelegationTokenRecord | None = None


@dataclass(frozen=True, slots=True)
class CreateToken:
    """A new delegation token. `now_ms` is in ms since 1970."""

    wanted: TokenWanted
    rules: TokenRules
    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[TokenCreated]:
        """Decides the request upon `image`."""
        return decide_create_token(image, self.wanted, self.rules, self.now_ms, context.new_id)


def decide_create_token(
    image: ClusterImage, wanted: TokenWanted, rules: TokenRules, now_ms: int, new_id: Callable[[], bytes]
) -> Decision[TokenCreated]:
    """A new token. One that is over, of the same owner, makes room for it where it has to."""
    refused = _unserved(image, rules)
    if refused is None and any(each.partition(":")[0] != USER_TYPE for each in wanted.renewers):
        refused = ErrorCode.INVALID_PRINCIPAL_TYPE
    characters = sum(map(len, (wanted.owner, wanted.requester, *wanted.renewers)))
    room = _room_for(image, wanted.owner, rules.max_per_owner, now_ms)
    if refused is None and (room is None or characters > PRINCIPALS_CHARACTERS_MAX):
        refused = ErrorCode.POLICY_VIOLATION
    if refused is not None or room is None:
        return Decision(TokenCreated(refused or ErrorCode.POLICY_VIOLATION), [])
    lifetime_ms = rules.max_lifetime_ms
    if wanted.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, wanted.max_lifetime_ms)
    last_ms = _sum(now_ms, lifetime_ms)
    token = DelegationTokenRecord(
        owner=wanted.owner,
        requester=wanted.requester,
        renewers=list(wanted.renewers),
        issue_timestamp=now_ms,
        max_timestamp=last_ms,
        expiration_timestamp=min(last_ms, _sum(now_ms, rules.renewal_ms)),
        token_id=_new_token_id(new_id),
    )
    return Decision(TokenCreated(ErrorCode.NONE, token), [*room, token])


def _room_for(
    image: ClusterImage, owner: str, max_per_owner: int, now_ms: int
) -> list[RemoveDelegationTokenRecord] | None:
    """What has to go so that the owner, and the cluster, has room for one more token; None: there is none.

    Each owner has a share, so that nobody takes all of what the cluster keeps. Expired tokens are removed only where
    they have to be: the sweep takes the others.
    """
    tokens = image.kept.delegation_tokens
    own = [token for token in tokens.values() if token.owner == owner]
    too_many = max(len(own) - max_per_owner, len(tokens) - TOKENS_MAX) + 1
    if too_many <= 0:
        return []
    over = sorted(token.token_id for token in own if is_over(token, now_ms))
    if len(over) < too_many or too_many > SWEPT_AT_ONCE:
        return None
    return [RemoveDelegationTokenRecord(token_id=token_id) for token_id in over[:too_many]]


def _new_token_id(new_id: Callable[[], bytes]) -> str:
    """A command would take one that begins with a hyphen for an option; Kafka makes none either."""
    while True:
        token_id = base64.urlsafe_b64encode(new_id()).rstrip(b"=").decode()
        if not token_id.startswith("-"):
            return token_id


@dataclass(frozen=True, slots=True)
class RenewToken:
    """The token with this HMAC lives longer. Times are in ms, `now_ms` since 1970."""

    hmac: bytes = field(repr=False)
    principal: str
    period_ms: int
    rules: TokenRules
    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[TokenChanged]:
        """Decides the request upon `image`."""
        return decide_renew_token(image, self.hmac, self.principal, self.period_ms, self.rules, self.now_ms)


def decide_renew_token(
    image: ClusterImage, hmac: bytes, principal: str, period_ms: int, rules: TokenRules, now_ms: int
) -> Decision[TokenChanged]:
    """A token lives longer: for the cluster's time, or a shorter one (`period_ms`; 0 or less: the cluster's)."""
    refused = _unserved(image, rules)
    if refused is not None:
        return _left(refused)
    token = token_of(image.kept.delegation_tokens, rules.secret_key, hmac)
    if token is None:
        return _left(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if is_over(token, now_ms):
        return _left(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not _may_renew(token, principal):
        return _left(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, token)
    period = min(rules.renewal_ms, period_ms) if period_ms > 0 else rules.renewal_ms
    return _lasts(token, min(token.max_timestamp, _sum(now_ms, period)))


@dataclass(frozen=True, slots=True)
class ExpireToken:
    """The token with this HMAC ends. Times are in ms, `now_ms` since 1970."""

    hmac: bytes = field(repr=False)
    principal: str
    period_ms: int
    rules: TokenRules
    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[TokenChanged]:
        """Decides the request upon `image`."""
        return decide_expire_token(image, self.hmac, self.principal, self.period_ms, self.rules, self.now_ms)


def decide_expire_token(
    image: ClusterImage, hmac: bytes, principal: str, period_ms: int, rules: TokenRules, now_ms: int
) -> Decision[TokenChanged]:
    """A token ends in `period_ms`, or now where that is less than 0."""
    refused = _unserved(image, rules)
    if refused is not None:
        return _left(refused)
    token = token_of(image.kept.delegation_tokens, rules.secret_key, hmac)
    if token is None:
        return _left(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not _may_renew(token, principal):
        return _left(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, token)
    if period_ms < 0:
        gone = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Decision(TokenChanged(ErrorCode.NONE, now_ms, _until(token, now_ms)), [gone])
    if is_over(token, now_ms):
        return _left(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _lasts(token, min(token.max_timestamp, _sum(now_ms, period_ms)))


@dataclass(frozen=True, slots=True)
class SweepTokens:
    """Tokens whose time is up go; the reply says whether more may be left. `now_ms` is in ms since 1970."""

    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[bool]:
        """Decides the request upon `image`."""
        return decide_sweep_tokens(image, self.now_ms)


def decide_sweep_tokens(image: ClusterImage, now_ms: int) -> Decision[bool]:
    """Tokens whose time is up go, so many at most; the reply says whether more may be left."""
    over = [token_id for token_id, token in image.kept.delegation_tokens.items() if is_over(token, now_ms)]
    gone = [RemoveDelegationTokenRecord(token_id=token_id) for token_id in sorted(over)[:SWEPT_AT_ONCE]]
    return Decision(len(over) > SWEPT_AT_ONCE, gone)


def _unserved(image: ClusterImage, rules: TokenRules) -> ErrorCode | None:
    if not rules.secret_key:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if not levels.supports_delegation_tokens(image.features.metadata_version):
        return ErrorCode.UNSUPPORTED_VERSION
    return None


def _may_renew(token: DelegationTokenRecord, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def _left(code: ErrorCode, token: DelegationTokenRecord | None = None) -> Decision[TokenChanged]:
    return Decision(TokenChanged(code, token=token), [])


def _lasts(token: DelegationTokenRecord, expires_ms: int) -> Decision[TokenChanged]:
    changed = _until(token, expires_ms)
    return Decision(TokenChanged(ErrorCode.NONE, expires_ms, changed), [changed])


def _until(token: DelegationTokenRecord, expires_ms: int) -> DelegationTokenRecord:
    """The token, with another end."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expires_ms,
        token_id=token.token_id,
    )


def _sum(now_ms: int, more_ms: int) -> int:
    """A time to come, within what a record can say."""
    return min(now_ms + more_ms, TIME_MAX)
