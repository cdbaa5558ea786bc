"""What the idempotent producer delivers through moved leaders, lost answers and sizes that are refused: all, once, in
order. Each seed is one run, without sockets or a clock."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, cast

from peers.tried import tried

from headrace.client.batch_limits import BatchLimits
from headrace.client.channel import Call
from headrace.client.cluster import Client
from headrace.client.conversation import Await, Pause, Steps
from headrace.client.errors import ConnectionLostError
from headrace.client.producer import Producer
from headrace.client.producer_options import Transaction
from headrace.wire.batch import read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.records import Compression, Record, build_batch, decode_batch

TOPIC: Final = "events"
TOPIC_ID: Final = b"headrace-topic-1"
REMEMBERED: Final = 5
"""Batches of a producer that a broker knows again, by their first and last sequence."""

SEEDS: Final = tried(80)


@dataclass
class Log:
    """One partition, as its leaders keep it."""

    most: int
    leader: int = 0
    epoch: int = -1
    values: list[bytes | None] = field(default_factory=list)
    newest: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    refused: int = 0

    def append(self, batch: Any) -> tuple[int, int]:
        if len(batch) > self.most:
            self.refused += 1
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        header = read_header(batch)
        first, last = header.base_sequence, header.base_sequence + header.record_count - 1
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > self.epoch and self.epoch >= 0:
            if first:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.newest.clear()
        for known_first, known_last, offset in self.newest:
            if (first, last) == (known_first, known_last):
                return ErrorCode.NONE, offset
        if self.newest and first != self.newest[-1][1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.epoch = header.producer_epoch
        offset = len(self.values)
        self.newest.append((first, last, offset))
        self.values += [record.value for record in decode_batch(batch)]
        return ErrorCode.NONE, offset


@dataclass
class Info:
    leader: int
    id: bytes = TOPIC_ID
    partitions: tuple[int, ...] = (0, 1)


class Node:
    """A connection to one broker. Requests are answered in turn, when the world moves."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.waiting: deque[tuple[ProduceRequest, Call[ProduceResponse]]] = deque()
        self.channel = self

    def version_for(self, _api_key: int) -> int:
        return 12

    def send(self, request: ProduceRequest, response_class: type[ProduceResponse], **_: Any) -> Call[ProduceResponse]:
        call = Call(response_class, 12, 0)
        topics = [
            (topic.topic_id, [(part.index, bytes(cast("bytes", part.records))) for part in topic.partition_data])
            for topic in request.topic_data
        ]
        self.waiting.append((cast("Any", topics), call))
        return call

    def work(self) -> None:
        """Answers the oldest request."""
        topics, call = self.waiting.popleft()
        call.response, call.done = self._answer(topics), True

    def _answer(self, topics: Any) -> ProduceResponse:
        responses = []
        for topic_id, parts in topics:
            answers = []
            for index, data in parts:
                log = self.world.logs[index]
                if log.leader == self.number:
                    code, offset = log.append(data)
                    if code == ErrorCode.NONE and self.world.chance(0.05):
                        code, offset = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1
                else:
                    code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                answers.append(PartitionProduceResponse(index=index, error_code=code, base_offset=offset))
            responses.append(TopicProduceResponse(name=TOPIC, topic_id=topic_id, partition_responses=answers))
        return ProduceResponse(responses=responses)

    def close(self) -> None:
        """The connection ends: some of what was asked is done, and nothing is answered."""
        done = self.world.random.randint(0, len(self.waiting))
        for number, (topics, call) in enumerate(self.waiting):
            if number < done:
                self._answer(topics)
            call.error, call.done = ConnectionLostError("test", "closed"), True
        self.waiting.clear()


class World:
    """The cluster, its clock, and what the client knows of it."""

    def __init__(self, seed: int, most: int) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.logs = [Log(most), Log(most)]
        self.nodes = [Node(self, 0), Node(self, 1)]
        self.known: list[int | None] = [0, 0]
        self.batch_limits = BatchLimits(self.monotonic)
        self.known_topics = {TOPIC: Info(0)}

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # -- as the clock

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)

    # -- as the client and its router

    @property
    def router(self) -> World:
        return self

    @property
    def clock(self) -> World:
        return self

    def run(self, steps: Steps[Any]) -> Any:
        try:
            while True:
                step = next(steps)
                if isinstance(step, Pause):
                    self.now += step.seconds
                else:
                    assert isinstance(step, Await)
                    self.move(step.until - self.now)
        except StopIteration as stop:
            return stop.value

    def known_leader(self, _topic: str, index: int) -> Info:
        known = self.known[index]
        if known is None:
            known = self.known[index] = self.logs[index].leader
        return Info(known)

    def forget(self, _topics: Any) -> None:
        self.known = [None, None]

    @property
    def brokers(self) -> World:
        return self

    def open_connection(self, number: int) -> Node:
        return self.nodes[number]

    def close_node(self, number: int) -> None:
        self.nodes[number].close()

    def move(self, timeout_s: float) -> None:
        if timeout_s <= 0 and self.chance(0.7):
            return
        self.now += 0.001
        busy = [node for node in self.nodes if node.waiting]
        if self.chance(0.03):
            self.random.choice(self.logs).leader ^= 1
        if busy:
            node = self.random.choice(busy)
            if self.chance(0.08):
                node.close()
            else:
                node.work()


def run(seed: int) -> World:
    dice = random.Random(-seed)
    world = World(seed, dice.choice([250, 400, 1_000, 1 << 30]))
    compression = dice.choice(list(Compression))
    transaction = Transaction("fuzz", 7, 0, 12) if dice.random() < 0.7 else None
    producer = Producer(
        cast("Client", world), compression=compression, transaction=transaction, batch_size=600, linger_ms=0
    )
    producer._producer_id, producer._producer_epoch = 7, 0
    sent: list[list[bytes]] = [[], []]
    for number in range(120):
        index = dice.randrange(2)
        values = [b"%05d-%d" % (number, each) + b"x" * dice.randrange(90) for each in range(dice.randrange(1, 12))]
        sent[index] += values
        if dice.random() < 0.5:
            records = [Record(0, 5, None, value, []) for value in values]
            producer.send_batch(TOPIC, index, build_batch(records, compression=compression))
        else:
            for value in values:
                producer.send(TOPIC, value, partition=index)
        if dice.random() < 0.1:
            producer.flush()
    producer.flush()
    assert [log.values for log in world.logs] == sent, f"seed {seed}"
    assert producer.buffered == 0
    return world


def test_everything_arrives_once_and_in_order() -> None:
    for seed in range(SEEDS):
        run(seed)
