"""The common path of Fetch: to the byte what the handler answers; and what it leaves to the handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.broker.requests.plain_fetch import PlainFetch
from headrace.log.log import Log
from headrace.log.transaction_index import AbortedTransaction
from headrace.testing.running import TestBroker
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the common path took a request, one after the other."""
    answers: list[bool] = []
    answer = PlainFetch.answer

    def noted(self: PlainFetch, *arguments: object) -> bool:
        answers.append(answer(self, *arguments))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(PlainFetch, "answer", noted)
    return answers


def asked(raw: Raw, name: str, topic_id: bytes, version: int, offset: int, **fields: Any) -> bytes:
    """The frame of an answer behind its correlation id."""
    fields.setdefault("max_wait_ms", 100)
    request = fetch(name, offset, topic_id=topic_id, **fields) if version >= 13 else fetch(name, offset, **fields)
    raw.send(request, version)
    return raw.receive_frame()[4:]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", range(12, 19))
def test_the_same_bytes_as_the_long_way(
    served: TestBroker, taken: list[bool], version: int, isolation_level: int
) -> None:
    name = f"alike-{version}-{isolation_level}"
    topic_id = create_topic(served.port, name)
    with Raw(served.port) as raw:
        for size in (1, 50, 200, 20_000, 300_000, 7):
            raw.ask(produce(name, batch(b"x" * size)), 9)
    offsets = [0, 1, 2, 3, 4, 5, 0]
    with Raw(served.port) as again:
        for limit in (1 << 20, 150, 10_000):
            for offset in offsets:
                fields = {"isolation_level": isolation_level, "partition_max_bytes": limit}
                frame = asked(again, name, topic_id, version, offset, **fields)
                with Raw(served.port) as fresh:
                    assert frame == asked(fresh, name, topic_id, version, offset, **fields), (offset, limit)
    assert taken.count(True) == 3 * (len(offsets) - 1)


def test_earlier_versions_go_the_long_way(raw: Raw, topic: Callable[..., str], taken: list[bool]) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)
    for _ in range(3):
        assert raw.ask(fetch(name), 11).responses[0].partitions[0].records
    assert not taken


def test_the_end_of_the_log_waits_for_more(
    raw: Raw, served: TestBroker, topic: Callable[..., str], taken: list[bool]
) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)
    for offset in (0, 0, 1):
        raw.send(fetch(name, offset, max_wait_ms=8000), 12)
        if offset == 1:
            with Raw(served.port) as writer:
                writer.ask(produce(name, batch(b"y")), 9)
        assert raw.receive(1, 12)[1].responses[0].partitions[0].high_watermark == 1 + offset
    assert taken == [True, False]
    raw.ask(fetch(name, 1, max_wait_ms=8000), 12)
    assert taken == [True, False, True]


def test_errors_go_the_long_way(raw: Raw, topic: Callable[..., str], taken: list[bool]) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)
    for offset, error in ((0, 0), (0, 0), (9, ErrorCode.OFFSET_OUT_OF_RANGE), (0, 0)):
        assert raw.ask(fetch(name, offset), 12).responses[0].partitions[0].error_code == error
    assert taken == [True, False, True]
    fenced = raw.ask(fetch(name, current_leader_epoch=7), 12).responses[0].partitions[0]
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    fenced = raw.ask(fetch(name, current_leader_epoch=7), 12).responses[0].partitions[0]
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert taken == [True, False, True, False, False]


def test_a_fetch_sees_the_produce_before_it(raw: Raw, topic: Callable[..., str], taken: list[bool]) -> None:
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
    assert any(taken)


def test_answers_keep_the_order_of_the_requests(
    raw: Raw, served: TestBroker, topic: Callable[..., str], taken: list[bool]
) -> None:
    name, waited_for = topic(), topic()
    raw.ask(produce(name, batch(b"x" * 200_000)), 9)
    raw.ask(fetch(name), 12)
    waiting = raw.send(fetch(waited_for, max_wait_ms=8000), 11)
    plain = raw.send(fetch(name), 12)
    with Raw(served.port) as writer:
        writer.ask(produce(waited_for, batch(b"wakes it")), 9)
    assert raw.receive(1, 11)[0] == waiting
    correlation_id, response = raw.receive(1, 12)
    assert (correlation_id, len(response.responses[0].partitions[0].records) > 200_000) == (plain, True)
    assert taken == [True]


def test_a_topic_made_anew_is_another_topic(raw: Raw, served: TestBroker, taken: list[bool]) -> None:
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
    assert taken == [True, False, False, True]


def test_aborted_transactions_go_the_long_way(
    raw: Raw, topic: Callable[..., str], taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)
    raw.ask(fetch(name, isolation_level=1), 12)
    aborted = AbortedTransaction(producer_id=5, first_offset=0, last_offset=0, last_stable_offset=1)
    monkeypatch.setattr(Log, "aborted_transactions", lambda *_, **__: [aborted])
    partition = raw.ask(fetch(name, isolation_level=1), 12).responses[0].partitions[0]
    assert [each.producer_id for each in partition.aborted_transactions] == [5]
    assert taken == [False]


def test_it_is_counted(raw: Raw, served: TestBroker, topic: Callable[..., str], taken: list[bool]) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"x")), 9)

    def count() -> int:
        return served.call(lambda broker: broker.metrics.counter(f"requests.{APIS[ApiKey.FETCH].name}").value)

    before = count()
    for _ in range(3):
        raw.ask(fetch(name), 12)
    assert count() - before == 3
    assert taken == [True, True]
