"""Batches that an idempotent producer sent in a row, to a broker that begins to take them in their middle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.partitions.members import Cluster

from headrace.broker.partitions.refused_batches import KEPT_S
from headrace.sim.client import SimClient
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.records import Record, build_batch

NONE, LATER = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def produce(client: SimClient, sequence: int, epoch: int = 0, topic_id: bytes = b"") -> ErrorCode:
    """Ten records from a sequence on; producers send the next ones before they have the answer. `topic_id`: instead of
    the topic's name."""
    records = [Record(at, 1, None, b"%d" % (sequence + at)) for at in range(10)]
    batch = build_batch(records, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    topic = TopicProduceData("t", topic_id or bytes(16), [PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
    answer: Any = await client.ask(request, ProduceResponse, 13 if topic_id else 12)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_a_new_leader_waits_for_what_it_refused_as_a_follower() -> None:
    """It has nothing of the producer, and would take any batch for its first: librdkafka counts all before it as
    acknowledged then."""
    cluster = Cluster(2)
    client = SimClient(cluster.world, "producer", "broker2")

    async def test() -> None:
        cluster.create(leader=1)
        await cluster.until(lambda: cluster[2].replicas.held(("t", 0)))
        assert await produce(client, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await produce(client, 10) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.change(leader=2, isr=[2])
        assert [await produce(client, at) for at in (20, 10, 30, 0, 20, 10, 20)] == [
            LATER, LATER, LATER, NONE, LATER, NONE, NONE,
        ]  # fmt: skip

    cluster.run(test)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_new_leader_waits_for_what_it_refused_before_it_knew_of_the_topic(by_id: bool) -> None:
    """Its metadata are a moment behind those that sent the client here. Java's client names the topic by its id."""
    cluster = Cluster(2)
    client = SimClient(cluster.world, "producer", "broker1")

    async def test() -> None:
        cluster.deaf = {1}
        made = cluster.create(leader=1, isr=(1,))
        topic_id = made if by_id else b""
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [await produce(client, at, topic_id=topic_id) for at in (0, 10)] == [unknown, unknown]
        cluster.hears(1)
        assert [await produce(client, at, topic_id=topic_id) for at in (20, 10, 0, 10, 20)] == [
            LATER, LATER, NONE, NONE, NONE,
        ]  # fmt: skip

    cluster.run(test)


def test_what_was_given_up_long_ago_is_waited_for_no_more() -> None:
    """librdkafka drops what it has for a topic that is gone, and goes on behind that when there is one again."""
    cluster = Cluster(2)
    client = SimClient(cluster.world, "producer", "broker1")

    async def test() -> None:
        assert await produce(client, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await asyncio.sleep(KEPT_S + 1)
        cluster.create(leader=1, isr=(1,))
        assert await produce(client, 10) is NONE

    cluster.run(test)


def test_what_another_leader_took_is_waited_for_no_more() -> None:
    cluster = Cluster(2)
    at_follower, at_leader = (SimClient(cluster.world, f"producer{node}", f"broker{node}") for node in (2, 1))

    async def test() -> None:
        cluster.create(leader=1)
        await cluster.until(lambda: cluster[2].replicas.held(("t", 0)))
        assert await produce(at_follower, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [await produce(at_leader, at) for at in (0, 10)] == [NONE, NONE]
        cluster.change(leader=2, isr=[2])
        assert [await produce(at_follower, at) for at in (30, 20)] == [LATER, NONE]

    cluster.run(test)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_leader_with_too_few_replicas_waits_for_what_it_refused(epoch: int) -> None:
    """A producer that has given the batch up begins anew, under another epoch."""
    cluster = Cluster(2)
    client = SimClient(cluster.world, "producer", "broker1")

    async def test() -> None:
        cluster.create(leader=1, isr=(1,), min_insync_replicas="2")
        cluster.machines[2].take_away()
        assert await produce(client, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.machines[2].bring_back()
        await cluster.machines[2].ready()
        await cluster.until(lambda: cluster.partition().isr == (1, 2))
        assert await produce(client, 10, epoch) is LATER
        assert await produce(client, 0, epoch) is NONE

    cluster.run(test)
