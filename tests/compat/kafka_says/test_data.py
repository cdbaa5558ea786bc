"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords and InitProducerId, as Kafka answers them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .conftest import COMPACT, EMPTY, LEADER_PATIENCE_S, PLAIN, T0, Both, Side, batch

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

LOAD_IN_PROGRESS = 14
PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 0, 1, 2, 21, 22, 23


def produce(side: Side, version: int, topic: str, data: bytes | None, partition: int = 0, acks: int = -1) -> Any:
    part = PartitionProduceData(index=partition, records=None if data is None else memoryview(data))
    entry = TopicProduceData(partition_data=[part])
    if version >= 13:
        entry.topic_id = side.topic_ids.get(topic, b"\x07" * 16)
    else:
        entry.name = topic
    return side.ask(ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[entry]), version)


def bad_crc(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def bad_magic(data: bytes) -> bytes:
    return data[:16] + b"\x01" + data[17:]


def control(data: bytes) -> bytes:
    from crc32c import crc32c

    changed = bytearray(data)
    changed[22] |= 0x20
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def lying_count(data: bytes) -> bytes:
    from crc32c import crc32c

    changed = bytearray(data)
    changed[57:61] = (7).to_bytes(4, "big")
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def test_produce_that_is_refused(both: Both) -> None:
    """Null records are left out: Apache Kafka 4.3.1 never answers them."""

    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        yield produce(side, version, "says-unknown", batch(0))
        yield produce(side, version, PLAIN, batch(0), partition=9)
        yield produce(side, version, PLAIN, bad_crc(batch(0)))
        yield produce(side, version, PLAIN, control(batch(0)))
        yield produce(side, version, PLAIN, lying_count(batch(0)))
        yield produce(side, version, PLAIN, bad_magic(batch(0)))
        yield produce(side, version, PLAIN, batch(0) + batch(1))
        yield produce(side, version, PLAIN, b"")
        yield produce(side, version, PLAIN, batch(0)[:40])
        yield produce(side, version, PLAIN, batch(0), acks=7)
        yield produce(side, version, COMPACT, batch(0, keys=False))

    both.compare(PRODUCE, script, ignore=frozenset({"batch_index_error_message"}))


def test_produce_that_is_taken(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        yield produce(side, version, EMPTY, batch(0))
        yield produce(side, version, EMPTY, batch(1), acks=1)

    both.compare(PRODUCE, script)


def fetch_request(side: Side, version: int, topic: str, **partition: Any) -> FetchRequest:
    part = FetchPartition(partition_max_bytes=1 << 20, **partition)
    entry = FetchTopic(partitions=[part])
    if version >= 13:
        entry.topic_id = side.topic_ids.get(topic, b"\x07" * 16)
    else:
        entry.topic = topic
    return FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[entry])


def test_fetch(both: Both) -> None:
    def records(answer: Any) -> Any:
        found = [bytes(part.records or b"") for topic in answer.responses for part in topic.partitions]
        return [answer, [each[:6] + each[6:] for each in found]]

    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        yield records(side.ask(fetch_request(side, version, PLAIN, fetch_offset=0), version))
        yield records(side.ask(fetch_request(side, version, PLAIN, fetch_offset=3), version))
        yield side.ask(fetch_request(side, version, PLAIN, fetch_offset=6), version)
        yield side.ask(fetch_request(side, version, PLAIN, fetch_offset=7), version)
        yield side.ask(fetch_request(side, version, PLAIN, fetch_offset=-1), version)
        yield side.ask(fetch_request(side, version, PLAIN, partition=9), version)
        yield side.ask(fetch_request(side, version, "says-unknown"), version)
        if version >= 9:
            yield side.ask(fetch_request(side, version, PLAIN, current_leader_epoch=0), version)
            yield side.ask(fetch_request(side, version, PLAIN, current_leader_epoch=99), version)
        if version >= 7:
            lost = fetch_request(side, version, PLAIN)
            lost.session_id, lost.session_epoch = 123456, 3
            yield side.ask(lost, version)

    both.compare(FETCH, script)


def test_list_offsets(both: Both) -> None:
    def ask(side: Side, version: int, topic: str, timestamp: int, epoch: int = -1, partition: int = 0) -> Any:
        part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        if version >= 4:
            part.current_leader_epoch = epoch
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])
        return side.ask(request, version)

    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, T0, T0 + 1, T0 + 1001, T0 + 5000):
            yield ask(side, version, PLAIN, timestamp)
        yield ask(side, version, PLAIN, -1, partition=1)
        yield ask(side, version, PLAIN, -3, partition=1)
        yield ask(side, version, PLAIN, -1, partition=9)
        yield ask(side, version, "says-unknown", -1)
        if version >= 4:
            yield ask(side, version, PLAIN, -1, epoch=0)
            yield ask(side, version, PLAIN, -1, epoch=99)

    both.compare(LIST_OFFSETS, script)


def test_offset_for_leader_epoch(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for topic, partition, epoch, current in (
            (PLAIN, 0, 0, -1), (PLAIN, 0, 5, -1), (PLAIN, 1, 0, -1), (PLAIN, 9, 0, -1), ("says-unknown", 0, 0, -1),
            (PLAIN, 0, 0, 99), (PLAIN, 0, -1, -1),
        ):  # fmt: skip
            part = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
            topics = [OffsetForLeaderTopic(topic=topic, partitions=[part])]
            yield side.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), version)

    both.compare(OFFSET_FOR_LEADER_EPOCH, script)


def test_delete_records(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for topic, partition, offset in (
            (PLAIN, 1, 0), (PLAIN, 1, 99), (PLAIN, 9, 0), (PLAIN, 1, -1), ("says-unknown", 0, 0), (COMPACT, 0, 1),
        ):  # fmt: skip
            part = DeleteRecordsPartition(partition_index=partition, offset=offset)
            topics = [DeleteRecordsTopic(name=topic, partitions=[part])]
            yield side.ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), version)

    both.compare(DELETE_RECORDS, script)


def test_init_producer_id(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        deadline = time.monotonic() + LEADER_PATIENCE_S
        while True:
            answer = side.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
            if answer.error_code != LOAD_IN_PROGRESS or time.monotonic() > deadline:
                break
        yield answer

    both.compare(INIT_PRODUCER_ID, script)
