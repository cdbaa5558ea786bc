"""The sender of markers over real sockets: to brokers that say what a test tells them to, and to itself without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from broker.controllers import until
from client.fake_broker import HANG_UP, FakeBroker

from headrace.broker.coordinators import marker_sender
from headrace.broker.coordinators.local_markers import PartitionEnding
from headrace.broker.coordinators.marker_sender import HEARD_AT_ONCE, MarkerSender
from headrace.broker.telemetry.metrics import Registry
from headrace.config import BrokerConfig
from headrace.env.completion import Completion
from headrace.env.posix_node import PosixNode
from headrace.machine.outcome import Ending
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import Broker, ClusterImage, Endpoint, Partition, Topic, TopicsImage
from headrace.transactions.asks import Marking, TopicPartition
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import EndMarker
from headrace.wire.messages.k27_write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

SELF = 1
NONE = ErrorCode.NONE
Sent = tuple[int, int, bool, int, int, dict[str, list[int]]]
OF_7, OF_8 = (Ending(EndMarker(producer_id, 3, 9, True), raises_epoch=True) for producer_id in (7, 8))
"""What is to be written of the transactions of these producers."""


def sent_in(request: WriteTxnMarkersRequest) -> list[Sent]:
    return [
        (
            each.producer_id,
            each.producer_epoch,
            each.transaction_result,
            each.coordinator_epoch,
            each.transaction_version,
            {topic.name: topic.partition_indexes for topic in each.topics},
        )
        for each in request.markers
    ]


def answer_to(request: WriteTxnMarkersRequest, code: int = NONE) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name, [WritableTxnMarkerPartitionResult(i, code) for i in topic.partition_indexes]
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


class Peer:
    """Another broker: answers each request with the next of `script`, and then with success.

    While it does not go on, it answers nothing; or, where partitions are `stuck`, no request that names one of them and
    nothing behind that on the same connection, as Apache Kafka does.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.requests: list[list[Sent]] = []
        self.script: list[Any] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.stuck: set[tuple[str, int]] = set()
        self.broker = stack.enter_context(FakeBroker(answers={ApiKey.WRITE_TXN_MARKERS: self._answer}))

    def _answer(self, request: WriteTxnMarkersRequest, _version: int) -> Any:
        self.requests.append(sent_in(request))
        named = {
            (topic.name, i) for marker in request.markers for topic in marker.topics for i in topic.partition_indexes
        }
        if not self.stuck or self.stuck & named:
            self.goes_on.wait(10)
        what = self.script.pop(0) if self.script else NONE
        return answer_to(request, what) if isinstance(what, int) else what


