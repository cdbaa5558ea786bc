"""What is asked of the controller, one request at a time, and what its answers do; producers that wait meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.partitions.members import Cluster, Member

from headrace.broker.partitions.isr_changes import GROWS
from headrace.controller.in_sync import AlterPartitions, PartitionsAltered
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.records import Record, build_batch


class Controller:
    """A controller that answers when the test says so."""

    def __init__(self, cluster: Cluster) -> None:
        self.asked: list[tuple[AlterPartitions, asyncio.Future[PartitionsAltered]]] = []
        self._cluster = cluster
        cluster.alter = self.alter  # type: ignore[method-assign]

    async def alter(self, asked: AlterPartitions) -> PartitionsAltered:
        self.asked.append((asked, asyncio.get_running_loop().create_future()))
        return await self.asked[-1][1]

    def answer(self, *errors: ErrorCode, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answers the newest request: an error for each partition, or what it asked for."""
        asked, future = self.asked[-1]
        results: list[Any] = []
        for change, code in zip(asked.changes, errors, strict=False):
            partition = None
            if not code:
                topic = self._cluster.image.topics.by_id(change.topic_id)
                assert topic is not None
                self._cluster.change(topic.name, isr=[each for each, _ in change.members])
                partition = self._cluster.partition(topic.name)
            results.append((change.topic_id, change.index, code, partition))
        future.set_result(PartitionsAltered(error, results))


def names(cluster: Cluster, asked: AlterPartitions) -> list[str]:
    topics = [cluster.image.topics.by_id(change.topic_id) for change in asked.changes]
    return [topic.name for topic in topics if topic is not None]


def test_one_request_at_a_time_and_one_change_a_partition() -> None:
    cluster = Cluster(2)
    controller = Controller(cluster)

    async def test() -> None:
        cluster.create("a", isr=(1,))
        await cluster.until(lambda: controller.asked)
        cluster.create("b", isr=(1,))
        cluster.create("c", isr=(1,))
        await asyncio.sleep(1)
        assert [names(cluster, asked) for asked, _ in controller.asked] == [["a"]]
        controller.answer(ErrorCode.NONE)
        await cluster.until(lambda: len(controller.asked) == 2)
        assert sorted(names(cluster, controller.asked[1][0])) == ["b", "c"]
        # One is refused and asked again as it comes, the other waits for metadata.
        controller.answer(ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_UPDATE_VERSION)
        await cluster.until(lambda: len(controller.asked) == 3)
        await asyncio.sleep(2)
        assert len(controller.asked) == 3 and len(controller.asked[2][0].changes) == 1
        controller.answer(ErrorCode.NONE)
        await asyncio.sleep(1)
        (left,) = [name for name in "bc" if cluster.partition(name).isr == (1,)]
        cluster.change(left, isr=[1])
        await cluster.until(lambda: len(controller.asked) == 4)
        controller.answer(ErrorCode.NONE)
        await cluster.until(lambda: cluster.partition(left).isr == (1, 2))

    cluster.run(test)


def test_one_answer_is_a_line_in_the_log_however_many_partitions_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(2)
    controller = Controller(cluster)
    lines: list[str] = []
    monkeypatch.setattr(cluster.world.trace, "_say", lines.append)

    async def test() -> None:
        cluster.create("a", isr=(1,))
        await cluster.until(lambda: controller.asked)
        for name in "bcd":
            cluster.create(name, isr=(1,))
        controller.answer(ErrorCode.NONE)
        await cluster.until(lambda: len(controller.asked) == 2)
        controller.answer(*[ErrorCode.NONE] * len(controller.asked[1][0].changes))
        await cluster.until(lambda: all(cluster.partition(name).isr == (1, 2) for name in "abcd"))

    cluster.run(test)
    first, *others = [line for line in lines if GROWS in line]
    assert "('partition', 'a-0')" in first
    assert len(others) == len(controller.asked) - 1, "one for each answer"
    assert "b-0" in others[0]


def test_a_request_that_is_refused_comes_again() -> None:
    cluster = Cluster(2)
    controller = Controller(cluster)

    async def test() -> None:
        cluster.create(isr=(1,))
        for count in (1, 2, 3):
            await cluster.until(lambda count=count: len(controller.asked) == count)  # type: ignore[misc]
            if count == 1:
                controller.answer(error=ErrorCode.STALE_BROKER_EPOCH)
            elif count == 2:
                controller.answer(ErrorCode.NOT_CONTROLLER)
        controller.answer(ErrorCode.NONE)
        await cluster.until(lambda: cluster.partition().isr == (1, 2))

    cluster.run(test)


