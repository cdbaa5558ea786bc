"""Produce over real sockets: answers, their order, duplicates, several partitions, group commit."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.env.posix import PosixFile
from headrace.log.log import Log
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest


def only(response: ProduceResponse) -> PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name(raw: Raw, topic: Callable[..., str], version: int) -> None:
    name = topic()
    for offset in range(3):
        answer = only(raw.ask(produce(name, batch(b"value")), version))
        assert (answer.error_code, answer.base_offset, answer.index) == (0, offset, 0)
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)


def test_version_13_names_topics_by_id(raw: Raw, served: TestBroker) -> None:
    topic_id = create_topic(served.port, "by-id", 2)
    data = [PartitionProduceData(index=i, records=batch(b"x")) for i in (0, 1)]
    both = ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)])
    answer = raw.ask(both, 13).responses[0]
    assert answer.topic_id == topic_id
    assert [(p.index, p.error_code, p.base_offset) for p in answer.partition_responses] == [(0, 0, 0), (1, 0, 0)]
    one = ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data[:1])])
    for offset in (1, 2, 3):
        answer = raw.ask(one, 13).responses[0]
        assert answer.topic_id == topic_id
        assert answer.partition_responses[0].base_offset == offset
    one.topic_data[0].topic_id = b"\x07" * 16
    assert only(raw.ask(one, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_pipeline_is_answered_in_order_and_appended_in_order(raw: Raw, topic: Callable[..., str]) -> None:
    """Alike requests, other partitions, other APIs and errors mixed: answers come as the requests went."""
    name = topic(2)
    frames: list[bytes] = []
    expected: list[tuple[int, int, tuple[int, int] | None]] = []
    offsets = [0, 0]
    for i in range(200):
        if i % 17 == 5:
            frames.append(raw.frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3))
            expected.append((raw.correlation_id, 18, None))
        elif i % 13 == 7:
            frames.append(raw.frame(produce("missing-topic", batch(b"x")), 9))
            expected.append((raw.correlation_id, 0, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)))
        else:
            partition = int(i % 5 == 0)
            frames.append(raw.frame(produce(name, batch(b"%d" % i, b"more"), partition=partition), 9))
            expected.append((raw.correlation_id, 0, (0, offsets[partition])))
            offsets[partition] += 2
    raw.socket.sendall(b"".join(frames))
    for correlation_id, key, outcome in expected:
        got_id, response = raw.receive(key, 9 if key == 0 else 3)
        assert got_id == correlation_id
        if key == 0:
            answer = only(response)
            assert (answer.error_code, answer.base_offset) == outcome


def test_what_was_produced_is_what_is_fetched(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    sent = [batch(b"%d" % i * (1 + i * 37 % 500)) for i in range(60)]
    raw.socket.sendall(b"".join(raw.frame(produce(name, each), 9) for each in sent))
    for _ in sent:
        assert only(raw.receive(0, 9)[1]).error_code == 0
    got = bytes(raw.ask(fetch(name), 11).responses[0].partitions[0].records)
    at = 0
    for offset, each in enumerate(sent):
        header = read_header(got, at)
        assert (header.base_offset, header.partition_leader_epoch) == (offset, 0)
        assert got[at + 16 : at + header.size] == each[16:]
        at += header.size
    assert at == len(got)


def test_an_idempotent_duplicate_gets_its_first_offset(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()

    def numbered(sequence: int) -> bytes:
        return batch(b"a", b"b", producer_id=77, producer_epoch=0, base_sequence=sequence)

    assert only(raw.ask(produce(name, numbered(0)), 9)).base_offset == 0
    assert only(raw.ask(produce(name, numbered(2)), 9)).base_offset == 2
    again = only(raw.ask(produce(name, numbered(0)), 9))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert only(raw.ask(produce(name, numbered(9)), 9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_null_keys_on_a_compacted_topic_are_named_one_by_one(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic(cleanup_policy="compact")
    answer = only(raw.ask(produce(name, batch(b"no key", b"none here either")), 9))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [0, 1]
    assert answer.error_message


def test_append_time_is_told(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answer = only(raw.ask(produce(name, batch(b"x")), 9))
    assert before <= answer.log_append_time_ms <= time.time() * 1000
    header = read_header(bytes(raw.ask(fetch(name), 11).responses[0].partitions[0].records))
    assert header.timestamp_type == 1
    assert header.max_timestamp == answer.log_append_time_ms


def test_more_in_sync_replicas_than_there_are_replicas_cannot_be_wanted(raw: Raw, topic: Callable[..., str]) -> None:
    """As Apache Kafka 4.3.1 answers: min.insync.replicas counts up to the replication factor (KIP-966)."""
    name = topic(min_insync_replicas="2")
    assert only(raw.ask(produce(name, batch(b"x")), 9)).base_offset == 0
    assert only(raw.ask(produce(name, batch(b"x"), acks=1), 9)).base_offset == 1


def test_internal_topics_are_not_for_clients(raw: Raw, served: TestBroker) -> None:
    from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest

    for _ in range(50):
        if raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code == 0:
            break
        time.sleep(0.05)
    answer = only(raw.ask(produce("__consumer_offsets", batch(b"x")), 9))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_before_reply_waits_for_the_disk_and_keeps_order() -> None:
    """With acks.flush=before-reply an answer means that the batch is synced, and syncs are shared."""
    with running_broker({"acks.flush": "before-reply"}) as served, Raw(served.port) as raw:
        create_topic(served.port, "synced", 1)
        frames = [raw.frame(produce("synced", batch(b"%d" % i)), 9) for i in range(500)]
        raw.socket.sendall(b"".join(frames))
        for i in range(500):
            correlation_id, response = raw.receive(0, 9)
            assert correlation_id == i + 1
            answer = only(response)
            assert (answer.error_code, answer.base_offset) == (0, i)
        flushed = served.call(lambda broker: broker.replicas.by_name["synced", 0].log.flushing.flushed_offset)
        assert flushed == 500
        syncs = served.call(lambda broker: broker.metrics.counter("log.flushes").value)
        assert syncs < 250
        assert raw.ask(fetch("synced"), 11).responses[0].partitions[0].high_watermark == 500


def test_who_waits_for_the_disk_too_long_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka the batch stays in the log, and the answer says where. Each waits for as long as it wants to."""
    is_synced = threading.Event()
    real = Log.flush

    def flush(log: Log, up_to: int | None = None) -> int:
        if log.topic_partition[0] == "slow":
            assert is_synced.wait(60)
        return real(log, up_to)

    def timed(timeout_ms: int, *batches: bytes) -> ProduceRequest:
        request = produce("slow", *batches)
        request.timeout_ms = timeout_ms
        return request

    with running_broker({"acks.flush": "before-reply"}) as served, Raw(served.port) as raw, Raw(served.port) as patient:
        create_topic(served.port, "slow", 2)
        monkeypatch.setattr(Log, "flush", flush)
        patient.send(timed(60_000, batch(b"0")), 9)
        while served.call(lambda broker: broker.replicas.by_name["slow", 0].log.end_offset) < 1:
            time.sleep(0.001)
        for offset in (1, 2):  # decoded, then compared with the one before
            answer = only(raw.ask(timed(20, batch(b"x")), 9))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, offset)
        both = raw.ask(timed(20, batch(b"x"), batch(b"x")), 9).responses[0].partition_responses
        assert [(p.error_code, p.base_offset) for p in both] == [(ErrorCode.REQUEST_TIMED_OUT, o) for o in (3, 0)]
        is_synced.set()
        answer = only(patient.receive(0, 9)[1])
        assert (answer.error_code, answer.base_offset) == (0, 0)
        answer = only(raw.ask(timed(60_000, batch(b"x")), 9))
        assert (answer.error_code, answer.base_offset) == (0, 4)
        records = bytes(raw.ask(fetch("slow"), 11).responses[0].partitions[0].records)
        assert [header.base_offset for _, header in iter_headers(records)] == [0, 1, 2, 3, 4]


