"""Quotas in a cluster: every broker takes and keeps them, and what nodes do for each other is not measured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker.net.test_client_quotas import Client
from broker.raw import batch, fetch, produce
from compat.kafka_says.quotas import Changes, Parts, alter, describe
from peers.waiting import until

import headrace.testing
from headrace.testing import TestCluster
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest

SLOW: Parts = [("client-id", "slow")]


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster() as running:
        yield running


def limit(cluster: TestCluster, node_id: int, parts: Parts, changes: Changes) -> None:
    """Asks one broker, and waits until all know of it."""
    with Client(cluster.nodes[node_id].port, "operator") as raw:
        assert alter(raw, [(parts, changes)])[0][0] == 0
    wanted = sorted((key, value) for key, value in changes if value is not None)
    components = [(kind, 0 if name else 1, name) for kind, name in parts]
    for node in cluster.nodes.values():
        with Client(node.port, "operator") as raw:

            def is_known(raw: Client = raw) -> bool:
                return [each for _, each in describe(raw, components, True)[1] or []] == [wanted] * bool(wanted)

            until(is_known)


def create(raw: Client, name: str, partitions: int) -> tuple[int, int]:
    answer = raw.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 3)], timeout_ms=30_000), 7)
    return answer.topics[0].error_code, answer.throttle_time_ms


def test_every_broker_takes_quotas_and_the_controller_counts_changes(three: TestCluster) -> None:
    limit(three, 1, SLOW, [("controller_mutation_rate", 1.0)])
    followers = [id_ for id_ in three.nodes if id_ != three.controller()]
    with Client(three.nodes[followers[0]].port) as one, Client(three.nodes[followers[1]].port) as other:
        assert create(one, "first", 30) == (0, 0)
        code, throttle_ms = create(other, "second", 1)
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and throttle_ms > 0
        # The broker that was asked does not read from its client; the controller goes on for others.
        assert three.nodes[followers[1]].call(lambda inside: len(inside.server.shared.mutes)) == 1
        with Client(three.nodes[followers[1]].port, "fast") as fast:
            assert create(fast, "third", 1) == (0, 0)
    limit(three, 2, SLOW, [("controller_mutation_rate", None)])


@pytest.mark.slow
def test_replication_goes_on_whatever_the_quotas_of_everybody_are(three: TestCluster) -> None:
    with Client(three.nodes[1].port, "fast") as raw:
        assert create(raw, "kept", 1)[0] == 0
    until(
        lambda: all(
            three.nodes[id_].call(
                lambda inside: ("kept", 0) in inside.replicas.by_name or bool(inside.replicas.held(("kept", 0)))
            )
            for id_ in three.nodes
        )
    )
    leader = three.nodes[1].call(lambda inside: inside.image.topics.partition("kept", 0).leader)  # type: ignore[union-attr]
    everybody: Parts = [("user", None)]
    limit(three, 1, everybody, [("consumer_byte_rate", 1.0), ("producer_byte_rate", 1e9), ("request_percentage", 1e-6)])
    with Client(three.nodes[leader].port, "fast") as raw:
        for _ in range(3):
            answer = raw.ask(produce("kept", batch(b"x" * 5000), acks=-1), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0, "all replicas have it"
        image = three.nodes[leader].call(lambda inside: inside.image.topics.partition("kept", 0))
        assert image is not None and len(image.isr) == 3
        assert raw.ask(fetch("kept"), 11).throttle_time_ms > 0
    limit(
        three, 1, everybody, [("consumer_byte_rate", None), ("producer_byte_rate", None), ("request_percentage", None)]
    )
