"""Delegation tokens in a cluster: asked for at any node, good at every node, decided by one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from broker.raw import Raw
from broker.tokens import SECRET, create, describe, enter, enter_with, expire, login_with, renew, sasl
from peers.kafka import free_port

import headrace.testing
from headrace.testing import TestCluster
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import SIZE_BYTES, RequestHeader, decode_response_header, encode_request
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from headrace.wire.messages.k58_envelope import EnvelopeRequest
from headrace.wire.messages.principal import DefaultPrincipalData

NODES = (1, 2, 3)
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def controllers() -> dict[int, int]:
    return {node: free_port() for node in NODES}


@pytest.fixture(scope="module")
def three(controllers: dict[int, int]) -> Iterator[TestCluster]:
    nodes = {
        node: {
            "controller.quorum.voters": ",".join(f"{each}@localhost:{port}" for each, port in controllers.items()),
            "listeners": f"OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:{controllers[node]}",
            "listener.security.protocol.map": "OUTSIDE:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INSIDE",
            "delegation.token.secret.key": SECRET,
            "delegation.token.expiry.check.interval.ms": "200",
            **sasl("outside"),
        }
        for node in NODES
    }
    with headrace.testing.cluster(nodes=nodes) as running:
        yield running


def port(cluster: TestCluster, node: int) -> int:
    return cluster.nodes[node].call(lambda broker: next(e.port for e in broker.listeners if e.name == "OUTSIDE"))


def leader(cluster: TestCluster) -> int:
    return next(node for node in NODES if cluster.nodes[node].call(lambda broker: broker.quorum.decides))


def wait_for(cluster: TestCluster, node: int, token_id: str, *, there: bool) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while cluster.nodes[node].call(lambda broker: token_id in broker.image.kept.delegation_tokens) is not there:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_token_is_good_at_every_node(three: TestCluster) -> None:
    for node in NODES:
        with enter(port(three, node), "ann") as raw:
            made = create(raw, "User:bob", lifetime_ms=60_000)
            assert made.error_code == 0
        for other in NODES:
            wait_for(three, other, made.token_id, there=True)
            with enter_with(port(three, other), made) as raw:
                assert raw.ask(MetadataRequest(topics=[]), 9).brokers
                assert create(raw).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            with enter(port(three, other), "bob") as raw:
                assert renew(raw, made.hmac, 30_000).error_code == 0
                assert made.token_id in {each.token_id for each in describe(raw).tokens}
        with enter(port(three, NODES[node % 3]), "ann") as raw:
            assert expire(raw, made.hmac).error_code == 0
        wait_for(three, node, made.token_id, there=False)
        with Raw(port(three, node)) as raw:
            assert login_with(raw, made.token_id, made.hmac).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_the_controller_sweeps_for_all(three: TestCluster) -> None:
    follower = next(node for node in NODES if node != leader(three))
    with enter(port(three, follower), "ann") as raw:
        made = create(raw, lifetime_ms=300)
    for node in NODES:
        wait_for(three, node, made.token_id, there=False)


@pytest.mark.parametrize("is_token", [False, True])
def test_the_controller_hears_that_a_token_asks(
    three: TestCluster, controllers: dict[int, int], is_token: bool
) -> None:
    asked = encode_request(RequestHeader(38, 3, 1, "t"), CreateDelegationTokenRequest(None, None, [], -1))[SIZE_BYTES:]
    principal = b"\0\0" + DefaultPrincipalData(type="User", name="ann", token_authenticated=is_token).encode(0)
    with Raw(controllers[leader(three)]) as raw:
        said = raw.ask(EnvelopeRequest(bytes(asked), principal, b"\x7f\0\0\1"), 0)
        assert said.error_code == 0
        data = bytes(said.response_data)
        _, at = decode_response_header(data, 38, 3)
        answer = CreateDelegationTokenResponse.decode(data, 3, at)
    expected = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if is_token else ErrorCode.NONE
    assert (answer.error_code, answer.principal_name) == (expected, "ann")
