"""Delegation tokens: what Kafka says to whoever asks for them, uses them, and ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from broker.raw import Raw
from broker.sasl import handshake
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
    kafka_peer,
    login_with,
    renew,
)

from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PATIENCE_S = 60.0
TOKENS = (38, 39, 40, 41)
NOT_SET = {name: text for name, text in SETTINGS.items() if name != "delegation.token.secret.key"}


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """Ours, and Kafka's."""
    with ExitStack() as stack:
        peer, theirs = kafka_peer(SECRET)
        stack.enter_context(peer)
        yield stack.enter_context(running_broker(SETTINGS)).port, theirs


def compare(ports: tuple[int, int], script: Callable[[int], Iterator[Any]]) -> None:
    ours, theirs = (list(script(port)) for port in ports)
    assert ours == theirs


def settle(port: int, made: Any, *, is_there: bool = True) -> Any:
    """The token, once broker and controller know it, or know no more of it: Kafka answers before its own parts have
    heard of what they decided."""
    deadline = time.monotonic() + PATIENCE_S
    with enter(port, "cy") as raw:
        while True:
            is_decided = renew(raw, made.hmac).error_code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND
            is_told = made.token_id in {each.token_id for each in describe(raw).tokens}
            if is_decided is is_told is is_there:
                return made
            assert time.monotonic() < deadline
            time.sleep(0.02)


def described(raw: Raw, made: Any, version: int) -> list[Any]:
    """What is told of this token: other tests leave tokens, which Kafka tells of in the order of a hash."""
    return [each for each in describe(raw, version=version).tokens if each.token_id == made.token_id]


def shown(answer: Any, since: int | None = None) -> dict[str, Any]:
    """The fields of an answer; ids and HMACs by their lengths, and times as distances from one."""
    found = {name: getattr(answer, name) for name in type(answer).__match_args__ if name != "throttle_time_ms"}
    for name in ("token_id", "hmac"):
        if name in found:
            found[name] = len(found[name])
    if "renewers" in found:
        found["renewers"] = [(each.principal_type, each.principal_name) for each in found["renewers"]]
    for name in [each for each in found if "timestamp" in each and since is not None and found[each] > 0]:
        found[name] = round((found[name] - since) / 20_000)
    return found


def test_the_life_of_a_token(ports: tuple[int, int]) -> None:
    def script(port: int) -> Iterator[Any]:
        with enter(port, "ann") as ann, enter(port, "bob") as bob, enter(port, "cy") as cy:
            for version in (1, 2, 3):
                made = settle(port, create(ann, "User:bob", version=version))
                since = made.issue_timestamp_ms
                yield shown(made, since)
                yield [shown(each, since) for each in described(ann, made, version)]
                yield shown(renew(bob, made.hmac, version=min(version, 2)), since)
                yield shown(renew(cy, made.hmac, version=min(version, 2)), since)
                yield shown(expire(cy, made.hmac, version=min(version, 2)), since)
                yield shown(expire(ann, made.hmac, 70_000), since)
                yield shown(expire(ann, made.hmac, 10 * MAX_MS), since)
                yield shown(renew(ann, made.hmac, 10 * RENEWAL_MS), since)
                yield shown(expire(bob, made.hmac), since)
                settle(port, made, is_there=False)
                yield shown(expire(bob, made.hmac), since)
                yield shown(renew(bob, made.hmac), since)
                yield described(ann, made, version)

    compare(ports, script)


def test_what_is_refused(ports: tuple[int, int]) -> None:
    def script(port: int) -> Iterator[Any]:
        with enter(port, "ann") as ann, enter(port, "bob") as bob:
            yield shown(create(ann, "Group:x"))
            yield shown(create(ann, "User:bob", "Group:x", owner="User:bob"))
            for_bob = settle(port, create(ann, owner="User:bob", lifetime_ms=70_000))
            since = for_bob.issue_timestamp_ms
            yield shown(for_bob, since)
            yield shown(renew(ann, for_bob.hmac), since)
            yield [
                len(describe(each, *owners).tokens)
                for each in (ann, bob)
                for owners in ((), ("User:ann",), ("User:cy",))
            ]
            yield shown(expire(bob, for_bob.hmac, 0), since)
            yield shown(renew(ann, b""))
            yield shown(expire(ann, b"x" * 64))
        with enter_with(port, for_bob_again(port)) as raw:
            for answer in (create(raw), renew(raw, b"x"), expire(raw, b"x"), describe(raw)):
                yield shown(answer)

    def for_bob_again(port: int) -> Any:
        with enter(port, "ann") as raw:
            return settle(port, create(raw, owner="User:bob", lifetime_ms=610_000))

    compare(ports, script)


def test_logins(ports: tuple[int, int]) -> None:
    def script(port: int) -> Iterator[Any]:
        with enter(port, "ann") as raw:
            made = settle(port, create(raw, lifetime_ms=610_000))
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            for token_id, hmac, is_token in (
                (made.token_id, made.hmac, True),
                (made.token_id, made.hmac, False),
                (made.token_id, b"x" * 64, True),
                ("unknown", made.hmac, True),
            ):
                with Raw(port) as raw:
                    answer = login_with(raw, token_id, bytes(hmac), mechanism, is_token=is_token)
                    yield answer.error_code, answer.error_message or None, round(answer.session_lifetime_ms / 20_000)

    compare(ports, script)


def test_whether_there_are_tokens_without_a_secret_key(ports: tuple[int, int]) -> None:
    def script(port: int) -> Iterator[Any]:
        with Raw(port) as raw:
            listed = raw.ask(ApiVersionsRequest("t", "1"), 3).api_keys
            yield [(e.api_key, e.min_version, e.max_version) for e in listed if e.api_key in TOKENS]
        with enter(port, "ann") as raw:
            yield [shown(answer) for answer in (create(raw), renew(raw, b"x"), expire(raw, b"x"), describe(raw))]
            yield shown(create(raw, "Group:x"))
        with Raw(port) as raw:
            assert handshake(raw, "PLAIN").error_code == 0

    peer, theirs = kafka_peer(None)
    with peer, running_broker(NOT_SET) as ours:
        compare((ours.port, theirs), script)
