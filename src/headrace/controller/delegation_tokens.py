"""Creates, renews and expires delegation tokens.

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
"""The limit of tokens that one sweep removes, as in Kafka."""


class TokenRules(NamedTuple):
    """The settings of tokens: the cluster's secret key (empty if there is none), the maximum lifetime, the renewal
    interval, and the number of tokens that an owner may have."""

    secret_key: str
    max_lifetime_ms: int
    renewal_ms: int
    max_per_owner: int

    def __repr__(self) -> str:
        return f"TokenRules({self.max_lifetime_ms}, {self.renewal_ms}, {self.max_per_owner})"


class TokenWanted(NamedTuple):
    """The parameters of a new token: principals as `User:ann`. `max_lifetime_ms`: 0 or less means the cluster's
    limit."""

    owner: str
    requester: str
    renewers: Sequence[str]
    max_lifetime_ms: int


class TokenCreated(NamedTuple):
    """The result: an error, or the metadata record of the new token."""

    code: ErrorCode
    token: DelegationTokenRecord | None = None


class TokenChanged(NamedTuple):
    """The result of a renewal or an expiry: an error, or the token's expiry time. `token` is the current or last
    metadata record, even if the token belongs to another owner."""

    code: ErrorCode
    expires_ms: int = 0
    token: DelegationTokenRecord | None = None


@dataclass(frozen=True, slots=True)
class CreateToken:
    """Creates a delegation token. `now_ms` is in ms since 1970."""

    wanted: TokenWanted
    rules: TokenRules
    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[TokenCreated]:
        """Decides the request upon `image`."""
        return decide_create_token(image, self.wanted, self.rules, self.now_ms, context.new_id)


def decide_create_token(
    image: ClusterImage, wanted: TokenWanted, rules: TokenRules, now_ms: int, new_id: Callable[[], bytes]
) -> Decision[TokenCreated]:
    """Creates a token. If necessary, expired tokens of the same owner are removed to make room."""
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
    """Returns the removals that make room for one more token of the owner and the cluster; None if there is no room.

    Each owner has a share, so that no owner uses up the cluster's limit. Only as many expired tokens are removed as
    necessary: the sweep removes the others.
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
    """Draws a token id that does not begin with a hyphen, which commands would take for an option; Kafka draws none
    either."""
    while True:
        token_id = base64.urlsafe_b64encode(new_id()).rstrip(b"=").decode()
        if not token_id.startswith("-"):
            return token_id


@dataclass(frozen=True, slots=True)
class RenewToken:
    """Prolongs the token with this HMAC. Times are in ms, `now_ms` since 1970."""

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
    """Prolongs a token by `period_ms`, at most by the cluster's interval (0 or less: by that interval)."""
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
    """Ends the token with this HMAC. Times are in ms, `now_ms` since 1970."""

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
    """Sets a token to expire in `period_ms`; ends it at once if that is negative."""
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
    """Removes expired tokens; the reply is whether more may be left. `now_ms` is in ms since 1970."""

    now_ms: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[bool]:
        """Decides the request upon `image`."""
        return decide_sweep_tokens(image, self.now_ms)


def decide_sweep_tokens(image: ClusterImage, now_ms: int) -> Decision[bool]:
    """Removes a limited number of expired tokens; replies whether more may be left."""
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
    """Returns the token with another expiry time."""
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
    """Returns a future time, limited to what a record can hold."""
    return min(now_ms + more_ms, TIME_MAX)