def test_one_registry_counts(raw: Raw, topic: Callable[..., str], served: TestBroker) -> None:
    name = topic()
    before = served.call(lambda broker: broker.metrics.statistics().counters)
    for _ in range(5):
        raw.ask(produce(name, batch(b"counted")), 9)
    after = served.call(lambda broker: broker.metrics.statistics())
    assert after.counters["requests.produce"] - before["requests.produce"] == 5
    assert after.counters["produce.bytes"] > before["produce.bytes"]
    assert after.gauges["connections.open"] >= 1


def test_a_defect_in_one_append_takes_its_partition_offline_and_nothing_else(
    raw: Raw, served: TestBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, other_name = topic(2), topic()
    real = PosixFile.append

    def fails(file: PosixFile, parts: Any) -> int:
        if f"/{name}-0/" in file.path:
            raise RuntimeError("a defect")
        return real(file, parts)

    for each in (name, other_name):  # so that those of one partition come together from here on
        assert only(raw.ask(produce(each, batch(b"x")), 9)).base_offset == 0
    asked = [other_name, name, other_name, name]
    with monkeypatch.context() as patched:
        patched.setattr(PosixFile, "append", fails)
        raw.socket.sendall(b"".join(raw.frame(produce(each, batch(b"x")), 9) for each in asked))
        answers = [only(raw.receive(0, 9)[1]) for _ in asked]
    unknown = (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 1), unknown, (0, 2), unknown]
    assert isinstance(served.take_defect(), RuntimeError)
    with Raw(served.port) as other:
        offline = only(other.ask(produce(name, batch(b"later")), 9))
        assert (offline.error_code, offline.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert other.ask(fetch(name), 11).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert only(other.ask(produce(name, batch(b"beside"), partition=1), 9)).base_offset == 0
    assert served.call(lambda broker: broker.metrics.statistics()).gauges["replicas.offline"] == 1


@pytest.mark.parametrize("version", [9, 12])
def test_batches_of_every_length_of_length(raw: Raw, topic: Callable[..., str], version: int) -> None:
    """Alike requests are compared, not decoded: the length of their records may take one byte or four."""
    name = topic(max_message_bytes="4000000")
    overhead = len(batch(b"")) + 1
    sizes = [0, 1, 127 - overhead, 128 - overhead, 200, 16_370 - overhead, 16_384 - overhead, 20_000]
    sizes += [16_381 - overhead + i for i in range(6)]
    sizes += [2_097_140 - overhead, 2_097_160 - overhead, 3_000_000, 5]
    for size in [*sizes, *reversed(sizes)]:
        sent = batch(b"v" * size)
        (answer,) = raw.ask(produce(name, sent), version).responses[0].partition_responses
        assert answer.error_code == 0, size
        request = fetch(name, answer.base_offset, max_bytes=1 << 23, partition_max_bytes=1 << 23)
        records = bytes(raw.ask(request, 11).responses[0].partitions[0].records)
        assert records[16:] == sent[16:], size


def test_an_alike_request_for_a_topic_that_was_deleted(raw: Raw, served: TestBroker) -> None:
    from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

    create_topic(served.port, "short-lived")
    for offset in range(3):
        assert only(raw.ask(produce("short-lived", batch(b"x")), 9)).base_offset == offset
    deleted = raw.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="short-lived")], timeout_ms=5000), 6)
    assert deleted.responses[0].error_code == 0
    assert only(raw.ask(produce("short-lived", batch(b"x")), 9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(served.port, "short-lived")
    assert only(raw.ask(produce("short-lived", batch(b"x")), 9)).base_offset == 0


def test_a_full_disk_reorders_nothing(
    raw: Raw, topic: Callable[..., str], served: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five idempotent batches that travel together, of a producer that nothing is known of and of one that is known."""
    name = topic()
    real = PosixFile.append

    def numbered(sequence: int) -> bytes:
        sent = batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
        return raw.frame(produce(name, sent), 9)

    def send(*sequences: int) -> list[tuple[int, int]]:
        raw.socket.sendall(b"".join(map(numbered, sequences)))
        answers = [only(raw.receive(0, 9)[1]) for _ in sequences]
        return [(each.error_code, each.base_offset) for each in answers]

    def fails(file: PosixFile, parts: Any) -> int:
        if f"/{name}-0/" in file.path:
            raise OSError(errno.ENOSPC, "no space")
        return real(file, parts)

    for first in (0, 5):
        five = range(first, first + 5)
        with monkeypatch.context() as patched:
            patched.setattr(PosixFile, "append", fails)
            first_code, *codes = [code for code, _ in send(*five)]
            assert first_code == ErrorCode.KAFKA_STORAGE_ERROR
            # The others may have come with another readable event, and then behind it.
            assert set(codes) <= {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
        assert send(*five[1:]) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)] * 4
        assert send(*five) == [(0, sequence) for sequence in five]
