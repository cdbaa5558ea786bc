"""Fetch over real sockets: waiting, limits, sessions, epochs, topic ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.broker.requests.short_fetch import ShortFetch
from headrace.log.reader import LogReader
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchRequest, ForgottenTopic
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def fill(raw: Raw, name: str, count: int, size: int = 10, partition: int = 0) -> None:
    for i in range(count):
        answer = raw.ask(produce(name, batch(b"%d" % (i % 10) * size), partition=partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def parts(response: Any) -> list[Any]:
    return [partition for topic in response.responses for partition in topic.partitions]


def offsets_in(records: Any) -> list[int]:
    return [header.base_offset for _, header in iter_headers(bytes(records))]


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_by_name(raw: Raw, topic: Callable[..., str], version: int) -> None:
    name = topic()
    fill(raw, name, 3)
    (partition,) = parts(raw.ask(fetch(name, 1, max_wait_ms=100), version))
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 3, 3)
    assert offsets_in(partition.records) == [1, 2]


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_by_id(raw: Raw, served: TestBroker, version: int) -> None:
    name = f"ids-{version}"
    topic_id = create_topic(served.port, name)
    fill(raw, name, 2)
    response = raw.ask(fetch("", 0, topic_id=topic_id, max_wait_ms=100), version)
    assert response.responses[0].topic_id == topic_id
    assert offsets_in(parts(response)[0].records) == [0, 1]
    unknown = parts(raw.ask(fetch("", 0, topic_id=b"\x09" * 16), version))
    assert unknown[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_it_waits_for_data_and_wakes_with_it(raw: Raw, served: TestBroker, topic: Callable[..., str]) -> None:
    name = topic()
    raw.send(fetch(name, 0, max_wait_ms=8000), 11)
    with Raw(served.port) as writer:
        time.sleep(0.2)
        before = time.monotonic()
        fill(writer, name, 1)
        (partition,) = parts(raw.receive(1, 11)[1])
    assert time.monotonic() - before < 6
    assert offsets_in(partition.records) == [0]
    assert served.call(lambda broker: broker.fetches.waiting) == 0


def test_it_waits_for_min_bytes_or_for_max_wait(raw: Raw, served: TestBroker, topic: Callable[..., str]) -> None:
    name = topic()
    raw.send(fetch(name, 0, max_wait_ms=8000, min_bytes=1000), 11)
    with Raw(served.port) as writer:
        fill(writer, name, 5, size=50)
        fill(writer, name, 1, size=900)
        (partition,) = parts(raw.receive(1, 11)[1])
        assert offsets_in(partition.records) == [0, 1, 2, 3, 4, 5]
    before = time.monotonic()
    (partition,) = parts(raw.ask(fetch(name, 0, max_wait_ms=300, min_bytes=1 << 20), 11))
    assert 0.25 < time.monotonic() - before < 10
    assert offsets_in(partition.records) == [0, 1, 2, 3, 4, 5]


def test_requests_behind_a_waiting_fetch_take_effect_and_answers_keep_order(
    raw: Raw, topic: Callable[..., str]
) -> None:
    name = topic()
    raw.send(fetch(name, 0, max_wait_ms=8000), 11)
    raw.send(produce(name, batch(b"wakes it")), 9)
    assert raw.receive(1, 11)[0] == 1
    assert raw.receive(0, 9)[0] == 2


def test_a_gone_connection_takes_its_waiting_fetch_with_it(served: TestBroker, topic: Callable[..., str]) -> None:
    name = topic()
    with Raw(served.port) as gone:
        gone.send(fetch(name, 0, max_wait_ms=2**31 - 1), 11)
        for _ in range(100):
            if served.call(lambda broker: broker.fetches.waiting) == 1:
                break
            time.sleep(0.01)
    for _ in range(200):
        if served.call(lambda broker: broker.fetches.waiting) == 0:
            break
        time.sleep(0.01)
    assert served.call(lambda broker: broker.fetches.waiting) == 0
    assert not served.call(lambda broker: broker.replicas.by_name[name, 0].fetch_waiters)


def test_limits_and_the_first_batch(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic(3)
    for partition in range(3):
        fill(raw, name, 3, size=5000, partition=partition)
    answer = parts(raw.ask(fetch(name, 0, (0, 1, 2), max_bytes=100), 11))
    assert [offsets_in(p.records) for p in answer] == [[0], [], []]
    assert [p.high_watermark for p in answer] == [3, 3, 3]
    answer = parts(raw.ask(fetch(name, 0, (0, 1, 2), partition_max_bytes=11_000), 11))
    sizes = [len(p.records) for p in answer]
    assert sizes == [11_000, 11_000, 11_000]
    answer = parts(raw.ask(fetch(name, 1, (2, 1), max_bytes=12_000), 11))
    assert [p.partition_index for p in answer] == [2, 1]
    assert len(answer[0].records) > 10_000
    assert len(answer[1].records) <= 2000


def test_out_of_range_and_unknown(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    fill(raw, name, 2)
    for offset, error in ((3, ErrorCode.OFFSET_OUT_OF_RANGE), (-1, ErrorCode.OFFSET_OUT_OF_RANGE), (2, 0)):
        (partition,) = parts(raw.ask(fetch(name, offset, max_wait_ms=50), 11))
        assert partition.error_code == error, offset
        assert not partition.records
    (partition,) = parts(raw.ask(fetch(name, 0, (7,)), 11))
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.high_watermark == -1
    (partition,) = parts(raw.ask(fetch("nowhere", 0), 11))
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_leader_epochs_are_fenced(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    fill(raw, name, 1)
    (partition,) = parts(raw.ask(fetch(name, 0, current_leader_epoch=0), 11))
    assert partition.error_code == 0
    (partition,) = parts(raw.ask(fetch(name, 0, current_leader_epoch=5), 11))
    assert partition.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_diverging_epoch_is_told(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    fill(raw, name, 2)
    request = fetch(name, 1)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    assert offsets_in(parts(raw.ask(request, 12))[0].records) == [1]
    request.topics[0].partitions[0].last_fetched_epoch = 3
    assert parts(raw.ask(request, 12))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE  # an epoch nobody knows
    request.topics[0].partitions[0].last_fetched_epoch = 0
    request.topics[0].partitions[0].fetch_offset = 5
    (partition,) = parts(raw.ask(request, 12))
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (0, 2)
    assert not partition.records


def test_a_session_tells_only_what_changed(raw: Raw, served: TestBroker, topic: Callable[..., str]) -> None:
    name = topic(3)
    fill(raw, name, 1, partition=1)
    full = raw.ask(fetch(name, 0, (0, 1, 2), session_epoch=0, max_wait_ms=0), 11)
    assert full.session_id > 0
    assert [p.partition_index for p in parts(full)] == [0, 1, 2]

    def go_on(epoch: int, **fields: Any) -> Any:
        fields.setdefault("max_wait_ms", 0)
        return raw.ask(
            FetchRequest(session_id=full.session_id, session_epoch=epoch, min_bytes=1, max_bytes=1 << 20, **fields), 11
        )

    moved = fetch(name, 1, (1,)).topics
    assert parts(go_on(1, topics=moved)) == []
    fill(raw, name, 1, partition=2)
    assert [p.partition_index for p in parts(go_on(2))] == [2]
    assert [p.partition_index for p in parts(go_on(3))] == [2]  # not taken yet: told again
    forgotten = [ForgottenTopic(topic=name, partitions=[2])]
    assert parts(go_on(4, forgotten_topics_data=forgotten)) == []
    bad = go_on(5, topics=fetch(name, 99, (0,)).topics)
    assert [(p.partition_index, p.error_code) for p in parts(bad)] == [(0, ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert go_on(5).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    with Raw(served.port) as writer:
        raw.send(
            FetchRequest(
                session_id=full.session_id, session_epoch=6, min_bytes=1, max_wait_ms=8000, max_bytes=1 << 20,
                topics=fetch(name, 0, (0,)).topics,
            ),
            11,
        )  # fmt: skip
        fill(writer, name, 1, partition=0)
        assert [p.partition_index for p in parts(raw.receive(1, 11)[1])] == [0]
    assert raw.ask(FetchRequest(session_id=full.session_id, session_epoch=-1, max_bytes=1), 11).session_id == 0
    assert go_on(7).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_is_emptied_ends(raw: Raw, served: TestBroker, topic: Callable[..., str]) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)
    held = served.call(lambda broker: len(broker.fetch_sessions))
    opened = raw.ask(fetch(name, 0, session_epoch=0), 11)
    assert opened.session_id
    emptying = FetchRequest(
        session_id=opened.session_id, session_epoch=1, min_bytes=1, max_wait_ms=5000, max_bytes=1000,
        forgotten_topics_data=[ForgottenTopic(topic=name, partitions=[0])],
    )  # fmt: skip
    answer = raw.ask(emptying, 11)
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    assert served.call(lambda broker: len(broker.fetch_sessions)) == held
    emptying.session_epoch = 2
    assert raw.ask(emptying, 11).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_with_data_take_their_turn(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic(2)
    for partition in (0, 1):
        fill(raw, name, 2, size=4000, partition=partition)
    first = raw.ask(fetch(name, 0, (0, 1), session_epoch=0, max_bytes=4500), 11)
    assert [bool(p.records) for p in parts(first)] == [True, False]
    again = FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1, max_bytes=1)
    told = [(p.partition_index, bool(p.records)) for p in parts(raw.ask(again, 11)) if p.records]
    again.session_epoch = 2
    then = [(p.partition_index, bool(p.records)) for p in parts(raw.ask(again, 11)) if p.records]
    assert sorted(told + then) == [(0, True), (1, True)]


def list_offset(raw: Raw, name: str, timestamp: int, version: int = 11, **fields: Any) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[asked])], **fields)
    return raw.ask(request, version).topics[0].partitions[0]


@pytest.mark.parametrize(("times", "code"), [(1, ErrorCode.NONE), (2, ErrorCode.KAFKA_STORAGE_ERROR)])
def test_a_segment_that_goes_during_a_lookup_by_time(
    monkeypatch: pytest.MonkeyPatch, times: int, code: ErrorCode
) -> None:
    """Retention or compaction takes it: it is looked up once more. What is missing then is a failure of the disk."""
    with running_broker() as alone, Raw(alone.port) as raw:
        create_topic(alone.port, "t")
        fill(raw, "t", 3)
        real, looked = LogReader.offset_for_timestamp, []

        def gone(reader: LogReader, timestamp: int) -> Any:
            looked.append(timestamp)
            if len(looked) <= times:
                raise FileNotFoundError(2, "No such file", "t-0/00000000000000000000.index")
            return real(reader, timestamp)

        monkeypatch.setattr(LogReader, "offset_for_timestamp", gone)
        found = list_offset(raw, "t", 1)
        assert (found.error_code, found.offset) == (code, 0 if code == ErrorCode.NONE else -1)


def test_special_timestamps(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    for timestamp, offset in ((-1, 0), (-2, 0), (-3, -1), (-4, 0), (-5, -1), (-6, -1)):
        assert list_offset(raw, name, timestamp).offset == offset, timestamp
    before = int(time.time() * 1000)
    fill(raw, name, 3)
    latest = list_offset(raw, name, -1)
    assert (latest.offset, latest.timestamp, latest.leader_epoch) == (3, -1, 0)
    assert list_offset(raw, name, before - 1000).offset == 0
    assert list_offset(raw, name, before + 100_000).offset == -1
    assert list_offset(raw, name, -3).timestamp >= before
    assert list_offset(raw, name, -1, isolation_level=1).offset == 3
    assert list_offset(raw, name, -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(raw, name, -9).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(raw, "nowhere", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_in_every_version(raw: Raw, topic: Callable[..., str], version: int) -> None:
    name = topic()
    fill(raw, name, 2)
    assert list_offset(raw, name, -1, version=version).offset == 2
    assert list_offset(raw, name, 0, version=version).offset == 0


def test_deleted_records_are_gone(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    fill(raw, name, 5)

    def delete(offset: int) -> Any:
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[asked])], timeout_ms=1000)
        return raw.ask(request, 2).topics[0].partitions[0]

    assert (delete(3).low_watermark, delete(2).low_watermark) == (3, 3)
    assert delete(6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert parts(raw.ask(fetch(name, 2), 11))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets_in(parts(raw.ask(fetch(name, 3), 11))[0].records) == [3, 4]
    assert list_offset(raw, name, -2).offset == 3
    assert delete(-1).low_watermark == 5


def test_where_an_epoch_ends(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    fill(raw, name, 4)

    def ask(epoch: int, current: int = -1) -> Any:
        asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        topics = [OffsetForLeaderTopic(topic=name, partitions=[asked])]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        return raw.ask(request, 4).topics[0].partitions[0]

    assert (ask(0).leader_epoch, ask(0).end_offset) == (0, 4)
    assert ask(0, current=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(-1).end_offset == -1


def test_a_defect_in_a_reading_is_answered(
    raw: Raw, served: TestBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    raw.send(fetch(name, 0, max_wait_ms=200), 11)
    time.sleep(0.05)
    monkeypatch.setattr(LogReader, "read", fails)
    served.call(lambda broker: broker.replicas.by_name[name, 0].touch())
    answer = raw.receive(1, 11)[1].responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert str(served.take_defect()) == "a defect"


def test_a_defect_on_the_short_way_ends_its_connection(
    raw: Raw, served: TestBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    fill(raw, name, 3)
    with Raw(served.port) as reader:
        for offset in (0, 1):  # the second goes the short path
            assert reader.ask(fetch(name, offset), 12).responses[0].partitions[0].error_code == 0

        def fails(*_: object) -> bool:
            raise RuntimeError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr(ShortFetch, "answer", fails)
            reader.send(fetch(name, 2), 12)
            with pytest.raises(ConnectionError):
                reader.receive_frame()
    assert str(served.take_defect()) == "a defect"
    assert raw.ask(fetch(name, 2), 12).responses[0].partitions[0].error_code == 0
