"""Clients that leave while a request of theirs is at work: nothing is read of their connections meanwhile."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from broker.raw import Raw, batch, create_topic, produce
from broker.requests.test_long_controller_requests import in_envelope
from peers.certificates import Authority, write_trust_pem
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.broker.net import server
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.testing.running_cluster import cluster
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from headrace.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

VERSION = 5
LONG = DescribeGroupsRequest(groups=[f"g{number}" for number in range(60_000)])
LONG_OF_SHORT_ANSWER = DescribeLogDirsRequest(
    topics=[DescribableLogDirTopic(topic=f"no{number}", partitions=[0]) for number in range(20_000)]
)
HELD = 2_000_000
"""What it takes of the budget for requests, at least."""


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANGUP_S", 0.02)


@contextmanager
def turn_taken(node: TestBroker) -> Iterator[None]:
    """Another request has the turn: a long one waits."""
    turn = node.call(lambda inside: inside.long_answers.turn)
    node.call(lambda _: setattr(turn, "_locked", True))
    try:
        yield
    finally:
        node.call(lambda _: turn.release())


def connections(node: TestBroker) -> int:
    return node.call(lambda inside: len(inside.server.connections))


def held(node: TestBroker) -> int:
    return node.call(lambda inside: inside.server.requests_budget.used)


def tls_settings(folder: Path, authority: Authority) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server().write_pem(folder / "server.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(write_trust_pem(folder / "ca.pem", [authority])),
    }


def killed(link: socket.socket) -> None:
    link.close()


def says_farewell(link: socket.socket) -> None:
    assert isinstance(link, ssl.SSLSocket)
    link.settimeout(0.01)
    with suppress(OSError):  # the broker does not answer it
        link.unwrap()
    link.close()


@pytest.mark.parametrize(
    ("version", "leaves"),
    [
        (None, killed),
        (ssl.TLSVersion.TLSv1_2, killed),
        (ssl.TLSVersion.TLSv1_2, says_farewell),
        (ssl.TLSVersion.TLSv1_3, killed),
        (ssl.TLSVersion.TLSv1_3, says_farewell),
    ],
)
def test_a_client_that_leaves_holds_nothing(
    tmp_path: Path, version: ssl.TLSVersion | None, leaves: Callable[[socket.socket], None]
) -> None:
    with running_broker(tls_settings(tmp_path, Authority.new()), data=tmp_path / "data") as node:
        port = node.call(lambda inside: inside.listeners[0 if version is None else 1].port)
        link: socket.socket = socket.create_connection(("127.0.0.1", port))
        if version is not None:
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            context.minimum_version = context.maximum_version = version
            link = context.wrap_socket(link, server_hostname="localhost")
        with turn_taken(node):
            Raw.over(link).send(LONG, VERSION)
            until(lambda: held(node) > HELD, "it is at work")
            leaves(link)
            until(lambda: connections(node) == 0, "the end of its connection")
        until(lambda: held(node) == 0, "nothing is held")


def test_what_was_sent_before_the_client_left_is_handled() -> None:
    """Nobody waits for the answer to Produce with acks=0: to send and leave is right."""
    with running_broker() as node:
        create_topic(node.port, "t", 1)
        with turn_taken(node):
            with Raw(node.port) as raw:
                raw.send(LONG_OF_SHORT_ANSWER, 4)  # a long answer would meet the end of the connection
                for number in range(10):
                    raw.send(produce("t", batch(b"%d" % number), acks=0), 9)
                until(lambda: held(node) > HELD, "it is at work")
            looks = node.call(counted_looks)
            until(lambda: len(looks) > 3, "the broker looked for hangups")
            assert connections(node) == 1
        until(lambda: node.call(lambda inside: inside.replicas.by_name["t", 0].log.end_offset) == 10, "its records")
        until(lambda: connections(node) == 0, "the end of its connection")


def counted_looks(inside: Broker) -> list[int]:
    """One entry for each time that the broker has looked for hangups from now on."""
    looks: list[int] = []
    look = inside.server._look_for_hangups

    def counted() -> None:
        look()
        looks.append(len(looks))

    inside.server._look_for_hangups = counted  # type: ignore[method-assign]
    return looks


def test_a_controller_notices_that_the_forwarding_broker_has_gone() -> None:
    """Whatever the broker has sent behind: nobody can be answered any longer."""
    wanted = [CreatePartitionsTopic(name=f"t{number}", count=2) for number in range(20_000)]
    request = in_envelope(CreatePartitionsRequest(topics=wanted, timeout_ms=1000), 2, "127.0.0.1")
    with cluster(3) as three:
        node = three.nodes[three.controller()]
        port = node.call(
            lambda inside: next(each.port for each in inside.server.listeners if each.name == "CONTROLLER")
        )

        def from_here() -> int:
            ports = node.call(lambda inside: [each.stream.peer_port for each in inside.server.connections])
            return ports.count(here)

        with turn_taken(node):
            with Raw(port) as raw:
                here = raw.socket.getsockname()[1]
                raw.send(request, 0)
                raw.send(ApiVersionsRequest(), 0)
                until(lambda: held(node) > HELD, "it is at work")
                assert from_here() == 1
            until(lambda: from_here() == 0, "the end of the connection")
