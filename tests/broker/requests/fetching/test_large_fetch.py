"""Fetches that name more than is looked at in one turn: they say what short ones say."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from broker.raw import Raw, batch, fetch, produce
from broker.turns import turns_of

from headrace.broker.requests import short_fetch
from headrace.broker.requests.apis import k01_fetch
from headrace.broker.requests.apis.k01_fetch import NAMES_AT_ONCE
from headrace.broker.requests.fetching.reading import Reading
from headrace.broker.requests.readiness import once_ready
from headrace.broker.requests.resting import CONSUMERS_REST_FROM
from headrace.testing.running import TestBroker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchRequest, FetchTopic, ForgottenTopic
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest

VERSION = 11


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def many(name: str, offset: int, *, partition: int = 0, **fields: Any) -> FetchRequest:
    """A request that names the same partition very often."""
    request: FetchRequest = fetch(name, offset, (partition,), **fields)
    request.topics = [FetchTopic(topic=name, partitions=request.topics[0].partitions * (NAMES_AT_ONCE + 1))]
    return request


def parts(response: Any) -> list[Any]:
    return [partition for topic in response.responses for partition in topic.partitions]


def written(raw: Raw, name: str, partition: int = 0) -> None:
    answer = raw.ask(produce(name, batch(b"x"), partition=partition), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_what_is_here_is_read_and_the_rest_is_unknown(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic(2)
    written(raw, name, 1)
    request = fetch(name, 0, range(2 * NAMES_AT_ONCE), min_bytes=1 << 20, max_wait_ms=60_000, session_epoch=0)
    answer = raw.ask(request, VERSION)
    assert (answer.error_code, answer.session_id) == (0, 0)  # too many errors for a session
    found = parts(answer)
    assert [each.partition_index for each in found] == list(range(2 * NAMES_AT_ONCE))
    assert [(each.error_code, each.high_watermark, bool(each.records)) for each in found[:3]] == [
        (0, 0, False),
        (0, 1, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, False),
    ]
    assert {each.error_code for each in found[2:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_one_whose_partitions_are_here_waits_for_data(raw: Raw, served: TestBroker, topic: Callable[..., str]) -> None:
    name = topic()
    raw.send(many(name, 0, max_wait_ms=60_000), VERSION)
    wait_until(lambda: served.call(lambda broker: bool(broker.replicas.by_name[name, 0].fetch_waiters)))
    with Raw(served.port) as writer:
        written(writer, name)
    (found,) = parts(raw.receive(1, VERSION)[1])
    assert (found.error_code, found.high_watermark, bool(found.records)) == (0, 1, True)


def test_a_session_goes_on(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic(2)
    written(raw, name, 1)
    opened = raw.ask(fetch(name, 0, (0, 1), session_epoch=0, max_wait_ms=0), VERSION)
    assert opened.session_id
    ids: dict[str, Any] = {"session_id": opened.session_id, "max_wait_ms": 0}
    moved = raw.ask(many(name, 1, partition=1, session_epoch=1, **ids), VERSION)
    assert (moved.session_id, parts(moved)) == (opened.session_id, [])
    unknown = raw.ask(many("gone", 0, session_epoch=2, **ids), VERSION)
    assert [each.error_code for each in parts(unknown)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    forgets = fetch(name, 0, session_epoch=3, **ids)
    forgets.topics = []
    forgets.forgotten_topics_data = [
        ForgottenTopic(topic="gone", partitions=[0]),
        ForgottenTopic(topic=name, partitions=list(range(1, 2 * NAMES_AT_ONCE))),
    ]
    assert parts(raw.ask(forgets, VERSION)) == []
    written(raw, name, 0)
    written(raw, name, 1)
    last = raw.ask(fetch(name, 0, session_epoch=4, **ids), VERSION)
    assert [each.partition_index for each in parts(last)] == [0]
    beyond = raw.ask(fetch("gone", 0, range(2 * NAMES_AT_ONCE), session_epoch=5, **ids), VERSION)
    assert (beyond.session_id, len(parts(beyond))) == (
        0,
        2 * NAMES_AT_ONCE + 1,
    )  # and the record
    assert raw.ask(fetch(name, 0, session_epoch=6, **ids), VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_nothing_is_kept_of_a_session_that_gave_way_meanwhile(
    raw: Raw, served: TestBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(CONSUMERS_REST_FROM)

    def gives_way(broker: Any, keys: Any, answer: Callable[[], Any]) -> Any:
        broker.fetch_sessions.close(opened.session_id)
        return once_ready(broker, keys, answer)

    opened = raw.ask(fetch(name, 0, range(CONSUMERS_REST_FROM), session_epoch=0, max_wait_ms=0), VERSION)
    monkeypatch.setattr("headrace.broker.requests.apis.k01_fetch.once_ready", gives_way)
    raw.ask(many(name, 0, session_id=opened.session_id, session_epoch=1, max_wait_ms=0), VERSION)
    assert not any(watched(served, name, 3))


# --- many partitions that are all here

MANY = 250


@pytest.fixture
def held(topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic with more partitions than are looked at in one turn."""
    monkeypatch.setattr(k01_fetch, "NAMES_AT_ONCE", 30)
    monkeypatch.setattr(short_fetch, "LOOKED_AT_MAX", 30)
    monkeypatch.setattr(short_fetch, "NAMED_BYTES_MAX", 2048)
    return topic(MANY)


