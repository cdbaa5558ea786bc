"""Listeners behind which delegation tokens are made and used, and what is asked there."""

from __future__ import annotations

import base64
from typing import Any

from broker.raw import Raw
from broker.sasl import handshake
from broker.sasl import token as send_token
from peers.kafka import KafkaPeer, free_port

from headrace.metadata.scram_credentials import MECHANISMS
from headrace.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from headrace.security.scram import ScramClient
from headrace.wire.messages.k38_create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from headrace.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest
from headrace.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from headrace.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)

SECRET = "a secret of the cluster's"
MAX_MS, RENEWAL_MS = 604_800_000, 86_400_000
USERS = (
    f'{PLAIN_MODULE} required username="node" password="x" user_node="x" user_ann="ann" user_bob="bob" user_cy="cy";'
)
"""Each user's password is the name."""


def sasl(listener: str) -> dict[str, str]:
    """Settings of a listener, by its name in small letters, where those users log in by PLAIN, and tokens by SCRAM."""
    scram = f"{SCRAM_MODULE} required;"
    return {
        f"listener.name.{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"listener.name.{listener}.plain.sasl.jaas.config": USERS,
        f"listener.name.{listener}.scram-sha-256.sasl.jaas.config": scram,
        f"listener.name.{listener}.scram-sha-512.sasl.jaas.config": scram,
    }


SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "inter.broker.listener.name": "INSIDE",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
    "delegation.token.secret.key": SECRET,
    "connection.failed.authentication.delay.ms": "20",
    **sasl("clients"),
}


def kafka_peer(secret: str | None) -> tuple[KafkaPeer, int]:
    """A Kafka with a second listener where clients log in, and its port."""
    peer, port = KafkaPeer(), free_port()
    peer.settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{peer.port},CONTROLLER://127.0.0.1:{peer.controller_port},"
        f"CLIENTS://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{peer.port},CLIENTS://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        **({} if secret is None else {"delegation.token.secret.key": secret}),
        **sasl("clients"),
    }
    return peer, port


def enter(port: int, name: str) -> Raw:
    """A connection of one of the users."""
    raw = Raw(port)
    assert handshake(raw).error_code == 0
    assert send_token(raw, f"\0{name}\0{name}".encode()).error_code == 0
    return raw


def login_with(raw: Raw, token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-256", *, is_token: bool = True) -> Any:
    """The last answer to a login with a token."""
    password = base64.b64encode(hmac).decode()
    client = ScramClient(MECHANISMS[mechanism], token_id, password, lambda size: b"r" * size, is_token=is_token)
    assert handshake(raw, mechanism).error_code == 0
    challenge = send_token(raw, client.first())
    if challenge.error_code:
        return challenge
    answer = send_token(raw, client.respond(challenge.auth_bytes))
    if not answer.error_code:
        client.respond(answer.auth_bytes)
    return answer


def enter_with(port: int, made: Any, mechanism: str = "SCRAM-SHA-256") -> Raw:
    """A connection of whoever has that token."""
    raw = Raw(port)
    assert login_with(raw, made.token_id, bytes(made.hmac), mechanism).error_code == 0
    return raw


def create(raw: Raw, *renewers: str, owner: str | None = None, lifetime_ms: int = -1, version: int = 3) -> Any:
    """Asks for a token; renewers and owner as `User:ann`."""
    kind, _, name = (owner or "").partition(":")
    listed = [CreatableRenewers(*each.split(":", 1)) for each in renewers]
    request = CreateDelegationTokenRequest(kind or None, name or None, listed, lifetime_ms)
    if version < 3:
        request.owner_principal_type = request.owner_principal_name = ""
    return raw.ask(request, version)


def renew(raw: Raw, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
    return raw.ask(RenewDelegationTokenRequest(bytes(hmac), period_ms), version)


def expire(raw: Raw, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
    return raw.ask(ExpireDelegationTokenRequest(bytes(hmac), period_ms), version)


def describe(raw: Raw, *owners: str, version: int = 3) -> Any:
    """Tokens of these owners; of everybody without one."""
    named = [DescribeDelegationTokenOwner(*each.split(":", 1)) for each in owners] if owners else None
    return raw.ask(DescribeDelegationTokenRequest(named), version)