class World:
    """Brokers 2 and 3 beside this one, and topics that they lead."""

    def __init__(self, node: PosixNode, stack: ExitStack) -> None:
        self.node = node
        self.peers = {id_: Peer(stack) for id_ in (2, 3)}
        self.here: list[list[tuple[TopicPartition, Ending]]] = []
        self.here_says: list[ErrorCode] = []
        self.listeners: list[Any] = []
        self.done: list[str] = []
        self.config = BrokerConfig.load({"request.timeout.ms": "60000"})
        brokers = {id_: self._broker(id_, peer.broker.port) for id_, peer in self.peers.items()}
        self.image = ClusterImage(brokers=brokers)
        self.metrics = Registry()
        self.sender = MarkerSender(
            node, self.metrics, config=lambda: self.config, node_id=SELF, write_local=self._write_local
        )
        self.sender.start(self)

    @staticmethod
    def _broker(id_: int, port: int) -> Broker:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port, 0)
        return Broker(id_, 40 + id_, bytes(16), (endpoint,), (), None, False, False, ())

    def on_image(self, listener: Callable[[ClusterImage, ClusterImage, ImageDelta], None]) -> None:
        self.listeners.append(listener)

    def _write_local(self, markers: Sequence[PartitionEnding]) -> list[Completion[ErrorCode]]:
        self.here.append(list(markers))
        says = self.here_says.pop(0) if self.here_says else NONE
        answers = [Completion[ErrorCode](self.node.completions) for _ in markers]
        for answer in answers:
            answer.complete(says)
        return answers

    def lead(self, name: str, *leaders: int, followers: Sequence[tuple[int, ...]] = ()) -> None:
        """A topic whose partitions these brokers lead, one each; without any it is deleted. In sync are all brokers, or
        with its leader the `followers` of each."""
        in_sync = [(leader, *each) for leader, each in zip(leaders, followers, strict=True)] if followers else None
        partitions = tuple(
            Partition(i, (1, 2, 3), (), in_sync[i] if in_sync else (1, 2, 3), leader, 0, 0)
            for i, leader in enumerate(leaders)
        )
        topics = {topic.name: topic for topic in self.image.topics}
        gone = topics.pop(name, None)
        if leaders:
            topics[name] = Topic(name, name.encode().ljust(16), partitions)
        by_id = {topic.id: topic for topic in topics.values()}
        self.becomes(replace(self.image, topics=TopicsImage(by_id, topics)), deleted=None if leaders else gone)

    def fence(self, id_: int, fenced: bool) -> None:
        changed = {**self.image.brokers, id_: replace(self.image.brokers[id_], fenced=fenced)}
        self.becomes(replace(self.image, brokers=changed), broker=id_)

    def becomes(self, image: ClusterImage, *, deleted: Topic | None = None, broker: int | None = None) -> None:
        delta = ImageDelta(self.image)
        if broker is not None:
            delta.changed_brokers.add(broker)
        elif deleted is not None:
            delta.deleted_topics[deleted.id] = deleted
        else:
            delta.topics[b"any"] = Any  # type: ignore[assignment]
        old, self.image = self.image, image
        for listener in self.listeners:
            listener(old, image, delta)

    def send(self, name: str, *partitions: tuple[str, int], producer_id: int = 7, origin: str = "shard") -> Marking:
        marking = Marking(name, producer_id, 3, True, 2, set(partitions))
        self.sender.send(origin, marking, 9, lambda: self.done.append(name))
        return marking


@pytest.fixture
async def world(stack: ExitStack) -> Any:
    node = PosixNode()
    world = World(node, stack)
    yield world
    for peer in world.peers.values():
        peer.goes_on.set()
    await world.sender.stop()
    await node.close()


async def test_what_is_led_here_is_written_in_the_next_turn_together(world: World) -> None:
    world.lead("t", SELF, SELF)
    markings = [world.send("a", ("t", 1), ("t", 0)), world.send("b", ("t", 0), producer_id=8)]
    assert world.done == [] and world.here == []
    await until(lambda: world.done)
    assert world.done == ["a", "b"] and not any(each.left for each in markings)
    assert world.here == [[(("t", 0), OF_7), (("t", 1), OF_7), (("t", 0), OF_8)]]


async def test_two_ends_of_one_producer_are_told_apart(world: World) -> None:
    world.lead("t", SELF)
    world.send("a", ("t", 0))
    world.send("b", ("t", 0))
    await until(lambda: len(world.done) == 2)
    assert world.here == [[(("t", 0), OF_7)] * 2]


async def test_what_was_dropped_before_it_left_is_not_sent(world: World) -> None:
    world.lead("t", SELF)
    world.send("a", ("t", 0), origin="lost")
    kept = world.send("b", ("t", 0), producer_id=8)
    world.sender.drop("lost")
    await until(lambda: not kept.left)
    assert world.done == ["b"]
    assert world.here == [[(("t", 0), OF_8)]]