def test_a_change_whose_answer_is_lost_is_asked_again_until_metadata_settle_it() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.refuses = ErrorCode.REQUEST_TIMED_OUT
        cluster.create(isr=(1,))
        await cluster.until(lambda: len(cluster.answers) > 3)
        assert cluster[1].replica().state.maximal_isr == (1, 2)
        cluster.change(isr=[1, 2])
        await asyncio.sleep(0.1)
        count = len(cluster.answers)
        await asyncio.sleep(1)
        assert len(cluster.answers) == count and cluster[1].replica().state.pending is None

    cluster.run(test)


def test_changes_are_counted_where_metadata_are_faster_than_the_answer() -> None:
    cluster = Cluster(2)
    controller = Controller(cluster)

    def counted() -> list[int]:
        metrics = cluster[1].metrics
        return [metrics.counter(f"replicas.isr_{name}").value for name in ("shrinks", "expands", "failed_updates")]

    async def test() -> None:
        cluster.create(isr=(1,))
        for error, expected in ((ErrorCode.INELIGIBLE_REPLICA, [0, 0, 1]), (ErrorCode.NONE, [0, 1, 1])):
            await cluster.until(lambda: controller.asked and not controller.asked[-1][1].done())
            controller.answer(error)
            await cluster.until(lambda expected=expected: counted() == expected)  # type: ignore[misc]
        cluster.world.network.partition("broker1", "broker2")
        await cluster[1].append(b"a")
        await cluster.until(lambda: not controller.asked[-1][1].done(), 60)
        controller.answer(ErrorCode.NONE)
        await cluster.until(lambda: counted() == [1, 1, 1])
        cluster.world.network.heal()

    cluster.run(test)


async def produce(cluster: Cluster, member: Member, *, acks: int = -1, timeout_ms: int = 1000) -> Any:
    batch = build_batch([Record(0, member.node.clock.now_ms(), None, b"v")])
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
    return await cluster.client.ask(request, ProduceResponse, 12)


async def latest(cluster: Cluster, version: int = 7) -> tuple[int, int]:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])
    found = (await cluster.client.ask(request, ListOffsetsResponse, version)).topics[0].partitions[0]
    return found.error_code, found.offset


def test_too_few_in_sync_take_no_append_with_acks_all() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create(min_insync_replicas="2")
        first = (await produce(cluster, cluster[1])).responses[0].partition_responses[0]
        assert (first.error_code, first.base_offset) == (0, 0)
        cluster.world.network.partition("broker1", "broker2")
        late = (await produce(cluster, cluster[1], timeout_ms=500)).responses[0].partition_responses[0]
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        await cluster.until(lambda: cluster.partition().isr == (1,))
        few = (await produce(cluster, cluster[1])).responses[0].partition_responses[0]
        assert few.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        # acks=1 is taken, and nobody may read it.
        one = (await produce(cluster, cluster[1], acks=1)).responses[0].partition_responses[0]
        assert (one.error_code, one.base_offset) == (0, 2)
        assert await latest(cluster) == (0, 1)
        cluster.world.network.heal()
        await cluster.until(lambda: cluster.partition().isr == (1, 2), 60)
        assert await latest(cluster) == (0, 3)

    cluster.run(test)


def test_a_deposed_leader_sends_who_waits_to_the_new_one() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        cluster.world.network.partition("broker1", "broker2")
        waiting = asyncio.ensure_future(produce(cluster, cluster[1], timeout_ms=60_000))
        await asyncio.sleep(0.2)
        cluster.change(leader=2)
        for answer in (await waiting, await produce(cluster, cluster[1])):
            partition = answer.responses[0].partition_responses[0]
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 1)
            assert [(each.node_id, each.host) for each in answer.node_endpoints] == [(2, "broker2")]
        cluster.world.network.heal()

    cluster.run(test)


def test_a_new_leader_that_does_not_know_the_latest_offset_yet_says_so() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        cluster.world.network.partition("broker1", "broker2")
        await cluster[1].append(b"a")
        cluster.change(leader=1)
        assert await latest(cluster) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await latest(cluster, 4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        cluster.world.network.heal()
        await cluster.until(lambda: cluster[1].replica().high_watermark == 1, 60)
        assert await latest(cluster) == (0, 1)

    cluster.run(test)
