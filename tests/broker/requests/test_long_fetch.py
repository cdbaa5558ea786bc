"""Fetches that name more than is looked at in one turn: they say what short ones say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.raw import Raw, batch, fetch, produce

from headrace.broker.requests.apis import k01_fetch
from headrace.broker.requests.apis.k01_fetch import NAMES_AT_ONCE
from headrace.broker.requests.resting import CONSUMERS_REST_FROM
from headrace.testing.running import TestBroker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchRequest, FetchTopic, ForgottenTopic

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
    all_held = k01_fetch._all_held

    def gives_way(broker: Any, partitions: Any) -> Iterator[int]:
        broker.fetch_sessions.close(opened.session_id)
        return (yield from all_held(broker, partitions))  # type: ignore[return-value]

    opened = raw.ask(fetch(name, 0, range(CONSUMERS_REST_FROM), session_epoch=0, max_wait_ms=0), VERSION)
    monkeypatch.setattr(k01_fetch, "_all_held", gives_way)
    raw.ask(many(name, 0, session_id=opened.session_id, session_epoch=1, max_wait_ms=0), VERSION)
    watched = served.call(lambda broker: [bool(broker.replicas.by_name[name, n].fetch_waiters) for n in range(3)])
    assert watched == [False] * 3
