"""Batches that are opened to be checked: aside where that takes long, in order, and inside the memory for requests."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from broker.raw import Raw, create_topic, fetch, produce

from headrace.broker.requests import opening
from headrace.env.posix_helper import PosixHelper
from headrace.log import validate
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers, seal_batch, unsealed
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import Compression, Record, build_batch, compress, decode_batch

SMALL, LARGE = 100, 300_000
"""Bytes of a value: opened on the event loop, and on a worker."""


def keyed(value: bytes, size: int = SMALL, codec: int = Compression.ZSTD, **fields: Any) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch([Record(0, now_ms, b"k", value.ljust(size, b"."), [])], compression=codec, **fields)


def only(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


def opened_aside(served: TestBroker) -> int:
    count: int = served.call(lambda broker: broker.metrics.counter("produce.batches_opened_aside").value)
    return count


def held(served: TestBroker) -> int:
    used: int = served.call(lambda broker: broker.server.requests_budget.used)
    return used


def values(raw: Raw, topic: str) -> list[bytes]:
    records = raw.ask(fetch(topic), 11).responses[0].partitions[0].records
    data = b"" if records is None else bytes(records)
    return [record.value.rstrip(b".") for at, _ in iter_headers(data) for record in decode_batch(data, at)]  # type: ignore[union-attr]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("settings", [{"cleanup_policy": "compact"}, {"compression_type": "gzip"}])
def test_what_is_opened_is_stored(
    raw: Raw, topic: Callable[..., str], served: TestBroker, codec: int, settings: dict[str, str]
) -> None:
    name = topic(**settings)
    before, helped = opened_aside(served), opened_in_helper(served)
    sent = [keyed(b"%d" % at, size, codec) for at, size in enumerate((SMALL, LARGE, SMALL, LARGE))]
    for offset, each in enumerate(sent):
        answer = only(raw.ask(produce(name, each), 9))
        assert (answer.error_code, answer.base_offset) == (0, offset)
    assert values(raw, name) == [b"0", b"1", b"2", b"3"]
    plain = codec == (Compression.NONE if "cleanup_policy" in settings else Compression.GZIP)
    assert opened_aside(served) - before == (0 if plain else 2)
    assert opened_in_helper(served) == helped, "300 KB are no bomb, whatever bound lz4 states"
    assert held(served) == 0


def test_requests_of_a_connection_keep_their_order(raw: Raw, topic: Callable[..., str]) -> None:
    """A small batch behind a large one is not appended before it, whichever way it goes."""
    name, other = topic(cleanup_policy="compact"), topic()
    sizes = [LARGE, SMALL, LARGE, LARGE, SMALL, SMALL, LARGE]
    codecs = [Compression.ZSTD, Compression.NONE, Compression.LZ4, Compression.NONE, Compression.GZIP, *[0] * 2]
    frames = []
    for at, (size, codec) in enumerate(zip(sizes, codecs, strict=True)):
        sent = keyed(b"%d" % at, size, codec, producer_id=5, producer_epoch=0, base_sequence=at)
        frames += [raw.frame(produce(name, sent), 9), raw.frame(produce(other, keyed(b"%d" % at)), 9)]
    raw.socket.sendall(b"".join(frames))
    for at in range(len(sizes)):
        for _ in (name, other):
            answer = only(raw.receive(0, 9)[1])
            assert (answer.error_code, answer.base_offset) == (0, at)
    assert values(raw, name) == values(raw, other) == [b"%d" % at for at in range(len(sizes))]


def test_several_partitions_of_one_request(raw: Raw, topic: Callable[..., str], served: TestBroker) -> None:
    compacted, plain = topic(2, cleanup_policy="compact"), topic()
    data = [PartitionProduceData(index=at, records=keyed(b"%d" % at, LARGE if at else SMALL)) for at in range(3)]
    topics = [
        TopicProduceData(name=compacted, partition_data=data),
        TopicProduceData(name=plain, partition_data=[PartitionProduceData(index=0, records=keyed(b"p", SMALL, 0))]),
    ]
    answer = raw.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 9)
    codes = [[part.error_code for part in each.partition_responses] for each in answer.responses]
    assert codes == [[0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [0]]
    assert values(raw, plain) == [b"p"]


def test_what_opens_to_too_much_is_too_large(raw: Raw, topic: Callable[..., str], served: TestBroker) -> None:
    """As is said of a batch that is too large as it is: a producer splits it, and tries again."""
    name = topic(cleanup_policy="compact", max_decompressed_bytes="1000000")
    for codec in list(Compression)[1:]:
        answer = only(raw.ask(produce(name, keyed(b"x", 1_100_000, codec)), 9))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert only(raw.ask(produce(name, keyed(b"x", 900_000)), 9)).error_code == 0
    assert held(served) == 0


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Checks aside wait for this event."""
    go = threading.Event()
    real = validate.check_client_batch

    def slowly(data: Any, config: Any, name: str, now_ms: int, how: Any = validate.HERE) -> Any:
        if how.aside:
            assert go.wait(60)
        return real(data, config, name, now_ms, how)

    monkeypatch.setattr(opening, "check_client_batch", slowly)
    yield go
    go.set()