def watched(served: TestBroker, name: str, count: int = MANY) -> list[bool]:
    """Of which partitions a fetch waits for news."""

    def look(broker: Any) -> list[bool]:
        found = [broker.replicas.by_name.get((name, index)) for index in range(count)]
        return [replica is not None and bool(replica.fetch_waiters) for replica in found]

    return served.call(look)


def told(answer: Any) -> list[tuple[int, int, int, bool]]:
    return [(each.partition_index, each.error_code, each.high_watermark, bool(each.records)) for each in parts(answer)]


def empty(high_watermark: int = 0) -> list[tuple[int, int, int, bool]]:
    return [(index, 0, high_watermark, False) for index in range(MANY)]


def test_all_that_are_here_are_read(raw: Raw, served: TestBroker, held: str) -> None:
    written(raw, held, 7)
    expected = empty()
    expected[7] = (7, 0, 1, True)
    assert told(raw.ask(fetch(held, 0, range(MANY), max_wait_ms=60_000), VERSION)) == expected
    assert not any(watched(served, held))


def test_they_are_read_in_small_turns(raw: Raw, served: TestBroker, held: str) -> None:
    for index in range(0, MANY, 3):
        written(raw, held, index)
    with turns_of(served, counts_calls=True) as turns:

        def longest(request: FetchRequest) -> int:
            turns.reset()
            assert raw.ask(request, VERSION).error_code == 0
            return turns.most_calls

        few = longest(fetch(held, 0, range(30), max_wait_ms=0))
        longest(fetch(held, 1, range(MANY), max_wait_ms=1, min_bytes=1 << 20))
        # In one turn it would be more than 8 times as many; a timer of the broker may share the longest turn.
        assert longest(fetch(held, 0, range(MANY), max_wait_ms=0)) < 7 * few
        assert longest(fetch(held, 1, range(MANY), max_wait_ms=1, min_bytes=1 << 20)) < 5 * few


def test_it_waits_and_hears_of_the_last(raw: Raw, served: TestBroker, held: str) -> None:
    raw.send(fetch(held, 0, range(MANY), max_wait_ms=60_000), VERSION)
    wait_until(lambda: all(watched(served, held)))
    with Raw(served.port) as writer:
        written(writer, held, MANY - 1)
    assert told(raw.receive(1, VERSION)[1]) == [*empty()[:-1], (MANY - 1, 0, 1, True)]
    assert not any(watched(served, held))


