"""Clients that log in, those that cannot, and those that would rather not."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce
from broker.sasl import (
    DELAY_MS,
    FIXED_TEXT,
    OFFERED,
    PLAIN_ANN,
    PLAIN_BOB,
    SETTINGS,
    add_users,
    handshake,
    open_port,
    plain,
    remove_user,
    scram,
    token,
)

from headrace.broker.net import logins as logins_module
from headrace.env import turns as turns_module
from headrace.env.turns import SlicedTurns
from headrace.metadata.scram_credentials import SCRAM_SHA_256
from headrace.security.authorizer import UNCACHED, OpenAuthorizer, Operation, ResourceType
from headrace.security.scram import ScramClient
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker(SETTINGS) as running:
        add_users(running, ann="pencil", bob="pen")
        yield running


def wait_until_nobody_is_left(broker: TestBroker) -> None:
    deadline = time.monotonic() + 60
    while broker.call(lambda inside: bool(inside.server.shared.logins._deadlines)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    held = broker.call(lambda inside: (inside.server.shared.logins._held, inside.server.shared.logins._delayed))
    assert held == (0, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain(served: TestBroker, version: int) -> None:
    with Raw(served.port) as raw:
        assert raw.ask(VERSIONS, 3).error_code == 0
        said = handshake(raw)
        assert (said.error_code, said.mechanisms) == (0, list(OFFERED))
        answer = token(raw, PLAIN_ANN, version)
        assert (answer.error_code, answer.auth_bytes) == (0, b"")
        assert version == 0 or answer.session_lifetime_ms == 0
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers
    wait_until_nobody_is_left(served)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(served: TestBroker, mechanism: str) -> None:
    with Raw(served.port) as raw:
        assert scram(raw, "bob", "pen", mechanism).error_code == 0
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers


def test_a_user_that_is_made_may_log_in_and_one_that_is_deleted_may_not(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        assert scram(raw, "carol", "word").error_code == FAILED
    add_users(served, carol="word")
    with Raw(served.port) as raw:
        assert scram(raw, "carol", "word").error_code == 0
    remove_user(served, "carol")
    with Raw(served.port) as raw:
        assert scram(raw, "carol", "word").error_code == FAILED


def test_tokens_without_requests_around_them(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        assert handshake(raw, version=0).error_code == 0
        raw.socket.sendall(len(PLAIN_ANN).to_bytes(4, "big") + PLAIN_ANN)
        assert raw.receive_frame() == b""
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers
    client = ScramClient(SCRAM_SHA_256, "ann", "pencil", os.urandom)
    with Raw(served.port) as raw:
        assert handshake(raw, "SCRAM-SHA-256", 0).error_code == 0
        said = client.first()
        while not client.is_done:
            raw.socket.sendall(len(said).to_bytes(4, "big") + said)
            said = client.respond(raw.receive_frame())
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers
    with Raw(served.port) as raw:
        assert handshake(raw, version=0).error_code == 0
        began = time.monotonic()
        raw.socket.sendall((4).to_bytes(4, "big") + b"\0x\0y")
        assert raw.is_closed() and time.monotonic() - began >= DELAY_MS / 1000


def test_nothing_else_is_served_before(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        raw.send(MetadataRequest(topics=[]), 9)
        assert raw.is_closed()
    with Raw(served.port) as raw:
        assert raw.ask(VERSIONS, 3).error_code == 0
        raw.send(VERSIONS, 3)
        assert raw.is_closed()
    with Raw(served.port) as raw:
        bad = ApiVersionsRequest(client_software_name="-", client_software_version="")
        assert raw.ask(bad, 3).error_code == ErrorCode.INVALID_REQUEST
        assert raw.ask(VERSIONS, 3).error_code == 0
        raw.send(produce("t", batch(b"x")), 9)
        assert raw.is_closed()
    with Raw(served.port) as raw:
        raw.send(SaslAuthenticateRequest(PLAIN_ANN), 2)
        assert raw.is_closed()
    with Raw(served.port) as raw:
        assert handshake(raw).error_code == 0
        raw.send(produce("t", batch(b"x")), 9)
        assert raw.is_closed()
    with Raw(served.port) as raw:
        assert handshake(raw).error_code == 0
        assert handshake(raw).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert raw.is_closed()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + bytes(200),
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        (524_289).to_bytes(4, "big"),
        (3).to_bytes(4, "big") + b"abc",
        (14).to_bytes(4, "big") + b"\0\x11\0\x01\0\0\0\x01\0\xff" + bytes(4),
    ],
)
def test_garbage_closes(served: TestBroker, garbage: bytes) -> None:
    with Raw(served.port) as raw:
        raw.socket.sendall(garbage)
        assert raw.is_closed()


def test_an_unknown_mechanism_hears_which_there_are(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        began = time.monotonic()
        answer = handshake(raw, "GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(OFFERED))
        assert time.monotonic() - began >= DELAY_MS / 1000
        assert raw.is_closed()


def test_a_failure_waits_and_looks_the_same_for_everybody(served: TestBroker) -> None:
    answers = []
    for name, password in [("ann", "wrong"), ("nobody", "pencil"), ("bob", "pencil")]:
        with Raw(served.port) as raw:
            client = ScramClient(SCRAM_SHA_256, name, password, os.urandom)
            assert handshake(raw, "SCRAM-SHA-256").error_code == 0
            challenge = token(raw, client.first())
            assert challenge.error_code == 0
            began = time.monotonic()
            answers.append(token(raw, client.respond(challenge.auth_bytes)))
            assert time.monotonic() - began >= DELAY_MS / 1000
            assert raw.is_closed()
    assert answers[0] == answers[1] == answers[2]
    assert (answers[0].error_code, answers[0].error_message) == (FAILED, FIXED_TEXT.format("SCRAM-SHA-256"))
    frames = []
    for message in (b"\0ann\0wrong", b"\0nobody\0pencil", b"\0inside\0x"):
        with Raw(served.port) as raw:
            assert handshake(raw).error_code == 0
            raw.send(SaslAuthenticateRequest(message), 2)
            frames.append(raw.receive_frame())
            assert raw.is_closed()
    assert frames[0] == frames[1] == frames[2] and b"Invalid username or password" in frames[0]


@pytest.mark.parametrize("first", [b"y,,n=ann,r=abc", b"p=tls-unique,,n=ann,r=abc", b"\xff", b""])
def test_no_way_down(served: TestBroker, first: bytes) -> None:
    with Raw(served.port) as raw:
        assert handshake(raw, "SCRAM-SHA-512").error_code == 0
        answer = token(raw, first)
        assert (answer.error_code, answer.error_message) == (FAILED, FIXED_TEXT.format("SCRAM-SHA-512"))
        assert raw.is_closed()


def test_what_was_overheard_is_worth_nothing(served: TestBroker) -> None:
    client = ScramClient(SCRAM_SHA_256, "ann", "pencil", os.urandom)
    with Raw(served.port) as raw:
        assert handshake(raw, "SCRAM-SHA-256").error_code == 0
        final = client.respond(token(raw, client.first()).auth_bytes)
        assert token(raw, final).error_code == 0
    with Raw(served.port) as raw:
        assert handshake(raw, "SCRAM-SHA-256").error_code == 0
        assert token(raw, client.first()).error_code == 0
        assert token(raw, final).error_code == FAILED


def test_a_plaintext_listener_knows_no_login(served: TestBroker) -> None:
    with Raw(open_port(served)) as raw:
        assert handshake(raw).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert token(raw, PLAIN_ANN).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers


def test_who_is_in_cannot_log_in_again_where_sessions_have_no_end(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        assert plain(raw).error_code == 0
        assert handshake(raw).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert token(raw, PLAIN_BOB).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers


class Watching(OpenAuthorizer):
    """Allows everything, and remembers who asked."""

    def __init__(self) -> None:
        self.principals: list[str] = []

    generation = UNCACHED

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        self.principals.append(principal)
        return True


@pytest.mark.parametrize("piece", [1 << 20, 7, 1])
def test_what_stands_behind_a_login_runs_as_who_logged_in(served: TestBroker, piece: int) -> None:
    name = f"behind-{piece}"
    create_topic(open_port(served), name)
    watching = Watching()
    served.call(lambda inside: setattr(inside, "authorizer", watching))
    try:
        with Raw(served.port) as raw:
            requests: list[tuple[Any, int]] = [
                (VERSIONS, 3),
                (SaslHandshakeRequest("PLAIN"), 1),
                (SaslAuthenticateRequest(PLAIN_ANN), 2),
                (produce(name, batch(b"first")), 9),
                (produce(name, batch(b"second")), 9),
                (MetadataRequest(topics=[]), 9),
            ]
            data = b"".join(raw.frame(request, version) for request, version in requests)
            for at in range(0, len(data), piece):
                raw.socket.sendall(data[at : at + piece])
            answers = [raw.receive(request.API_KEY, version) for request, version in requests]
            assert [correlation_id for correlation_id, _ in answers] == [1, 2, 3, 4, 5, 6]
            offsets = [answer.responses[0].partition_responses[0] for _, answer in answers[3:5]]
            assert [(each.error_code, each.base_offset) for each in offsets] == [(0, 0), (0, 1)]
    finally:
        served.call(lambda inside: setattr(inside, "authorizer", OpenAuthorizer()))
    assert set(watching.principals) == {"User:ann"}


def test_what_stands_behind_a_login_that_fails_does_not_run(served: TestBroker) -> None:
    create_topic(open_port(served), "not-behind")
    with Raw(served.port) as raw:
        requests: list[tuple[Any, int]] = [
            (SaslHandshakeRequest("PLAIN"), 1),
            (SaslAuthenticateRequest(b"\0ann\0wrong"), 2),
            (produce("not-behind", batch(b"x")), 9),
        ]
        raw.socket.sendall(b"".join(raw.frame(request, version) for request, version in requests))
        assert raw.receive(17, 1)[1].error_code == 0
        assert raw.receive(36, 2)[1].error_code == FAILED
        assert raw.is_closed()
    with Raw(open_port(served)) as raw:
        found = raw.ask(fetch("not-behind", min_bytes=0, max_wait_ms=0), 11).responses[0].partitions[0]
        assert found.high_watermark == 0


# --- strangers


@pytest.mark.slow
def test_an_announced_frame_has_no_memory_and_strangers_share_one_budget(
    monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    monkeypatch.setattr(logins_module, "LOGIN_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(logins_module, "ADDRESS_LOGIN_BYTES_MAX", 900_000)
    broker = stack.enter_context(running_broker(SETTINGS))
    announced = [stack.enter_context(Raw(broker.port)) for _ in range(100)]
    for raw in announced:
        raw.socket.sendall((500_000).to_bytes(4, "big") + b"\0\x11\0\x01")

    def held() -> int:
        return broker.call(lambda inside: inside.server.shared.logins._held)

    with Raw(broker.port) as raw:
        assert plain(raw).error_code == 0
    assert held() == 0
    for raw in announced[:20]:
        raw.socket.sendall(bytes(100_000))
    closed = sum(raw.is_closed(0.3) for raw in announced[:20])
    assert closed >= 10 and held() <= 1_000_000
    with Raw(broker.port, source="127.0.0.2") as raw:
        assert handshake(raw).error_code == 0
        long = b"\0" * 3 + b"x" * 20_000
        assert token(raw, long).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, "there is room for it elsewhere"
    with Raw(broker.port) as raw:
        assert plain(raw).error_code == 0
    for raw in announced:
        raw.socket.close()
    wait_until_nobody_is_left(broker)


def test_a_login_has_an_absolute_deadline(stack: ExitStack) -> None:
    broker = stack.enter_context(running_broker({**SETTINGS, "connection.login.timeout.ms": "600"}))
    silent, inside = stack.enter_context(Raw(broker.port)), stack.enter_context(Raw(broker.port))
    assert plain(inside).error_code == 0
    began = time.monotonic()
    with Raw(broker.port) as drip:
        data = drip.frame(VERSIONS, 3) + bytes(1000)
        with pytest.raises(OSError):
            for at in range(1000):
                drip.socket.sendall(data[at : at + 1])
                time.sleep(0.02)
    assert 0.5 <= time.monotonic() - began <= 3
    assert silent.is_closed()
    assert inside.ask(MetadataRequest(topics=[]), 9).brokers


def test_failures_that_nobody_waits_for_are_forgotten_and_bounded(
    monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    monkeypatch.setattr(logins_module, "DELAYED_MAX", 5)
    broker = stack.enter_context(running_broker({**SETTINGS, "connection.failed.authentication.delay.ms": "700"}))
    waiting = [stack.enter_context(Raw(broker.port)) for _ in range(12)]
    for raw in waiting:
        assert handshake(raw).error_code == 0
    for raw in waiting:
        raw.send(SaslAuthenticateRequest(b"\0ann\0wrong"), 2)
    at_once = sum(raw.is_closed(0.1) for raw in waiting)
    assert at_once == 7
    for raw in waiting:
        raw.socket.close()
    wait_until_nobody_is_left(broker)
    # Who was closed at once holds nothing of the budget of all others.
    assert broker.call(lambda inside: inside.server.requests_budget.used) == 0
    with Raw(broker.port) as raw:
        assert plain(raw).error_code == 0
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers


def test_whoever_has_no_turn_left_is_served_in_the_next(monkeypatch: pytest.MonkeyPatch, served: TestBroker) -> None:
    """However little strangers have of a turn, all of them come in, over however many pieces."""
    monkeypatch.setattr(turns_module, "SLICE_S", 0.0)
    with ExitStack() as several:
        raws = [several.enter_context(Raw(served.port)) for _ in range(20)]
        for raw in raws:
            raw.send(SaslHandshakeRequest("PLAIN"), 1)
        for raw in raws:
            assert raw.receive(17, 1)[1].error_code == 0
            frame = raw.frame(SaslAuthenticateRequest(PLAIN_ANN), 2)
            raw.socket.sendall(frame[:9])
            raw.socket.sendall(frame[9:])
        for raw in raws:
            assert raw.receive(36, 2)[1].error_code == 0
            assert raw.ask(MetadataRequest(topics=[]), 9).brokers


def test_who_waits_for_a_turn_costs_the_others_none(monkeypatch: pytest.MonkeyPatch, served: TestBroker) -> None:
    """Each asks once for each piece, and not again in each turn in which somebody else is served."""
    asked = 0
    has_turn = SlicedTurns.has_turn

    def counted(turns: SlicedTurns) -> bool:
        nonlocal asked
        asked += 1
        return has_turn(turns)

    monkeypatch.setattr(turns_module, "SLICE_S", 0.0)
    monkeypatch.setattr(SlicedTurns, "has_turn", counted)
    with ExitStack() as several:
        raws = [several.enter_context(Raw(served.port)) for _ in range(60)]

        def all_at_once() -> None:
            for raw in raws:
                raw.send(SaslHandshakeRequest("PLAIN"), 1)

        served.call(lambda _: all_at_once())  # on the loop, which serves nobody meanwhile
        for raw in raws:
            assert raw.receive(17, 1)[1].error_code == 0
    assert 60 <= asked <= 60 * 4


# --- sessions


@pytest.fixture(scope="module")
def ending() -> Iterator[TestBroker]:
    """A broker whose PLAIN sessions end after 1.2 seconds, and SCRAM's never."""
    ends = {"listener.name.clients.plain.connections.max.reauth.ms": "1200"}
    with running_broker({**SETTINGS, **ends}) as running:
        add_users(running, ann="pencil")
        for name in ("sessions", "quiet"):
            create_topic(open_port(running), name)
        yield running