async def test_each_leader_gets_its_own(world: World) -> None:
    world.lead("t", SELF, 2, 3, 2)
    world.lead("u", 2)
    world.send("a", ("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0))
    await until(lambda: world.done)
    assert world.here == [[(("t", 0), OF_7)]]
    assert world.peers[2].requests == [[(7, 3, True, 9, 2, {"t": [1, 3], "u": [0]})]]
    assert world.peers[3].requests == [[(7, 3, True, 9, 2, {"t": [2]})]]


async def test_one_request_is_under_way_and_the_next_has_the_rest(world: World) -> None:
    world.lead("t", 2)
    world.peers[2].goes_on.clear()
    world.send("first", ("t", 0), producer_id=1)
    await until(lambda: world.peers[2].requests)
    for number in range(2, 12):
        world.send(f"other-{number}", ("t", 0), producer_id=number)
    await asyncio.sleep(0.05)
    assert len(world.peers[2].requests) == 1
    world.peers[2].goes_on.set()
    await until(lambda: len(world.done) == 11)
    assert [[each[0] for each in request] for request in world.peers[2].requests] == [[1], [*range(2, 12)]]


async def test_an_answer_for_many_transactions_is_heard_a_little_at_a_time(world: World) -> None:
    count = 5 * HEARD_AT_ONCE
    world.lead("t", 2)
    for number in range(count):
        world.send(f"{number}", ("t", 0), producer_id=number)
    seen = [0]
    while seen[-1] < count:
        await asyncio.sleep(0)  # one turn of the loop
        seen.append(len(world.done))
    assert max(after - before for before, after in pairwise(seen)) <= HEARD_AT_ONCE
    assert len(world.peers[2].requests) == 1 and sorted(world.done, key=int) == [str(i) for i in range(count)]


async def test_a_stuck_partition_holds_up_who_shares_its_request_alone(world: World) -> None:
    world.lead("t", 2, 2, 2)
    peer = world.peers[2]
    peer.stuck = {("t", 0)}
    peer.goes_on.clear()
    stuck = world.send("stuck", ("t", 0), ("t", 1), producer_id=1)
    await until(lambda: peer.requests)
    world.send("goes on", ("t", 2), producer_id=2)
    world.send("waits", ("t", 1), producer_id=3)
    await until(lambda: world.done)
    world.send("goes on too", ("t", 2), producer_id=4)
    await until(lambda: len(world.done) == 2)
    assert world.done == ["goes on", "goes on too"] and len(stuck.left) == 2
    peer.goes_on.set()
    await until(lambda: len(world.done) == 4)
    world.send("together again", ("t", 0), ("t", 1), ("t", 2), producer_id=5)
    await until(lambda: len(world.done) == 5)
    asked = [[(each[0], each[5]["t"]) for each in request] for request in peer.requests]
    assert asked == [[(1, [0, 1])], [(2, [2])], [(4, [2])], [(3, [1])], [(5, [0, 1, 2])]]


async def test_a_partition_waits_for_followers_of_its_own_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request would not name one that is stuck with one that is not, even the first time."""
    monkeypatch.setattr(marker_sender, "HELD_AFTER_MS", 60_000)
    world.lead("t", 2, 2, 2, 2, followers=[(3,), (3,), (1,), (1, 3)])
    peer = world.peers[2]
    peer.stuck = {("t", 0)}
    peer.goes_on.clear()
    world.send("stuck", ("t", 0), ("t", 1), ("t", 2), producer_id=1)
    world.send("goes on", ("t", 2), ("t", 3), producer_id=2)
    await until(lambda: world.done)
    assert world.done == ["goes on"]
    peer.goes_on.set()
    await until(lambda: len(world.done) == 2)
    asked = [{each[0]: each[5]["t"] for each in request} for request in peer.requests]
    assert sorted(asked, key=str) == [{1: [0, 1]}, {1: [2], 2: [2]}, {2: [3]}]


async def test_a_leader_of_ours_is_asked_for_all_together(world: World) -> None:
    """It says in time which partitions are stuck."""
    world.peers[2].broker.answers[ApiKey.HEADRACE_GROUP_END_TXN] = lambda *_: None
    world.lead("t", 2, 2, followers=[(3,), (1,)])
    world.send("a", ("t", 0), ("t", 1))
    await until(lambda: world.done)
    assert world.peers[2].requests == [[(7, 3, True, 9, 2, {"t": [0, 1]})]]


async def test_a_leader_that_becomes_another_kind_of_broker(world: World) -> None:
    peer = world.peers[2]
    world.lead("t", 2, 2, followers=[(3,), (1,)])
    for is_ours in (False, True, False):
        peer.broker.answers.pop(ApiKey.HEADRACE_GROUP_END_TXN, None)
        if is_ours:
            peer.broker.answers[ApiKey.HEADRACE_GROUP_END_TXN] = lambda *_: None
        world.fence(2, True)  # it starts again; its connections end
        world.fence(2, False)
        for name in ("first", "then"):
            peer.requests.clear()
            world.send(name, ("t", 0), ("t", 1))
            await until(lambda: world.done == [name])  # noqa: B023
            world.done.clear()
        assert len(peer.requests) == (1 if is_ours else 2)


async def test_followers_beyond_a_bound_share_their_connections(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "LANES_MAX", 2)
    monkeypatch.setattr(marker_sender, "HELD_AFTER_MS", 60_000)
    world.lead("t", 2, 2, 2, followers=[(1,), (3,), (1, 3)])
    peer = world.peers[2]
    peer.goes_on.clear()
    for number in range(3):
        world.send(f"{number}", ("t", number), producer_id=number)
    await until(lambda: len(peer.requests) == 2)
    await asyncio.sleep(0.05)
    assert len(peer.requests) == 2
    peer.goes_on.set()
    await until(lambda: len(world.done) == 3)
    for number in range(9):
        world.send(f"{number}", ("t", number % 3), producer_id=number)
        await until(lambda: len(world.done) == 4 + number)  # noqa: B023
    assert len(world.sender._lanes) == 2


@pytest.mark.parametrize("says_so", [True, False])
async def test_what_was_not_written_in_time_goes_apart(
    world: World, monkeypatch: pytest.MonkeyPatch, says_so: bool
) -> None:
    monkeypatch.setattr(marker_sender, "HELD_AFTER_MS", 60_000)
    monkeypatch.setattr(marker_sender, "BACKOFF_MS", 200)
    world.lead("t", 2, 2)
    peer = world.peers[2]
    peer.stuck = {("t", 0)}
    if says_so:
        peer.script = [ErrorCode.REQUEST_TIMED_OUT]
    else:
        monkeypatch.setattr(marker_sender, "ANSWER_MARGIN_MS", 50 - world.config.request_timeout_ms)
        peer.goes_on.clear()
    stuck = world.send("stuck", ("t", 0), producer_id=1)
    await until(lambda: world.metrics.counter("transactions.markers_sent_again").value == 1)
    monkeypatch.undo()
    monkeypatch.setattr(marker_sender, "HELD_AFTER_MS", 60_000)
    peer.goes_on.clear()
    await until(lambda: len(peer.requests) == 2)
    world.send("waits", ("t", 0), producer_id=2)
    world.send("goes on", ("t", 1), producer_id=3)
    await until(lambda: world.done)
    assert world.done == ["goes on"] and stuck.left
    peer.goes_on.set()
    await until(lambda: len(world.done) == 3)
    assert world.done == ["goes on", "stuck", "waits"]


async def test_there_are_two_connections_to_a_broker_at_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "HELD_AFTER_MS", 20)
    world.lead("t", 2, 2, 2)
    peer = world.peers[2]
    peer.stuck = {("t", 0), ("t", 1)}
    peer.goes_on.clear()
    for number in range(3):
        world.send(f"{number}", ("t", number), producer_id=number)
        await until(lambda: len(peer.requests) == min(number + 1, 2))  # noqa: B023
    await asyncio.sleep(0.1)
    assert not world.done and len(peer.requests) == 2
    peer.goes_on.set()
    await until(lambda: len(world.done) == 3)


async def test_a_topic_that_is_gone_needs_no_marker(world: World) -> None:
    world.lead("t", SELF)
    marking = world.send("a", ("never", 0), ("t", 0), ("t", 5))
    await until(lambda: world.done)
    assert world.done == ["a"] and not marking.left
    assert world.here == [[(("t", 0), OF_7)]]


async def test_a_topic_that_goes_while_its_marker_waits_is_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "BACKOFF_MS", 60_000)
    monkeypatch.setattr(marker_sender, "BACKOFF_MAX_MS", 60_000)
    world.lead("t", 2)
    world.peers[2].script = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    marking = world.send("a", ("t", 0))
    await until(lambda: world.metrics.counter("transactions.markers_sent_again").value)
    assert marking.left and not world.done
    world.lead("t")
    assert world.done == ["a"]
    assert len(world.peers[2].requests) == 1


async def test_an_answer_that_is_lost_is_asked_for_again(world: World) -> None:
    world.lead("t", 2)
    world.peers[2].script = [HANG_UP, HANG_UP]
    world.send("a", ("t", 0))
    await until(lambda: world.done)
    assert world.peers[2].requests == 3 * [[(7, 3, True, 9, 2, {"t": [0]})]]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
async def test_the_leader_is_looked_up_anew_as_soon_as_it_is_another(
    world: World, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    monkeypatch.setattr(marker_sender, "BACKOFF_MS", 60_000)
    monkeypatch.setattr(marker_sender, "BACKOFF_MAX_MS", 60_000)
    world.lead("t", 2, 2)
    world.peers[2].script = [code]
    world.send("a", ("t", 0), ("t", 1))
    await until(lambda: world.metrics.counter("transactions.markers_sent_again").value == 2)
    world.lead("t", 3, SELF)
    await until(lambda: world.done)
    assert (len(world.peers[2].requests), len(world.peers[3].requests), len(world.here)) == (1, 1, 1)


@pytest.mark.parametrize(
    "code", [ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
)
async def test_what_a_partition_takes_or_cannot_take_is_done(world: World, code: ErrorCode) -> None:
    world.lead("t", 2)
    world.peers[2].script = [code]
    world.send("a", ("t", 0))
    await until(lambda: world.done)
    assert len(world.peers[2].requests) == 1


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
async def test_a_coordinator_that_is_fenced_sends_nothing_more(world: World, code: ErrorCode) -> None:
    world.lead("t", 2, 3)
    world.peers[2].script = [code]
    world.peers[2].goes_on.clear()
    world.peers[3].script = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    marking = world.send("a", ("t", 0), ("t", 1))
    await until(lambda: world.peers[2].requests and world.peers[3].requests)
    world.peers[2].goes_on.set()
    await until(lambda: not world.sender.deliveries)
    sent = len(world.peers[3].requests)  # again already, if the answer of the other one took longer than the pause
    await asyncio.sleep(3 * marker_sender.BACKOFF_MS / 1000)
    assert marking.left and not world.done
    assert len(world.peers[2].requests) == 1 and len(world.peers[3].requests) == sent


async def test_without_a_leader_it_waits_for_one(world: World) -> None:
    world.lead("t", -1)
    world.send("a", ("t", 0))
    await asyncio.sleep(3 * marker_sender.BACKOFF_MS / 1000)
    assert not world.done
    world.lead("t", 2)
    await until(lambda: world.done)


async def test_a_broker_that_hangs_is_left_when_it_is_fenced(world: World) -> None:
    """Its connection may stay open for long: nothing is answered there."""
    world.lead("t", 2)
    world.peers[2].goes_on.clear()
    world.send("a", ("t", 0))
    await until(lambda: world.peers[2].requests)
    world.fence(2, True)
    world.lead("t", 3)
    await until(lambda: world.done)
    assert len(world.peers[3].requests) == 1


async def test_what_is_dropped_has_no_effect_any_more(world: World) -> None:
    world.lead("t", 2, 3, SELF)
    world.peers[2].goes_on.clear()
    world.peers[3].script = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    dropped = world.send("a", ("t", 0), ("t", 1))
    await until(lambda: world.peers[2].requests)
    queued = world.send("b", ("t", 0), producer_id=8)
    world.sender.drop("shard")
    kept = world.send("c", ("t", 0), producer_id=9, origin="other shard")
    world.peers[2].goes_on.set()
    await until(lambda: world.done)
    await asyncio.sleep(3 * marker_sender.BACKOFF_MS / 1000)
    assert world.done == ["c"] and not kept.left
    assert dropped.left == {("t", 0), ("t", 1)} and queued.left
    assert [[each[0] for each in request] for request in world.peers[2].requests] == [[7], [9]]
    assert len(world.peers[3].requests) <= 1


async def test_the_answer_to_an_older_end_does_not_count_for_a_newer_one(world: World) -> None:
    """KAFKA-16352."""
    world.lead("t", 2)
    world.peers[2].goes_on.clear()
    older = world.send("a", ("t", 0))
    await until(lambda: world.peers[2].requests)
    newer = world.send("a", ("t", 0))
    world.peers[2].goes_on.set()
    await until(lambda: not newer.left)
    assert older.left and world.done == ["a"]
    assert len(world.peers[2].requests) == 2


async def test_a_refusal_here_is_tried_again(world: World) -> None:
    world.here_says = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    world.lead("t", SELF)
    world.send("a", ("t", 0))
    assert not world.done
    await until(lambda: world.done)
    assert len(world.here) == 3
