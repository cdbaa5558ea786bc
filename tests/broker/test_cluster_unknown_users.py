"""Three nodes are asked for the salts of users whom nobody made: all say the same, today and after a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from broker.raw import Raw
from broker.sasl import handshake, token
from broker.tokens import SECRET, SETTINGS, create, enter, expire, sasl
from peers.kafka import free_port
from peers.waiting import until

import headrace.testing
from headrace.metadata.scram_credentials import MECHANISMS, ScramMechanism, salted_password
from headrace.security.scram import ScramClient
from headrace.testing import TestCluster
from headrace.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

NODES = (1, 2, 3)
NAMES = ("nobody", "no,body", "root")
ITERATIONS = 8192


class Said(NamedTuple):
    """What a stranger hears of a name."""

    salt: bytes
    iterations: int


def asked(port: int, mechanism: ScramMechanism, name: str, *, is_token: bool = False) -> Said:
    with Raw(port) as raw:
        assert handshake(raw, mechanism.name).error_code == 0
        answer = token(raw, ScramClient(mechanism, name, "x", os.urandom, is_token=is_token).first())
        assert answer.error_code == 0
        _, salt, iterations = answer.auth_bytes.split(b",")
        return Said(salt.removeprefix(b"s="), int(iterations.removeprefix(b"i=")))


def port(cluster: TestCluster, node: int) -> int:
    return cluster.nodes[node].call(lambda broker: next(e.port for e in broker.listeners if e.name == "OUTSIDE"))


def all_said(cluster: TestCluster, node: int) -> list[Said]:
    """Of unknown users and tokens, by both mechanisms."""
    return [
        asked(port(cluster, node), mechanism, name, is_token=is_token)
        for mechanism in MECHANISMS.values()
        for name in NAMES
        for is_token in (False, True)
    ]


def add_user(cluster: TestCluster, name: str) -> None:
    """A user of both mechanisms, known to all nodes when this returns."""
    with enter(port(cluster, 1), "ann") as raw:
        for mechanism in MECHANISMS.values():
            salted = salted_password(mechanism, b"pencil", b"0123456789abcdefghijklmno", ITERATIONS)
            made = ScramCredentialUpsertion(name, mechanism.code, ITERATIONS, b"0123456789abcdefghijklmno", salted)
            answer = raw.ask(AlterUserScramCredentialsRequest([], [made]), 0)
            assert answer.results[0].error_code == 0
    until(lambda: all(node.call(lambda b: (name, 2) in b.image.kept.scram) for node in cluster.nodes.values()))


@contextmanager
def running(data: Path, controllers: dict[int, int]) -> Iterator[TestCluster]:
    nodes = {
        node: {
            "controller.quorum.voters": ",".join(f"{each}@localhost:{port}" for each, port in controllers.items()),
            "listeners": f"OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:{controllers[node]}",
            "listener.security.protocol.map": "OUTSIDE:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INSIDE",
            "delegation.token.secret.key": SECRET,
            **sasl("outside"),
        }
        for node in NODES
    }
    with headrace.testing.cluster(nodes=nodes, data=data) as cluster:
        yield cluster


def test_brokers_agree_on_who_is_not_there(tmp_path: Path) -> None:
    controllers = {node: free_port() for node in NODES}
    with running(tmp_path, controllers) as cluster:
        add_user(cluster, "kim")
        first = all_said(cluster, 1)
        assert len({each.salt for each in first}) == len(first)
        users, tokens = first[::2], first[1::2]
        assert {each.iterations for each in users} == {ITERATIONS} and {each.iterations for each in tokens} == {4096}
        for node in (2, 3):
            assert all_said(cluster, node) == first
        # Whoever asks again learns not that somebody has come.
        add_user(cluster, "lee")
        for node in NODES:
            assert all_said(cluster, node) == first
    with running(tmp_path, controllers) as cluster:
        for node in NODES:
            assert all_said(cluster, node) == first


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda each: each.name)
def test_a_token_that_has_ended_looks_as_before(mechanism: ScramMechanism, tmp_path: Path) -> None:
    with headrace.testing.broker(SETTINGS, data=tmp_path) as broker:
        with enter(broker.port, "ann") as raw:
            made = create(raw)
            before = asked(broker.port, mechanism, made.token_id, is_token=True)
            assert expire(raw, made.hmac, -1).error_code == 0
        assert broker.call(lambda inside: not inside.image.kept.delegation_tokens)
        assert asked(broker.port, mechanism, made.token_id, is_token=True) == before