def test_a_session_says_how_long_it_lives(ending: TestBroker) -> None:
    with Raw(ending.port) as raw:
        assert plain(raw).session_lifetime_ms == 1200
    with Raw(ending.port) as raw:
        assert scram(raw, "ann", "pencil").session_lifetime_ms == 0


def test_a_session_that_has_ended_serves_nothing(ending: TestBroker) -> None:
    with Raw(ending.port) as raw:
        assert plain(raw).error_code == 0
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers
        time.sleep(1.4)
        raw.send(MetadataRequest(topics=[]), 9)
        assert raw.is_closed()


def test_a_long_poll_is_answered_after_the_end(ending: TestBroker) -> None:
    with Raw(ending.port) as raw:
        assert plain(raw).error_code == 0
        answer = raw.ask(fetch("quiet", max_wait_ms=1500), 11)
        assert answer.error_code == 0
        raw.send(fetch("sessions", max_wait_ms=0), 11)
        assert raw.is_closed()


@pytest.mark.slow
def test_a_session_goes_on_with_another_login(ending: TestBroker) -> None:
    with Raw(ending.port) as raw:
        assert plain(raw).error_code == 0
        for _ in range(2):
            time.sleep(1.05)
            assert plain(raw).session_lifetime_ms == 1200
            assert raw.ask(produce("sessions", batch(b"x")), 9).responses[0].partition_responses[0].error_code == 0


