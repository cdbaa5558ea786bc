"""What becomes of delegation tokens; Kafka is asked the same in tests/compat/kafka_says/test_delegation_tokens.py."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.delegation_tokens import (
    SWEPT_AT_ONCE,
    TIME_MAX,
    TokenRules,
    TokenWanted,
    decide_create_token,
    decide_expire_token,
    decide_renew_token,
    decide_sweep_tokens,
)
from headrace.metadata import bootstrap
from headrace.metadata.delegation_tokens import TOKENS_MAX, hmac_of, is_over
from headrace.metadata.image import ClusterImage
from headrace.metadata.replay import Replay
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord

RULES = TokenRules("secret", 1000, 100, 3)
NOW = 50_000


def token(token_id: str = "id", **fields: Any) -> DelegationTokenRecord:
    given = {"issue_timestamp": NOW, "max_timestamp": NOW + 1000, "expiration_timestamp": NOW + 100, **fields}
    return DelegationTokenRecord(
        owner="User:ann", requester="User:ann", renewers=["User:bob"], token_id=token_id, **given
    )


def of(owner: str, token_id: str, **fields: Any) -> DelegationTokenRecord:
    made = token(token_id, **fields)
    made.owner = owner
    return made


def image_with(*records: Any, level: int = 30) -> ClusterImage:
    replay = Replay(ClusterImage(cluster_id="test"))
    for record in (*bootstrap.bootstrap_records(bootstrap.default_levels(level)), *records):
        replay.apply(record)
    replay.advance(offset=9, epoch=1, timestamp_ms=0)
    return replay.finish()


def wanted(lifetime_ms: int = -1, renewers: tuple[str, ...] = ()) -> TokenWanted:
    return TokenWanted("User:ann", "User:cy", renewers, lifetime_ms)


def created(image: ClusterImage, asked: TokenWanted, rules: TokenRules = RULES) -> tuple[ErrorCode, list[Any]]:
    decided = decide_create_token(image, asked, rules, NOW, lambda: bytes(16))
    return decided.reply.code, list(decided.records)


def test_a_token_is_made() -> None:
    code, (record,) = created(image_with(), wanted(renewers=("User:bob",)))
    assert code == ErrorCode.NONE
    assert (record.owner, record.requester, record.renewers) == ("User:ann", "User:cy", ["User:bob"])
    assert (record.issue_timestamp, record.max_timestamp, record.expiration_timestamp) == (NOW, NOW + 1000, NOW + 100)
    assert record.token_id == "A" * 22


def test_no_id_begins_with_a_hyphen() -> None:
    drawn = iter([b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\xfc" + bytes(15)])
    decided = decide_create_token(image_with(), wanted(), RULES, NOW, lambda: next(drawn))
    assert decided.reply.token is not None and decided.reply.token.token_id == "_" + "A" * 21


def test_what_is_refused() -> None:
    assert created(image_with(), wanted(), TokenRules("", 1000, 100, 3)) == (
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        [],
    )
    assert created(image_with(level=13), wanted()) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert created(image_with(level=14), wanted())[0] == ErrorCode.NONE
    assert created(image_with(), wanted(renewers=("Group:x",))) == (ErrorCode.INVALID_PRINCIPAL_TYPE, [])
    full = image_with(*(of("User:bob", f"id-{n}") for n in range(TOKENS_MAX)))
    assert created(full, wanted()) == (ErrorCode.POLICY_VIOLATION, [])
    many = tuple(f"User:{n:04}" for n in range(1000))
    assert created(image_with(), wanted(renewers=many)) == (ErrorCode.POLICY_VIOLATION, [])
    assert created(image_with(), wanted(renewers=many[:900]))[0] == ErrorCode.NONE
    assert "secret" not in repr(RULES)


@given(st.integers(-(2**63), TIME_MAX), st.integers(1, TIME_MAX), st.integers(1, TIME_MAX))
def test_no_time_is_beyond_what_the_cluster_allows(asked_ms: int, longest_ms: int, renewal_ms: int) -> None:
    rules = TokenRules("secret", longest_ms, renewal_ms, 3)
    _, (record,) = created(image_with(), wanted(asked_ms), rules)
    assert NOW <= record.expiration_timestamp <= record.max_timestamp <= min(NOW + longest_ms, TIME_MAX)
    image = image_with(record)
    hmac = hmac_of("secret", record.token_id)
    for decide in (decide_renew_token, decide_expire_token):
        decided = decide(image, hmac, "User:ann", asked_ms, rules, NOW)
        for changed in decided.records:
            if isinstance(changed, DelegationTokenRecord):
                assert decided.reply.expires_ms == changed.expiration_timestamp <= record.max_timestamp
                assert changed.max_timestamp == record.max_timestamp
                changed.expiration_timestamp = record.expiration_timestamp
                assert changed == record


def test_renewal_and_end() -> None:
    image = image_with(token())
    hmac = hmac_of("secret", "id")

    def renewed(principal: str = "User:ann", period_ms: int = -1, now: int = NOW + 50, given: bytes = hmac) -> Any:
        decided = decide_renew_token(image, given, principal, period_ms, RULES, now)
        assert len(decided.records) == (0 if decided.reply.code else 1)
        return decided.reply[:2]

    def ended(principal: str = "User:ann", period_ms: int = -1, now: int = NOW + 50, given: bytes = hmac) -> Any:
        decided = decide_expire_token(image, given, principal, period_ms, RULES, now)
        assert len(decided.records) == (0 if decided.reply.code else 1)
        return decided.reply[:2]

    assert renewed() == (0, NOW + 150) == renewed("User:bob", 5000)
    assert renewed(period_ms=10) == (0, NOW + 60)
    assert ended(period_ms=10) == (0, NOW + 60) and ended(period_ms=TIME_MAX) == (0, NOW + 1000)
    assert ended() == (0, NOW + 50) == ended("User:bob")
    for decide in (renewed, ended):
        assert decide("User:cy") == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        assert decide(given=b"x" * 64) == decide(given=b"") == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert renewed("User:cy", now=NOW + 101)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert ended(period_ms=0, now=NOW + 101)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert ended("User:cy", period_ms=0, now=NOW + 101)[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert ended(now=NOW + 101)[0] == 0
    gone = decide_expire_token(image, hmac, "User:ann", -1, RULES, NOW).records
    assert list(gone) == [RemoveDelegationTokenRecord(token_id="id")]


def test_which_token_it_was_is_told() -> None:
    """Of one that is somebody else's, too: the audit names it."""
    image, hmac = image_with(token()), hmac_of("secret", "id")
    for decide in (decide_renew_token, decide_expire_token):
        for principal in ("User:ann", "User:cy"):
            told = decide(image, hmac, principal, 10, RULES, NOW).reply.token
            assert told is not None and (told.token_id, told.owner) == ("id", "User:ann")
        assert decide(image, b"x", "User:ann", 10, RULES, NOW).reply.token is None


