"""A broker whose clients log in, and connections that do so byte by byte."""

from __future__ import annotations

import os
from typing import Any

from broker.raw import Raw

from headrace.metadata.scram_credentials import MECHANISMS, salted_password
from headrace.security.jaas import PLAIN_MODULE
from headrace.security.scram import ScramClient
from headrace.testing.running import TestBroker
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

OFFERED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DELAY_MS = 40
SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "inter.broker.listener.name": "INSIDE",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(OFFERED),
    "listener.name.clients.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required username="inside" password="x" user_ann="pencil" user_bob="pen";'
    ),
    "connection.failed.authentication.delay.ms": str(DELAY_MS),
}
"""PLAIN knows ann (pencil) and bob (pen); `add_users` makes SCRAM users of them."""

PLAIN_ANN, PLAIN_BOB = b"\0ann\0pencil", b"\0bob\0pen"
FIXED_TEXT = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"


def open_port(broker: TestBroker) -> int:
    """Of the listener that asks nobody to log in."""
    return broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == "INSIDE"))


def add_users(broker: TestBroker, **passwords: str) -> None:
    """Users of both mechanisms."""
    add_users_at(open_port(broker), **passwords)


def add_users_at(port: int, **passwords: str) -> None:
    """The same at a port that asks nobody to log in."""
    with Raw(port) as raw:
        for mechanism in MECHANISMS.values():
            made = [
                ScramCredentialUpsertion(
                    name, mechanism.code, 4096, b"salt", salted_password(mechanism, word.encode(), b"salt", 4096)
                )
                for name, word in passwords.items()
            ]
            answer = raw.ask(AlterUserScramCredentialsRequest([], made), 0)
            assert {each.error_code for each in answer.results} == {0}


def remove_user(broker: TestBroker, name: str) -> None:
    with Raw(open_port(broker)) as raw:
        for code in (1, 2):
            gone = [ScramCredentialDeletion(name, code)]
            assert raw.ask(AlterUserScramCredentialsRequest(gone, []), 0).results[0].error_code == 0


def handshake(raw: Raw, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return raw.ask(SaslHandshakeRequest(mechanism), version)


def token(raw: Raw, data: bytes, version: int = 2) -> Any:
    return raw.ask(SaslAuthenticateRequest(data), version)


def plain(raw: Raw, message: bytes = PLAIN_ANN, version: int = 2) -> Any:
    """A whole login; the last answer."""
    assert handshake(raw).error_code == 0
    return token(raw, message, version)


def scram(raw: Raw, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
    """A whole login; the last answer."""
    client = ScramClient(MECHANISMS[mechanism], name, password, os.urandom)
    assert handshake(raw, mechanism).error_code == 0
    challenge = token(raw, client.first())
    if challenge.error_code:
        return challenge
    answer = token(raw, client.respond(challenge.auth_bytes))
    if not answer.error_code:
        client.respond(answer.auth_bytes)
    return answer