@pytest.mark.slow
def test_after_the_end_a_login_is_served_and_nothing_beside_it(ending: TestBroker) -> None:
    with Raw(ending.port) as raw:
        assert plain(raw).error_code == 0
        time.sleep(1.3)
        requests: list[tuple[Any, int]] = [
            (SaslHandshakeRequest("PLAIN"), 1),
            (SaslAuthenticateRequest(PLAIN_ANN), 2),
            (produce("sessions", batch(b"x")), 9),
        ]
        raw.socket.sendall(b"".join(raw.frame(request, version) for request, version in requests))
        assert [raw.receive(request.API_KEY, version)[0] for request, version in requests] == [3, 4, 5]
        time.sleep(1.3)
        raw.send(SaslHandshakeRequest("PLAIN"), 1)
        raw.send(produce("sessions", batch(b"x")), 9)
        assert raw.receive(17, 1)[1].error_code == 0
        assert raw.is_closed()


def test_a_handshake_does_not_prolong_a_session(ending: TestBroker) -> None:
    with Raw(ending.port) as raw:
        assert plain(raw).error_code == 0
        raw.send(SaslHandshakeRequest("PLAIN"), 1)
        raw.send(produce("sessions", batch(b"x")), 9)
        assert raw.receive(17, 1)[1].error_code == 0
        assert raw.is_closed()


