"""Many transactional producers at wire level, in one process: each commits one transaction after the other.

They speak as the Java client of Apache Kafka 4 does (transaction.version 2, KIP-890): the first record of a transaction
adds its partition, the records of a leader go in one Produce request, and EndTxn raises the epoch, with which sequences
begin again at 0. Frames are built once, and their producer id, epoch and checksums are written anew.

The load takes 0.11 ms of CPU a transaction, a tenth of what the broker takes for it. A producer of confluent-kafka
takes 0.6 ms, on threads of its own: fifty of them would be what is measured.

    python -m bench.transaction_load '{"port": 9092, "topic": "t", "producers": 50, ...}'    prints one line of JSON
"""

from __future__ import annotations

import heapq
import json
import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import Any

from bench.link import Link
from bench.wire_load import PATIENCE_S, RECORD_BYTES
from headrace.wire.batch import checksum
from headrace.wire.frame import RequestHeader, decode_response_header, encode_request
from headrace.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.records import Record, build_batch

PRODUCE, PRODUCE_VERSION = 0, 12
END_TXN, END_TXN_VERSION = 26, 5
OF_TRANSACTIONS = 1
"""The kind of key by which FindCoordinator looks for a coordinator of transactions."""
PARTITIONS = 2
RECORDS_EACH = 2
"""Records of 100 bytes that a transaction writes to each of its partitions."""
CONCURRENT_TRANSACTIONS = 51
NOT_YET = (14, 15, 16, CONCURRENT_TRANSACTIONS)
"""Error codes of a coordinator that is not ready: it loads, there is none, it has moved."""
BACKOFF_S = 0.02
"""How long a client waits when the end of its last transaction is still under way."""
TRANSACTION_TIMEOUT_MS = 60_000
RECEIVE_BYTES = 1 << 16
put_crc = Struct(">I").pack_into
put_producer = Struct(">qh").pack_into
CRC_AT, PRODUCER_AT = 17, 43
"""Where a batch has its checksum, and the id and the epoch of its producer."""


@dataclass
class Transactions:
    """What to do. Producer n writes to the partitions n and n + 1 of the topic, round `partitions` of them."""

    port: int
    topic: str
    producers: int = 50
    partitions: int = 6
    warm_up_s: float = 0.3
    seconds: float = 2.0


@dataclass
class Outcome:
    """What came of it. `commits`: how long each took in seconds; `retried`: how often a producer had to wait for the
    end of its last transaction; `cpu_s`: what this load used itself."""

    transactions: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    retried: int = 0
    commits: list[float] = field(default_factory=list)


class Channel:
    """A connection with one request on its way at a time; the handler of an answer is given with its request."""

    def __init__(self, port: int) -> None:
        self.link = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got = b""
        self.answered: Callable[[bytes], None] | None = None

    def ask(self, frame: bytes | bytearray, answered: Callable[[bytes], None]) -> None:
        assert self.answered is None, "a request is on its way"
        self.answered = answered
        self.link.sendall(frame)

    def readable(self) -> None:
        """Hands on the answer when it has come whole."""
        part = self.link.recv(RECEIVE_BYTES)
        if not part:
            raise ConnectionError("the broker closed the connection")
        self.got += part
        if len(self.got) < 4 or len(self.got) < int.from_bytes(self.got[:4], "big") + 4:
            return
        frame, self.got = self.got[4:], b""
        answered, self.answered = self.answered, None
        assert answered is not None, "an answer to nothing"
        answered(frame)


class Write:
    """The Produce request of one leader: a batch for each of its partitions."""

    def __init__(self, topic: str, partitions: list[int], transactional_id: str, channel: Channel) -> None:
        self.channel = channel
        now_ms = int(time.time() * 1000)
        records = [Record(each, now_ms, None, b"x" * RECORD_BYTES, []) for each in range(RECORDS_EACH)]
        batch = build_batch(records, producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
        data = [PartitionProduceData(index=each, records=memoryview(batch)) for each in partitions]
        body = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )  # fmt: skip
        self.frame = bytearray(encode_request(RequestHeader(PRODUCE, PRODUCE_VERSION, 7, "bench"), body))
        self.size = len(batch)
        self.places: list[int] = []
        at = -1
        for _ in partitions:
            at = self.frame.index(batch, at + 1)
            self.places.append(at)

    def stamp(self, producer_id: int, epoch: int) -> None:
        """Whose batches they are from now on."""
        for at in self.places:
            put_producer(self.frame, at + PRODUCER_AT, producer_id, epoch)
            put_crc(self.frame, at + CRC_AT, checksum(self.frame, at, self.size))