def test_others_are_served_meanwhile_and_those_who_want_the_same_wait(
    served: TestBroker, topic: Callable[..., str], stuck: threading.Event
) -> None:
    compacted, plain = topic(cleanup_policy="compact"), topic()
    with Raw(served.port, timeout_s=60) as one, Raw(served.port, timeout_s=60) as two, Raw(served.port) as other:
        one.send(produce(compacted, keyed(b"1", LARGE)), 9)
        while not held(served):
            time.sleep(0.001)
        two.send(produce(compacted, keyed(b"2", LARGE)), 9)
        for at in range(3):
            assert only(other.ask(produce(plain, keyed(b"x")), 9)).base_offset == at
        assert only(other.ask(produce(compacted, keyed(b"0")), 9)).base_offset == 0
        assert held(served) < 2 * LARGE  # one is open at a time
        stuck.set()
        assert only(one.receive(0, 9)[1]).error_code == only(two.receive(0, 9)[1]).error_code == 0
        assert sorted(values(other, compacted)) == [b"0", b"1", b"2"]
    assert held(served) == 0


def test_whoever_leaves_meanwhile_takes_nothing_along(
    served: TestBroker, topic: Callable[..., str], stuck: threading.Event
) -> None:
    name = topic(cleanup_policy="compact")
    with Raw(served.port) as gone:
        gone.send(produce(name, keyed(b"0", LARGE)), 9)
        while not held(served):
            time.sleep(0.001)
    stuck.set()
    with Raw(served.port) as raw:
        while len(values(raw, name)) < 1:  # what has arrived is appended
            time.sleep(0.001)
        assert only(raw.ask(produce(name, keyed(b"1", LARGE)), 9)).base_offset == 1
    assert held(served) == 0