def test_it_hears_of_what_is_written_behind_it(
    raw: Raw, served: TestBroker, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is appended to the first partition while the last ones are read is in the answer."""
    read = Reading._read_partition
    seen: set[int] = set()

    def behind(self: Reading, partition: Any, left: int, min_one: bool) -> Any:
        if partition.index == MANY - 1 and not seen:
            seen.add(partition.index)
            here = self._broker
            late = here.replicas.by_name[held, 0]
            here.replicas.appender.append_many(late, [batch(b"late")], here.node.clock.now_ms())
        return read(self, partition, left, min_one)

    written(raw, held, 0)
    asked = fetch(held, 0, range(MANY), max_wait_ms=60_000)
    asked.topics[0].partitions[0].fetch_offset = 1
    monkeypatch.setattr(Reading, "_read_partition", behind)
    assert told(raw.ask(asked, VERSION))[0] == (0, 0, 2, True)


def test_it_waits_for_as_long_as_it_may(raw: Raw, served: TestBroker, held: str) -> None:
    written(raw, held, 3)
    asked = fetch(held, 1, range(MANY), max_wait_ms=200)
    for each in asked.topics[0].partitions:
        each.fetch_offset = int(each.partition == 3)
    before = time.monotonic()
    expected = empty()
    expected[3] = (3, 0, 1, False)
    assert told(raw.ask(asked, VERSION)) == expected
    assert time.monotonic() - before >= 0.2
    assert not any(watched(served, held))
    assert served.call(lambda broker: broker.fetches.waiting) == 0


def test_it_waits_for_enough(raw: Raw, served: TestBroker, held: str) -> None:
    written(raw, held, 3)
    raw.send(fetch(held, 0, range(MANY), max_wait_ms=60_000, min_bytes=100), VERSION)
    wait_until(lambda: all(watched(served, held)))
    with Raw(served.port) as writer:
        written(writer, held, 0)
    expected = empty()
    expected[0], expected[3] = (0, 0, 1, True), (3, 0, 1, True)
    assert told(raw.receive(1, VERSION)[1]) == expected


def test_it_hears_that_a_topic_is_deleted(raw: Raw, served: TestBroker, held: str) -> None:
    raw.send(fetch(held, 0, range(MANY), max_wait_ms=60_000), VERSION)
    wait_until(lambda: all(watched(served, held)))
    with Raw(served.port) as other:
        assert other.ask(DeleteTopicsRequest([], [held], 30_000), 5).responses[0].error_code == 0
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in {each[1] for each in told(raw.receive(1, VERSION)[1])}


def test_a_client_that_leaves_is_waited_for_no_longer(served: TestBroker, held: str) -> None:
    with Raw(served.port) as leaves:
        leaves.send(fetch(held, 0, range(MANY), max_wait_ms=60_000), VERSION)
        wait_until(lambda: all(watched(served, held)))
    wait_until(lambda: not any(watched(served, held)))
    wait_until(lambda: served.call(lambda broker: broker.fetches.waiting) == 0)


def test_a_session_of_all(raw: Raw, served: TestBroker, held: str) -> None:
    opened = raw.ask(fetch(held, 0, range(MANY), session_epoch=0, max_wait_ms=0), VERSION)
    assert opened.session_id and told(opened) == empty()
    ids: dict[str, Any] = {"session_id": opened.session_id}
    idle = fetch(held, 0, session_epoch=1, max_wait_ms=1, **ids)
    idle.topics = []
    assert told(raw.ask(idle, VERSION)) == []
    waits = fetch(held, 0, session_epoch=2, max_wait_ms=60_000, **ids)
    waits.topics = []
    raw.send(waits, VERSION)
    wait_until(lambda: served.call(lambda broker: broker.fetches.waiting) == 1)
    with Raw(served.port) as writer:
        written(writer, held, MANY - 2)
    assert told(raw.receive(1, VERSION)[1]) == [(MANY - 2, 0, 1, True)]
    ends = fetch(held, 0, session_epoch=-1, max_wait_ms=0, **ids)
    assert raw.ask(ends, VERSION).error_code == 0
    assert not any(watched(served, held))