class Producer:
    """One transaction after the other: its writes all at once, and its end when all of them are acknowledged."""

    def __init__(self, load: Load, number: int, leaders: dict[int, int]) -> None:
        asked = load.asked
        self.load = load
        self.name = f"bench-{time.monotonic_ns()}-{number}"
        coordinator, self.producer_id, self.epoch = self._begin(asked.port)
        channels: dict[int, Channel] = {}
        self.coordinator = channels.setdefault(coordinator, Channel(coordinator))
        mine: dict[int, list[int]] = {}
        for each in range(number, number + PARTITIONS):
            mine.setdefault(leaders[each % asked.partitions], []).append(each % asked.partitions)
        for port in mine:
            if port not in channels:
                channels[port] = Channel(port)
        self.channels = list(channels.values())
        self.writes = [Write(asked.topic, parts, self.name, channels[port]) for port, parts in mine.items()]
        self.unwritten = 0
        self.called = 0.0

    def _begin(self, port: int) -> tuple[int, int, int]:
        """The coordinator's port, and the id and epoch that it gives, when it is ready."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with Link(port) as link:
                request = FindCoordinatorRequest(key_type=OF_TRANSACTIONS, coordinator_keys=[self.name])
                found = link.ask(request).coordinators[0]
            code = found.error_code
            if code == 0:
                with Link(found.port) as link:
                    asked = InitProducerIdRequest(
                        transactional_id=self.name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
                    )
                    answer = link.ask(asked)
                code = answer.error_code
                if code == 0:
                    return found.port, answer.producer_id, answer.producer_epoch
            assert code in NOT_YET and time.monotonic() < deadline, f"{self.name}: error {code}"
            time.sleep(BACKOFF_S)

    def begin(self) -> None:
        """The next transaction: its records are queued, and a client that commits them now sends them."""
        self.called = time.perf_counter()
        self.unwritten = len(self.writes)
        for write in self.writes:
            write.stamp(self.producer_id, self.epoch)
            self.write(write)

    def write(self, write: Write) -> None:
        write.channel.ask(write.frame, lambda frame: self.written(write, frame))

    def written(self, write: Write, frame: bytes) -> None:
        _, at = decode_response_header(frame, PRODUCE, PRODUCE_VERSION)
        answer = ProduceResponse.decode(frame, PRODUCE_VERSION, at)
        codes = {part.error_code for part in answer.responses[0].partition_responses}
        if CONCURRENT_TRANSACTIONS in codes:
            self.load.later(lambda: self.write(write))
            return
        assert codes == {0}, f"{self.name}: errors {codes} to a write"
        self.unwritten -= 1
        if not self.unwritten:
            self.end()

    def end(self) -> None:
        body = EndTxnRequest(self.name, self.producer_id, self.epoch, committed=True)
        header = RequestHeader(END_TXN, END_TXN_VERSION, 7, "bench")
        self.coordinator.ask(encode_request(header, body), self.ended)

    def ended(self, frame: bytes) -> None:
        _, at = decode_response_header(frame, END_TXN, END_TXN_VERSION)
        answer = EndTxnResponse.decode(frame, END_TXN_VERSION, at)
        if answer.error_code == CONCURRENT_TRANSACTIONS:
            self.load.later(self.end)
            return
        assert answer.error_code == 0, f"{self.name}: error {answer.error_code} to the end of a transaction"
        now = (answer.producer_id, answer.producer_epoch)
        assert now != (self.producer_id, self.epoch), "the end of a transaction raises no epoch"
        self.producer_id, self.epoch = now
        self.load.committed(self)


class Load:
    """All producers on one poll."""

    def __init__(self, asked: Transactions) -> None:
        self.asked = asked
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.retried = 0
        self.commits: list[float] = []
        self.deadline = 0.0
        self.busy = 0
        leaders = leader_ports(asked.port, asked.topic)
        self.producers = [Producer(self, number, leaders) for number in range(asked.producers)]

    def later(self, what: Callable[[], None]) -> None:
        """Does this after a client's pause."""
        self.retried += 1
        heapq.heappush(self.due, (time.perf_counter() + BACKOFF_S, self.retried, what))

    def committed(self, producer: Producer) -> None:
        now = time.perf_counter()
        self.commits.append(now - producer.called)
        if now < self.deadline:
            producer.begin()
        else:
            self.busy -= 1

    def run(self, seconds: float) -> Outcome:
        """Flat out for so long; what is open then is committed too, and counted in the time that it takes."""
        self.commits, self.retried, self.busy = [], 0, len(self.producers)
        poller = select.epoll()
        by_number = {channel.link.fileno(): channel for each in self.producers for channel in each.channels}
        for number in by_number:
            poller.register(number, select.EPOLLIN)
        used, before = time.process_time(), time.perf_counter()
        self.deadline = before + seconds
        for producer in self.producers:
            producer.begin()
        while self.busy:
            pause = max(0.0, self.due[0][0] - time.perf_counter()) if self.due else PATIENCE_S
            ready = poller.poll(pause)
            assert ready or self.due, "no answer comes"
            for number, _ in ready:
                by_number[number].readable()
            while self.due and self.due[0][0] <= time.perf_counter():
                heapq.heappop(self.due)[2]()
        spent = time.perf_counter() - before
        poller.close()
        return Outcome(len(self.commits), spent, time.process_time() - used, self.retried, self.commits)


def leader_ports(port: int, topic: str) -> dict[int, int]:
    """The port of the leader of each partition of a topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    with Link(port) as link:
        answer = link.ask(request)
    ports = {broker.node_id: broker.port for broker in answer.brokers}
    return {part.partition_index: ports[part.leader_id] for part in answer.topics[0].partitions}


def main(argument: str) -> int:
    asked: dict[str, Any] = json.loads(argument)
    load = Load(Transactions(**asked))
    load.run(load.asked.warm_up_s)
    print(json.dumps(asdict(load.run(load.asked.seconds))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