def test_an_owner_has_a_share() -> None:
    """RULES: three tokens each."""
    two = [token("a"), token("b"), *(of("User:bob", f"bob-{n}") for n in range(3))]
    code, (made,) = created(image_with(*two), wanted())
    assert code == ErrorCode.NONE
    assert created(image_with(*two, made), wanted()) == (ErrorCode.POLICY_VIOLATION, [])
    others = TokenWanted("User:cy", "User:ann", (), -1)
    assert created(image_with(*two, made), others)[0] == ErrorCode.NONE
    # what somebody asks for another counts for the owner
    for_bob = TokenWanted("User:bob", "User:ann", (), -1)
    assert created(image_with(*two), for_bob) == (ErrorCode.POLICY_VIOLATION, [])


def test_a_token_that_is_over_makes_room() -> None:
    over = {"expiration_timestamp": NOW - 1}
    held = [token("a", **over), token("b"), token("c", **over), of("User:bob", "d", **over)]
    code, records = created(image_with(*held), wanted())
    assert code == ErrorCode.NONE and records[0] == RemoveDelegationTokenRecord(token_id="a") and len(records) == 2
    left = image_with(*held, *records).kept.delegation_tokens
    assert sorted(left) == sorted(["b", "c", "d", records[1].token_id])
    # there is room: the sweep takes what is over
    assert len(created(image_with(token("a", **over)), wanted())[1]) == 1
    # a share that was made smaller
    more = [token(f"over-{n}", **over) for n in range(5)]
    code, records = created(image_with(*more), wanted())
    assert code == ErrorCode.NONE and len(records) == 4
    full = [of("User:bob", f"id-{n}") for n in range(TOKENS_MAX - 1)]
    assert created(image_with(*full, token("a", **over)), wanted())[0] == ErrorCode.NONE
    assert created(image_with(*full, of("User:bob", "b", **over)), wanted()) == (ErrorCode.POLICY_VIOLATION, [])


def test_a_token_of_another_key_is_none() -> None:
    decided = decide_renew_token(image_with(token()), hmac_of("another", "id"), "User:ann", -1, RULES, NOW)
    assert decided.reply.code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_sweep() -> None:
    assert not is_over(token(), NOW + 100) and is_over(token(), NOW + 101)
    assert is_over(token(max_timestamp=NOW - 1), NOW)
    many = [token(f"over-{n:05}", expiration_timestamp=NOW - 1) for n in range(SWEPT_AT_ONCE + 1)]
    image = image_with(token("kept"), *many)
    decided = decide_sweep_tokens(image, NOW)
    assert decided.reply and len(decided.records) == SWEPT_AT_ONCE
    left = image_with(token("kept"), *many, *decided.records)
    again = decide_sweep_tokens(left, NOW)
    assert not again.reply and len(again.records) == 1
