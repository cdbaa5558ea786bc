"""Delegation tokens: who gets them, who logs in with them, and when they end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from broker.raw import Raw
from broker.sasl import FIXED_TEXT, add_users, open_port
from broker.tokens import (
    MAX_MS,
    RENEWAL_MS,
    SECRET,
    SETTINGS,
    create,
    describe,
    enter,
    enter_with,
    expire,
    login_with,
    renew,
)

from headrace.security.authorizer import UNCACHED, OpenAuthorizer, Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker(SETTINGS) as running:
        yield running


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_in_each_version(served: TestBroker, version: int) -> None:
    with enter(served.port, "ann") as raw:
        made = create(raw, "User:bob", version=version)
        now = time.time() * 1000
        assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "ann")
        assert len(made.hmac) == 64 and len(made.token_id) == 22
        assert abs(made.issue_timestamp_ms - now) < 5000
        assert made.max_timestamp_ms - made.issue_timestamp_ms == MAX_MS
        assert made.expiry_timestamp_ms - made.issue_timestamp_ms == RENEWAL_MS
        assert version < 3 or (made.token_requester_principal_type, made.token_requester_principal_name) == (
            "User",
            "ann",
        )
        token = next(each for each in describe(raw, version=version).tokens if each.token_id == made.token_id)
        assert (token.principal_name, bytes(token.hmac)) == ("ann", bytes(made.hmac))
        assert [(each.principal_type, each.principal_name) for each in token.renewers] == [("User", "bob")]
        assert (token.expiry_timestamp, token.max_timestamp) == (made.expiry_timestamp_ms, made.max_timestamp_ms)
        assert expire(raw, made.hmac, version=min(version, 2)).error_code == 0


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_has_a_token_is_its_owner_until_it_ends(served: TestBroker, mechanism: str) -> None:
    with enter(served.port, "ann") as raw:
        made = create(raw, lifetime_ms=60_000)
    with Raw(served.port) as raw:
        answer = login_with(raw, made.token_id, made.hmac, mechanism)
        assert answer.error_code == 0 and 55_000 < answer.session_lifetime_ms <= 60_000
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers
        named = served.call(lambda inside: [each.client.principal for each in inside.server.connections])
        assert "User:ann" in named


def test_who_logs_in_with_a_token_gets_no_other_and_sees_none(served: TestBroker) -> None:
    with enter(served.port, "ann") as raw:
        made = create(raw, "User:ann")
    with enter_with(served.port, made) as raw:
        assert create(raw).error_code == NOT_ALLOWED
        assert renew(raw, made.hmac).error_code == NOT_ALLOWED
        assert expire(raw, made.hmac).error_code == NOT_ALLOWED
        assert (describe(raw).error_code, describe(raw).tokens) == (NOT_ALLOWED, [])


def test_nobody_gets_a_token_without_a_login(served: TestBroker) -> None:
    with Raw(open_port(served)) as raw:
        for answer in (create(raw), renew(raw, b"x"), expire(raw, b"x"), describe(raw)):
            assert answer.error_code == NOT_ALLOWED


def test_wrong_logins_look_alike(served: TestBroker) -> None:
    add_users(served, dora="pencil")
    with enter(served.port, "ann") as raw:
        made = create(raw)
        over = create(raw, lifetime_ms=1)
    time.sleep(0.01)
    answers = []
    for token_id, hmac, is_token in [
        (made.token_id, b"x" * 64, True),
        (made.token_id, bytes(made.hmac), False),
        (over.token_id, bytes(over.hmac), True),
        ("A" * 22, b"x" * 64, True),
        ("dora", b"pencil", True),
    ]:
        with Raw(served.port) as raw:
            answers.append(login_with(raw, token_id, hmac, is_token=is_token))
            assert raw.is_closed()
    for answer in answers:
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == FIXED_TEXT.format("SCRAM-SHA-256")


def test_a_session_ends_with_its_token(served: TestBroker) -> None:
    with enter(served.port, "ann") as raw:
        made = create(raw, lifetime_ms=1500)
    with enter_with(served.port, made) as raw:
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers
        time.sleep(1.6)
        raw.send(MetadataRequest(topics=[]), 9)
        assert raw.is_closed()


def test_lifetimes(served: TestBroker) -> None:
    with enter(served.port, "ann") as raw:
        short = create(raw, lifetime_ms=5000)
        assert short.max_timestamp_ms == short.expiry_timestamp_ms == short.issue_timestamp_ms + 5000
        assert renew(raw, short.hmac).expiry_timestamp_ms == short.max_timestamp_ms
        long = create(raw, lifetime_ms=2 * MAX_MS)
        assert long.max_timestamp_ms == long.issue_timestamp_ms + MAX_MS
        sooner = renew(raw, long.hmac, 60_000)
        assert 0 < sooner.expiry_timestamp_ms - long.issue_timestamp_ms < 70_000
        assert renew(raw, long.hmac, 10 * MAX_MS).expiry_timestamp_ms <= long.issue_timestamp_ms + RENEWAL_MS + 5000
        ends = expire(raw, long.hmac, 10 * MAX_MS)
        assert ends.expiry_timestamp_ms == long.max_timestamp_ms
        assert expire(raw, long.hmac, 2**63 - 1).expiry_timestamp_ms == long.max_timestamp_ms
        gone = expire(raw, long.hmac, -1)
        assert gone.error_code == 0 and abs(gone.expiry_timestamp_ms - time.time() * 1000) < 5000
        missing = expire(raw, long.hmac, -1)
        assert missing.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with Raw(served.port) as raw:
        assert login_with(raw, long.token_id, long.hmac).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_whose_token_it_is(served: TestBroker) -> None:
    with enter(served.port, "ann") as ann, enter(served.port, "bob") as bob, enter(served.port, "cy") as cy:
        made = create(ann, "User:bob")
        assert renew(bob, made.hmac).error_code == 0
        assert renew(cy, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert expire(cy, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert renew(ann, b"x" * 64).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert create(ann, "Group:admins").error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        ended = expire(ann, made.hmac, 0)
        assert ended.error_code == 0
        time.sleep(0.01)
        assert renew(ann, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert expire(ann, made.hmac, 1000).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert expire(bob, made.hmac, -1).error_code == 0


class Ruling(OpenAuthorizer):
    """Allows what it was told, about users and tokens, and all else."""

    generation = UNCACHED

    def __init__(self, *allowed: tuple[Operation, ResourceType, str]) -> None:
        self._allowed = allowed

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        if resource not in (ResourceType.USER, ResourceType.DELEGATION_TOKEN):
            return True
        return (operation, resource, name) in self._allowed


def test_tokens_of_others_by_right_alone(served: TestBroker) -> None:
    def rule(authorizer: OpenAuthorizer) -> None:
        served.call(lambda inside: setattr(inside, "authorizer", authorizer))

    def seen(raw: Raw, *owners: str) -> set[str]:
        return {each.token_id for each in describe(raw, *owners).tokens}

    with enter(served.port, "ann") as ann, enter(served.port, "bob") as bob, enter(served.port, "cy") as cy:
        rule(Ruling())
        try:
            refused = create(bob, owner="User:ann")
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            rule(Ruling((Operation.CREATE_TOKENS, ResourceType.USER, "User:ann")))
            made = create(bob, owner="User:ann")
            assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "ann", "bob")
            assert made.token_id in seen(ann) & seen(bob) & seen(bob, "User:ann", "User:zoe") & seen(bob, "User:bob")
            assert made.token_id not in seen(cy) | seen(bob, "User:cy")
            assert renew(bob, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            rule(Ruling((Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, made.token_id)))
            assert seen(cy) == {made.token_id}
            rule(Ruling((Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:ann")))
            assert made.token_id in seen(cy)
        finally:
            rule(OpenAuthorizer())
        with enter_with(served.port, made):
            named = served.call(lambda inside: [each.client.principal for each in inside.server.connections])
            assert named.count("User:ann") == 2


def test_without_a_secret_key_there_are_no_tokens() -> None:
    settings = {name: text for name, text in SETTINGS.items() if name != "delegation.token.secret.key"}
    with running_broker(settings) as broker, enter(broker.port, "ann") as raw:
        assert {38, 39, 40, 41} <= {each.api_key for each in raw.ask(ApiVersionsRequest("t", "1"), 3).api_keys}
        for answer in (create(raw), renew(raw, b"x"), expire(raw, b"x"), describe(raw)):
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        with Raw(broker.port) as other:
            assert login_with(other, "A" * 22, b"x").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_the_controller_removes_tokens_whose_time_is_up() -> None:
    with running_broker({**SETTINGS, "delegation.token.expiry.check.interval.ms": "100"}) as broker:
        with enter(broker.port, "ann") as raw:
            kept = create(raw)
            for _ in range(3):
                assert create(raw, lifetime_ms=200).error_code == 0

        def ids() -> list[str]:
            return broker.call(lambda inside: list(inside.image.kept.delegation_tokens))

        assert len(ids()) > 1
        deadline = time.monotonic() + PATIENCE_S
        while ids() != [kept.token_id]:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_tokens_outlive_a_restart(tmp_path: Any) -> None:
    with running_broker(SETTINGS, data=tmp_path) as broker, enter(broker.port, "ann") as raw:
        made = create(raw)
    with running_broker(SETTINGS, data=tmp_path) as broker, enter_with(broker.port, made) as raw:
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers
    other = {**SETTINGS, "delegation.token.secret.key": "another"}
    with running_broker(other, data=tmp_path) as broker, Raw(broker.port) as raw:
        assert login_with(raw, made.token_id, made.hmac).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_the_secret_is_not_told(served: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "headrace"), enter(served.port, "ann") as raw:
        made = create(raw)
        asked = DescribeConfigsResource(4, "1", None)
        configs = raw.ask(DescribeConfigsRequest([asked]), 4).results[0].configs
        said = next(each for each in configs if each.name == "delegation.token.secret.key")
        assert (said.value, said.is_sensitive) == (None, True)
        renew(raw, made.hmac)
    assert SECRET not in caplog.text and bytes(made.hmac).hex() not in caplog.text


def test_a_token_is_no_way_to_be_somebody_else_again(served: TestBroker) -> None:
    """A session of a token goes on with the same owner's next token alone."""
    with enter(served.port, "ann") as raw:
        first, second = create(raw, lifetime_ms=60_000), create(raw, lifetime_ms=120_000)
    with enter(served.port, "bob") as raw:
        other = create(raw)
    with enter_with(served.port, first) as raw:
        answer = login_with(raw, second.token_id, second.hmac)
        assert answer.error_code == 0 and answer.session_lifetime_ms > 60_000
    with enter_with(served.port, first) as raw:
        assert login_with(raw, other.token_id, other.hmac).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_nobody_takes_all_tokens() -> None:
    with running_broker({**SETTINGS, "delegation.token.max.per.owner": "2"}) as running:
        with enter(running.port, "ann") as ann, enter(running.port, "bob") as bob:
            first, _ = create(ann), create(ann, lifetime_ms=60_000)
            assert create(ann).error_code == ErrorCode.POLICY_VIOLATION == create(bob, owner="User:ann").error_code
            assert create(bob).error_code == 0
            assert expire(ann, first.hmac).error_code == 0
            assert create(ann).error_code == 0