def test_a_topic_that_is_deleted_meanwhile(
    served: TestBroker, raw: Raw, topic: Callable[..., str], stuck: threading.Event
) -> None:
    from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

    name = topic(cleanup_policy="compact")
    raw.send(produce(name, keyed(b"0", LARGE)), 9)
    while not held(served):
        time.sleep(0.001)
    with Raw(served.port) as other:
        other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000), 6)
    stuck.set()
    assert only(raw.receive(0, 9)[1]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_little_memory_for_requests_is_enough() -> None:
    """Whoever has none waits; somebody always gets finished."""
    with running_broker({"queued.max.request.bytes": "400000"}) as served:
        create_topic(served.port, "c", cleanup_policy="compact")

        def send(who: int) -> list[int]:
            with Raw(served.port, timeout_s=60) as raw:
                return [only(raw.ask(produce("c", keyed(b"%d" % who, LARGE)), 9)).error_code for _ in range(10)]

        with ThreadPoolExecutor(8) as pool:
            assert [code for codes in pool.map(send, range(8)) for code in codes] == [0] * 80
        assert held(served) == 0


def test_a_bomb_holds_nobody_up(served: TestBroker, topic: Callable[..., str]) -> None:
    """12 MB of the smallest records in 1 KB, twice: the event loop took seconds for each."""
    compacted, plain = topic(cleanup_policy="compact"), topic()
    count, now_ms = 1_500_000, int(time.time() * 1000)
    bomb = bytes(
        seal_batch(
            unsealed(compress(Compression.ZSTD, b"\x0e\0\0\0\x02k\x01\0" * count)), record_count=count,
            last_offset_delta=count - 1, base_timestamp=now_ms, max_timestamp=now_ms, attributes=Compression.ZSTD,
        )
    )  # fmt: skip
    done = threading.Event()

    def throw() -> int:
        with Raw(served.port, timeout_s=60) as raw:
            for _ in range(2):
                assert only(raw.ask(produce(compacted, bomb), 9)).error_code == ErrorCode.INVALID_RECORD
        done.set()
        return 2

    took: list[float] = []
    with ThreadPoolExecutor(1) as pool, Raw(served.port) as raw:
        thrown = pool.submit(throw)
        while not done.is_set():
            before = time.monotonic()
            assert only(raw.ask(produce(plain, keyed(b"x")), 9)).error_code == 0
            took.append(time.monotonic() - before)
        assert thrown.result() == 2
    assert len(took) > 20
    assert max(took) < 1.0


BOMB = 2_000_000
"""Bytes of a value that shrinks to a few hundred: such a batch goes to the helper process."""


def opened_in_helper(served: TestBroker) -> int:
    count: int = served.call(lambda broker: broker.metrics.counter("produce.batches_opened_in_helper").value)
    return count


@pytest.mark.parametrize("codec", list(Compression)[1:])
@pytest.mark.parametrize("settings", [{"cleanup_policy": "compact"}, {"compression_type": "uncompressed"}])
def test_what_the_helper_says_is_what_the_broker_would_say(
    raw: Raw, topic: Callable[..., str], served: TestBroker, codec: int, settings: dict[str, str]
) -> None:
    """Accepted, rewritten, and refused: with its record named."""
    name = topic(**settings, max_message_bytes="3000000")
    before = opened_in_helper(served)
    assert only(raw.ask(produce(name, keyed(b"1", BOMB, codec)), 9)).error_code == 0
    assert values(raw, name) == [b"1"]
    nameless = build_batch([Record(0, 1, None, b"." * BOMB, [])], compression=codec)
    answer = only(raw.ask(produce(name, nameless), 9))
    if "cleanup_policy" in settings:
        assert (answer.error_code, [each.batch_index for each in answer.record_errors]) == (87, [0])
    else:
        assert answer.error_code == 0
    assert opened_in_helper(served) - before == (0 if codec == Compression.SNAPPY else 2)  # it shrinks to a 20th
    assert held(served) == 0


def test_a_helper_that_dies_costs_one_batch(
    raw: Raw, topic: Callable[..., str], served: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(cleanup_policy="compact")
    with monkeypatch.context() as patch:
        patch.setattr(opening, "check_in_helper", die)
        answer = only(raw.ask(produce(name, keyed(b"0", BOMB)), 9))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert "status 7" in answer.error_message
    assert only(raw.ask(produce(name, keyed(b"1", BOMB)), 9)).error_code == 0
    assert values(raw, name) == [b"1"]
    assert held(served) == 0


def die(*_: object) -> None:
    os._exit(7)


def test_where_no_process_can_be_started_a_worker_opens(
    raw: Raw, topic: Callable[..., str], served: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(24, "Too many open files")

    name = topic(cleanup_policy="compact")
    monkeypatch.setattr(PosixHelper, "call", none)
    assert only(raw.ask(produce(name, keyed(b"1", BOMB)), 9)).error_code == 0
    assert values(raw, name) == [b"1"]
