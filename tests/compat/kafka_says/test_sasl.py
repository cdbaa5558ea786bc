"""Logins that succeed, fail and come at the wrong time: both brokers say the same, to the letter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import pytest
from broker.raw import Raw
from broker.sasl import PLAIN_ANN, PLAIN_BOB, SETTINGS, add_users_at, open_port
from peers.kafka import KafkaPeer, free_port
from peers.settling import settle_ports

from headrace.metadata.scram_credentials import MECHANISMS
from headrace.security.jaas import SCRAM_MODULE
from headrace.security.scram import ScramClient
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

REAUTH = {"listener.name.clients.plain.connections.max.reauth.ms": "1500"}
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    """Where each of the two asks its clients to log in."""
    port, inside, controllers = free_port(), free_port(), free_port()
    at_kafka = {
        **SETTINGS,
        **REAUTH,
        "listeners": f"CLIENTS://127.0.0.1:{port},INSIDE://127.0.0.1:{inside},CONTROLLER://127.0.0.1:{controllers}",
        "advertised.listeners": f"CLIENTS://127.0.0.1:{port},INSIDE://127.0.0.1:{inside}",
        "controller.quorum.voters": f"1@127.0.0.1:{controllers}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    kafka = KafkaPeer(settings=at_kafka)
    kafka.port, kafka.controller_port = inside, controllers
    with kafka, running_broker({**SETTINGS, **REAUTH}) as ours:
        add_users_at(inside, ann="pencil", bob="pen")
        settle_ports(inside)
        add_users_at(open_port(ours), ann="pencil", bob="pen")
        yield {"ours": ours.port, "kafka": port}


@dataclass
class Talk:
    """One connection, and what was said to it."""

    raw: Raw
    heard: list[Any]

    def ask(self, request: Any, version: int) -> Any:
        """The answer is remembered; "closed" is one, and the last."""
        if self.heard and self.heard[-1] == "closed":
            return None
        try:
            answer = self.raw.ask(request, version)
        except (ConnectionError, TimeoutError) as error:
            self.heard.append("closed" if isinstance(error, ConnectionError) else "silent")
            return None
        self.heard.append(answer)
        return answer

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Self:
        answer = self.ask(SaslHandshakeRequest(mechanism), version)
        if answer is not None:
            answer.mechanisms.sort()  # Kafka's stand in the order of a hash table
        return self

    def says(self, data: bytes, version: int = 2) -> Self:
        """A token of the mechanism."""
        self.ask(SaslAuthenticateRequest(data), version)
        return self

    def login(self, message: bytes = PLAIN_ANN) -> Self:
        return self.handshake().says(message)

    def bare(self, data: bytes) -> Self:
        """A token without a request around it."""
        try:
            self.raw.socket.sendall(len(data).to_bytes(4, "big") + data)
            self.heard.append(self.raw.receive_frame())
        except OSError:
            self.heard.append("closed")
        return self

    def scram(self, name: str, password: str, mechanism: str) -> Self:
        """A whole login; only how it ends is remembered."""
        client = ScramClient(MECHANISMS[mechanism], name, password, os.urandom)
        self.handshake(mechanism)
        challenge = self.ask(SaslAuthenticateRequest(client.first()), 2)
        if challenge is not None and not challenge.error_code:
            self.forget()
            answer = self.ask(SaslAuthenticateRequest(client.respond(challenge.auth_bytes)), 2)
            if answer is not None and not answer.error_code:
                client.respond(answer.auth_bytes)
                answer.auth_bytes = b""
        return self

    def served(self) -> Self:
        """Whether it is let in by now."""
        answer = self.ask(MetadataRequest(topics=[]), 9)
        if answer is not None:
            self.heard[-1] = "served"
        return self

    def forget(self) -> Self:
        """The last answer is nobody's concern."""
        self.heard.pop()
        return self

    def waits(self, seconds: float) -> Self:
        time.sleep(seconds)
        return self


def before(talk: Talk, *requests: tuple[Any, int]) -> Talk:
    for request, version in requests:
        talk.ask(request, version)
    return talk


BAD_NAME = ApiVersionsRequest(client_software_name="-", client_software_version="")
TALKS: dict[str, Callable[[Talk], object]] = {
    "plain": lambda talk: talk.login().served(),
    "plain-versions": lambda talk: before(talk, (VERSIONS, 3)).forget().login().served(),
    "plain-version-0": lambda talk: talk.handshake().says(PLAIN_ANN, 0).served(),
    "authzid": lambda talk: talk.login(b"ann" + PLAIN_ANN).served(),
    "other-authzid": lambda talk: talk.login(b"bob" + PLAIN_ANN).served(),
    "wrong-password": lambda talk: talk.login(b"\0ann\0wrong").served(),
    "unknown-user": lambda talk: talk.login(b"\0nobody\0wrong").served(),
    "no-name": lambda talk: talk.login(b"\0\0wrong").served(),
    "no-password": lambda talk: talk.login(b"\0ann\0").served(),
    "two-tokens": lambda talk: talk.login(b"ann\0pencil").served(),
    "four-tokens": lambda talk: talk.login(PLAIN_ANN + b"\0").served(),
    "empty": lambda talk: talk.login(b"").served(),
    "scram-256": lambda talk: talk.scram("ann", "pencil", "SCRAM-SHA-256").served(),
    "scram-512": lambda talk: talk.scram("bob", "pen", "SCRAM-SHA-512").served(),
    "scram-wrong": lambda talk: talk.scram("ann", "wrong", "SCRAM-SHA-256").served(),
    "scram-unknown": lambda talk: talk.scram("nobody", "wrong", "SCRAM-SHA-512").served(),
    "scram-garbage": lambda talk: talk.handshake("SCRAM-SHA-256").says(b"garbage").served(),
    "scram-binding": lambda talk: talk.handshake("SCRAM-SHA-256").says(b"p=x,,n=ann,r=abc").served(),
    "no-mechanism": lambda talk: talk.handshake("GSSAPI").served(),
    "handshake-twice": lambda talk: talk.handshake().handshake().served(),
    "too-early": lambda talk: talk.served(),
    "versions-twice": lambda talk: before(talk, (BAD_NAME, 3), (BAD_NAME, 3), (MetadataRequest(topics=[]), 9)),
    "token-first": lambda talk: talk.says(PLAIN_ANN),
    "token-when-ready": lambda talk: talk.login().says(PLAIN_ANN).served(),
    "without-requests": lambda talk: talk.handshake(version=0).bare(PLAIN_ANN).served(),
    "without-requests-wrong": lambda talk: talk.handshake(version=0).bare(b"\0ann\0wrong").served(),
    "again": lambda talk: talk.login().login().served(),
    "again-as-another": lambda talk: talk.login().login(PLAIN_BOB).served(),
    "again-wrong": lambda talk: talk.login().login(b"\0ann\0wrong").served(),
    "too-soon": lambda talk: talk.login().login().handshake().served().waits(1.1).login().served(),
    "too-late": lambda talk: talk.login().waits(1.8).served(),
    "late-login": lambda talk: talk.login().waits(1.8).login().served(),
}


@pytest.mark.parametrize("name", TALKS)
def test_both_say_the_same(ports: dict[str, int], name: str) -> None:
    heard = {}
    for side, port in ports.items():
        with Raw(port, timeout_s=30.0) as raw:
            talk = Talk(raw, [])
            TALKS[name](talk)
            heard[side] = talk.heard
    assert heard["ours"] == heard["kafka"]