def test_not_twice_within_a_second(ending: TestBroker) -> None:
    with Raw(ending.port) as raw:
        assert plain(raw).error_code == 0
        assert plain(raw).error_code == 0
        assert handshake(raw).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers


def test_nobody_becomes_somebody_else(ending: TestBroker) -> None:
    with Raw(ending.port) as raw:
        assert plain(raw).error_code == 0
        answer = plain(raw, PLAIN_BOB)
        assert (answer.error_code, answer.auth_bytes) == (FAILED, b"")
        assert "Cannot change principals" in answer.error_message
        assert raw.is_closed()
    with Raw(ending.port) as raw:
        assert plain(raw).error_code == 0
        assert scram(raw, "ann", "pencil").error_code == FAILED
        assert raw.is_closed()


def test_a_second_login_waits_for_the_answers_before_it(ending: TestBroker) -> None:
    with Raw(ending.port) as raw:
        assert plain(raw).error_code == 0
        requests: list[tuple[Any, int]] = [
            (fetch("quiet", max_wait_ms=300), 11),
            (SaslHandshakeRequest("PLAIN"), 1),
            (SaslAuthenticateRequest(PLAIN_ANN), 2),
            (MetadataRequest(topics=[]), 9),
        ]
        raw.socket.sendall(b"".join(raw.frame(request, version) for request, version in requests))
        assert [raw.receive(request.API_KEY, version)[0] for request, version in requests] == [3, 4, 5, 6]


def test_passwords_are_nowhere(served: TestBroker, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(("127.0.0.1", served.port)):
        pass
    with Raw(served.port) as raw:
        assert plain(raw, b"\0ann\0very-wrong").error_code == FAILED
        assert raw.is_closed()
    with Raw(open_port(served)) as raw:
        raw.send(DescribeConfigsRequest([DescribeConfigsResource(4, "1", None)], include_synonyms=True), 4)
        described = raw.receive_frame()
    assert b"sasl.enabled.mechanisms" in described
    said = capfd.readouterr()
    for secret in ("pencil", "very-wrong"):
        assert secret not in said.out + said.err and secret.encode() not in described
