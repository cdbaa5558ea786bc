"""The common path of Fetch: to the byte what the handler answers; and what it leaves to the handler."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce
from broker.short_paths import Taken, note_short_fetches

from headrace.client.reading import whole_batches
from headrace.log.reader import LogReader
from headrace.log.transaction_index import AbortedTransaction
from headrace.testing.running import TestBroker
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState


@pytest.fixture
def taken(served: TestBroker, monkeypatch: pytest.MonkeyPatch) -> Taken:
    return note_short_fetches(served, monkeypatch)


def asked(raw: Raw, name: str, topic_id: bytes, version: int, offset: int, **fields: Any) -> bytes:
    """The frame of an answer behind its correlation id."""
    fields.setdefault("max_wait_ms", 100)
    request = fetch(name, offset, topic_id=topic_id, **fields) if version >= 13 else fetch(name, offset, **fields)
    raw.send(request, version)
    return raw.receive_frame()[4:]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", range(4, 19))
def test_the_same_bytes_as_the_long_way(served: TestBroker, taken: Taken, version: int, isolation_level: int) -> None:
    name = f"alike-{version}-{isolation_level}"
    topic_id = create_topic(served.port, name)
    with Raw(served.port) as raw:
        for size in (1, 50, 200, 20_000, 300_000, 7):
            raw.ask(produce(name, batch(b"x" * size)), 9)
    offsets = [0, 1, 2, 3, 4, 5, 0, 5, 5]
    limits = (1 << 20, 150, 10_000)
    with Raw(served.port) as again:
        for limit in limits:
            for offset in offsets:
                fields = {"isolation_level": isolation_level, "partition_max_bytes": limit}
                frame = asked(again, name, topic_id, version, offset, **fields)
                with Raw(served.port) as fresh:
                    assert frame == asked(fresh, name, topic_id, version, offset, **fields), (offset, limit)
    assert taken() == [True] * (len(limits) * len(offsets) - 1)


def end_of(raw: Raw, name: str, index: int) -> int:
    """The high watermark."""
    wanted = ListOffsetsPartition(partition_index=index, timestamp=-1, current_leader_epoch=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
    return int(raw.ask(request, 7).topics[0].partitions[0].offset)


def of_many(names: list[str], ids: list[bytes], offsets: list[int], limit: int, **fields: Any) -> FetchRequest:
    """A fetch of both partitions of each topic."""
    topics = []
    for at, (name, topic_id) in enumerate(zip(names, ids, strict=True)):
        partitions = [
            FetchPartition(partition=index, fetch_offset=offsets[2 * at + index], partition_max_bytes=limit)
            for index in (0, 1)
        ]
        topics.append(FetchTopic(topic=name, topic_id=topic_id, partitions=partitions))
    return FetchRequest(max_wait_ms=100, min_bytes=1, topics=topics, **fields)


@pytest.fixture
def four(served: TestBroker, topic: Callable[..., str]) -> tuple[list[str], list[bytes]]:
    """Two topics of two partitions, with batches of many sizes: their names and ids."""
    names = [f"{topic()}-of-two" for _ in range(2)]
    ids = [create_topic(served.port, name, 2) for name in names]
    rng = random.Random(1)
    with Raw(served.port) as raw:
        for name in names:
            for index in (0, 1):
                for _ in range(30):
                    data = batch(*[b"x" * rng.choice((0, 10, 3000, 40_000)) for _ in range(rng.randrange(1, 4))])
                    raw.ask(produce(name, data, partition=index), 9)
    return names, ids


@pytest.mark.parametrize("version", [4, 8, 11, 12, 13, 18])
@pytest.mark.parametrize("max_bytes", [1000, 50_000, 400_000, 1 << 24])
def test_several_partitions_without_a_session(
    served: TestBroker, four: tuple[list[str], list[bytes]], taken: Taken, version: int, max_bytes: int
) -> None:
    names, ids = four
    rng = random.Random(version)
    with Raw(served.port) as again:
        for _ in range(20):
            offsets = [rng.randrange(30) for _ in range(4)]
            request = of_many(names, ids, offsets, rng.choice((500, 60_000, 1 << 20)), max_bytes=max_bytes)
            again.send(request, version)
            frame = again.receive_frame()[4:]
            with Raw(served.port) as fresh:
                fresh.send(request, version)
                assert frame == fresh.receive_frame()[4:]
    assert taken() == [True] * 19


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
@pytest.mark.parametrize("max_bytes", [30_000, 1 << 24])
def test_a_session_reads_all_of_its_partitions_once(
    served: TestBroker, four: tuple[list[str], list[bytes]], taken: Taken, version: int, max_bytes: int
) -> None:
    """A consumer as clients are: it names what it has had an answer of, and reads to the end of all four."""
    names, ids = four
    offsets = [0] * 4
    request = of_many(names, ids, offsets, 1 << 16, max_bytes=max_bytes, session_epoch=0)
    epoch = 0
    counts = [0] * 4
    with Raw(served.port) as raw:
        while min(counts) < 30:
            answer = raw.ask(request, version)
            assert answer.error_code == 0
            epoch += 1
            changed: dict[int, int] = {}
            for found in answer.responses:
                at = names.index(found.topic) if version < 13 else ids.index(found.topic_id)
                for data in found.partitions:
                    assert data.error_code == 0
                    for _, header in iter_headers(whole_batches(memoryview(bytes(data.records or b"")))[0]):
                        assert header.base_offset == offsets[2 * at + data.partition_index]
                        offsets[2 * at + data.partition_index] = header.last_offset + 1
                        counts[2 * at + data.partition_index] += 1
                        changed[2 * at + data.partition_index] = 1
            assert changed or epoch == 1
            request = of_many(names, ids, offsets, 1 << 16, max_bytes=max_bytes)
            request.session_id, request.session_epoch = answer.session_id, epoch
            for at, each in enumerate(request.topics):
                each.partitions = [part for part in each.partitions if 2 * at + part.partition in changed]
            request.topics = [each for each in request.topics if each.partitions]
    assert counts == [30] * 4
    assert len(taken()) == epoch - 1
    assert all(taken()), "every request of the session but the first takes the short path"


@pytest.mark.parametrize("version", [7, 12, 18])
def test_a_session_of_one_partition_reads_as_it_last_asked(
    served: TestBroker, topic: Callable[..., str], taken: Taken, version: int
) -> None:
    """Requests alike but for their offset, between others: with other limits, without a session, of the same session
    by another connection."""
    name = f"{topic()}-alone"
    topic_id = create_topic(served.port, name)
    with Raw(served.port) as raw, Raw(served.port) as other:
        for _ in range(12):
            raw.ask(produce(name, batch(b"x" * 500)), 9)
        limits = {"small": 700, "large": 1 << 20}
        session_id, epoch = 0, 0

        def batches_from(offset: int, limit: str, *, session: bool = True, by: Raw = raw) -> list[int]:
            nonlocal session_id, epoch
            part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limits[limit])
            wanted = [FetchTopic(topic=name, topic_id=topic_id, partitions=[part])]
            request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=wanted)
            if session:
                request.session_id, request.session_epoch = session_id, epoch
            found = by.ask(request, version)
            assert found.error_code == 0
            if session:
                session_id, epoch = found.session_id, epoch + 1
            data = found.responses[0].partitions[0]
            assert data.error_code == 0
            return [header.base_offset for _, header in iter_headers(whole_batches(memoryview(bytes(data.records)))[0])]

        assert batches_from(0, "small") == [0]
        assert [batches_from(offset, "small") for offset in (1, 2, 3)] == [[1], [2], [3]]
        assert batches_from(4, "large")[-1] == 11
        assert [batches_from(offset, "small") for offset in (4, 5)] == [[4], [5]]
        assert batches_from(6, "large", session=False)[-1] == 11
        assert [batches_from(offset, "small") for offset in (6, 7)] == [[6], [7]]
        assert batches_from(8, "large", by=other)[-1] == 11
        assert [batches_from(offset, "small") for offset in (8, 9)] == [[8], [9]]
    assert all(taken()), "what is not the first of its connection takes the short path"


def test_a_session_goes_on_behind_the_long_way(
    served: TestBroker, four: tuple[list[str], list[bytes]], taken: Taken
) -> None:
    """A wait, an error and a forgotten partition are not plain; what comes after them is."""
    names, ids = four
    ends = [60, 60, 60, 60]
    with Raw(served.port) as raw:
        ends = [end_of(raw, name, index) for name in names for index in (0, 1)]
        request = of_many(names, ids, [0, *ends[1:]], 1 << 20, session_epoch=0)
        session = raw.ask(request, 13).session_id
        request = FetchRequest(max_wait_ms=1, min_bytes=1, session_id=session, session_epoch=1)
        assert not taken()
        assert len(raw.ask(request, 13).responses) == 1
        one = of_many(names, ids, ends, 1 << 20, session_id=session, session_epoch=2)
        one.topics = one.topics[:1]
        assert raw.ask(one, 13).responses == []
        with Raw(served.port) as writer:
            writer.ask(produce(names[1], batch(b"new"), partition=1), 9)
        request.session_epoch = 3
        [found] = raw.ask(request, 13).responses
        assert [(data.partition_index, data.high_watermark) for data in found.partitions] == [(1, ends[3] + 1)]
        request.session_epoch = 9
        assert raw.ask(request, 13).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        request.session_epoch = 4
        request.forgotten_topics_data = [ForgottenTopic(topic_id=ids[1], partitions=[1])]
        assert raw.ask(request, 13).responses == []
    assert taken() == [True, False, True, False, False]


def test_a_reader_that_takes_little_gets_all(
    served: TestBroker, four: tuple[list[str], list[bytes]], taken: Taken
) -> None:
    """What a socket does not take at once follows out of the files, in the same order."""
    names, ids = four
    rng = random.Random(3)
    requests = [of_many(names, ids, [rng.randrange(30) for _ in range(4)], 90_000, max_bytes=90_000) for _ in range(60)]
    with Raw(served.port) as raw, Raw(served.port) as slow:
        slow.ask(requests[0], 12)
        for request in requests:
            slow.send(request, 12)
        time.sleep(0.3)
        for request in requests:
            frame = slow.receive_frame()[4:]
            raw.send(request, 12)
            assert raw.receive_frame()[4:] == frame
    assert any(taken())


def test_the_end_of_the_log_waits_for_more(
    raw: Raw, served: TestBroker, topic: Callable[..., str], taken: Taken
) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)
    for offset in (0, 0, 1):
        raw.send(fetch(name, offset, max_wait_ms=8000), 12)
        if offset == 1:
            with Raw(served.port) as writer:
                writer.ask(produce(name, batch(b"y")), 9)
        assert raw.receive(1, 12)[1].responses[0].partitions[0].high_watermark == 1 + offset
    assert taken() == [True, False]
    raw.ask(fetch(name, 1, max_wait_ms=8000), 12)
    assert taken() == [True, False, True]


def test_errors_go_the_long_way(raw: Raw, topic: Callable[..., str], taken: Taken) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)
    for offset, error in ((0, 0), (0, 0), (9, ErrorCode.OFFSET_OUT_OF_RANGE), (0, 0)):
        assert raw.ask(fetch(name, offset), 12).responses[0].partitions[0].error_code == error
    assert taken() == [True, False, True]
    fenced = raw.ask(fetch(name, current_leader_epoch=7), 12).responses[0].partitions[0]
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    fenced = raw.ask(fetch(name, current_leader_epoch=7), 12).responses[0].partitions[0]
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert taken() == [True, False, True, False, False]


def test_a_fetch_sees_the_produce_before_it(raw: Raw, topic: Callable[..., str], taken: Taken) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)
    raw.ask(fetch(name), 12)
    frames = [raw.frame(produce(name, batch(b"y")), 9), raw.frame(fetch(name, 1, max_wait_ms=0), 12)] * 3
    raw.socket.sendall(b"".join(frames))
    for number in range(3):
        assert raw.receive(0, 9)[1].responses[0].partition_responses[0].base_offset == 1 + number
        partition = raw.receive(1, 12)[1].responses[0].partitions[0]
        assert partition.high_watermark == 2 + number
        assert partition.records
    assert any(taken())


def test_answers_keep_the_order_of_the_requests(
    raw: Raw, served: TestBroker, topic: Callable[..., str], taken: Taken
) -> None:
    name, waited_for = topic(), topic()
    raw.ask(produce(name, batch(b"x" * 200_000)), 9)
    raw.ask(fetch(name), 12)
    waiting = raw.send(fetch(waited_for, max_wait_ms=8000), 12)
    plain = raw.send(fetch(name), 12)
    with Raw(served.port) as writer:
        writer.ask(produce(waited_for, batch(b"wakes it")), 9)
    assert raw.receive(1, 12)[0] == waiting
    correlation_id, response = raw.receive(1, 12)
    assert (correlation_id, len(response.responses[0].partitions[0].records) > 200_000) == (plain, True)
    assert taken() == [False, True]


def test_a_topic_made_anew_is_another_topic(raw: Raw, served: TestBroker, taken: Taken) -> None:
    create_topic(served.port, "again")
    raw.ask(produce("again", batch(b"old")), 9)
    for _ in range(2):
        assert raw.ask(fetch("again"), 12).responses[0].partitions[0].error_code == 0
    raw.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="again")], timeout_ms=5000), 6)
    gone = raw.ask(fetch("again"), 12).responses[0].partitions[0]
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(served.port, "again")
    raw.ask(produce("again", batch(b"a longer one")), 9)
    for _ in range(2):
        partition = raw.ask(fetch("again"), 12).responses[0].partitions[0]
        assert (partition.error_code, b"longer" in bytes(partition.records)) == (0, True)
    assert taken() == [True, False, True, True]


def test_aborted_transactions_go_the_long_way(
    raw: Raw, topic: Callable[..., str], taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)
    raw.ask(fetch(name, isolation_level=1), 12)
    aborted = AbortedTransaction(producer_id=5, first_offset=0, last_offset=0, last_stable_offset=1)
    monkeypatch.setattr(LogReader, "none_aborted", lambda *_: False)
    monkeypatch.setattr(LogReader, "aborted_transactions", lambda *_, **__: [aborted])
    partition = raw.ask(fetch(name, isolation_level=1), 12).responses[0].partitions[0]
    assert [each.producer_id for each in partition.aborted_transactions] == [5]
    assert taken() == [False]


def test_it_is_counted(raw: Raw, served: TestBroker, topic: Callable[..., str], taken: Taken) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)

    def count() -> int:
        return served.call(lambda broker: broker.metrics.counter(f"requests.{APIS[ApiKey.FETCH].name}").value)

    before = count()
    for _ in range(3):
        raw.ask(fetch(name), 12)
    assert count() - before == 3
    assert taken() == [True, True]
