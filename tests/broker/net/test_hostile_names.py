"""Users whose names hold commas, line ends, nulls and more: each is itself, and nobody else's rights are his."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from broker.bearer import MODULE, message
from broker.guarded import describe
from broker.raw import Raw
from broker.sasl import add_users_at, handshake, scram, token
from security.oauthbearer.issuing import forged

from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.security.jaas import PLAIN_MODULE
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode

HOSTILE = {
    "comma": "admin,x",
    "semicolon": "x;User:admin",
    "a list of super users": "bob;User:admin;User:x",
    "line feed": "admin\n",
    "carriage return": "x\r\nadmin",
    "a prefix": "User:admin",
    "wildcard": "*",
    "case": "ADMIN",
    "blank": " admin",
    "equals": "admin=2Cx",
    "escape": "admin\x1b[2K",
    "long": "admin" * 500,
}
BEYOND_ASCII = {
    "null": "admin\0",
    "null within": "x\0admin",
    "wide letters": "\uff41dmin",
    "turned around": "x\u202enimda",
    "separator": "x\u2028admin",
}
"""What SCRAM has no way to say, and a token has."""
CLIENTS, INSIDE = "CLIENTS", "INSIDE"


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    settings = {
        "listeners": "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "inter.broker.listener.name": INSIDE,
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER,PLAIN",
        "listener.name.clients.oauthbearer.sasl.jaas.config": MODULE,
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_admin="secret";',
        "connection.failed.authentication.delay.ms": "20",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with running_broker(settings) as running:
        inside = running.call(lambda broker: next(each.port for each in broker.listeners if each.name == INSIDE))
        add_users_at(inside, admin="pencil")
        for name in HOSTILE.values():
            add_users_at(inside, **{name: "pencil"})
        yield running


def principals(served: TestBroker) -> set[str]:
    return served.call(
        lambda broker: {each.client.principal for each in broker.server.connections if each.listener.name == CLIENTS}
    )


def assert_nobody(served: TestBroker, raw: Raw, name: str) -> None:
    """Who has logged in is `name` to the letter, and may do nothing."""
    assert f"User:{name}" in principals(served)
    assert describe(raw).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def assert_lines_are_whole(caplog: pytest.LogCaptureFixture) -> None:
    for record in caplog.records:
        assert not {"\n", "\r", "\0", "\x1b", "\u2028", "\u202e"} & set(record.getMessage()), record.getMessage()
        assert len(record.getMessage()) < 2000


def test_the_real_one_may_do_everything(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        assert scram(raw, "admin", "pencil").error_code == 0
        assert describe(raw).error_code == 0


@pytest.mark.parametrize("what", HOSTILE)
def test_a_user_of_scram(served: TestBroker, what: str, caplog: pytest.LogCaptureFixture) -> None:
    name = HOSTILE[what]
    with caplog.at_level(logging.DEBUG, "headrace"):
        with Raw(served.port) as raw:
            assert scram(raw, name, "pencil").error_code == 0
            assert_nobody(served, raw, name)
        with Raw(served.port) as raw:
            assert scram(raw, name, "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert raw.is_closed()
    assert_lines_are_whole(caplog)


@pytest.mark.parametrize("what", [*HOSTILE, *BEYOND_ASCII])
def test_whoever_a_token_names(served: TestBroker, what: str, caplog: pytest.LogCaptureFixture) -> None:
    name = {**HOSTILE, **BEYOND_ASCII}[what]
    now_s = int(time.time())
    claims = {"sub": name, "iat": now_s, "exp": now_s + 600}
    with caplog.at_level(logging.DEBUG, "headrace"), Raw(served.port) as raw:
        assert handshake(raw, "OAUTHBEARER").error_code == 0
        assert token(raw, message(forged({"alg": "none"}, claims))).error_code == 0
        assert_nobody(served, raw, name)
        raw.socket.sendall(b"\xff\xff\xff\xff")
        assert raw.is_closed()
    assert_lines_are_whole(caplog)


@pytest.mark.parametrize("what", [*HOSTILE, *BEYOND_ASCII])
def test_whoever_says_so_by_plain(served: TestBroker, what: str, caplog: pytest.LogCaptureFixture) -> None:
    name = {**HOSTILE, **BEYOND_ASCII}[what].encode()
    with caplog.at_level(logging.DEBUG, "headrace"):
        for said in (b"\0" + name + b"\0secret", name + b"\0" + name + b"\0secret", name + b"\0admin\0wrong"):
            with Raw(served.port) as raw:
                assert handshake(raw, "PLAIN").error_code == 0
                answer = token(raw, said)
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED and "\n" not in answer.error_message
                assert raw.is_closed()
    assert_lines_are_whole(caplog)
