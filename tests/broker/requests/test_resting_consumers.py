"""A consumer's session of many partitions costs what changes in it, and what it answers is what it would answer anyway.
What does not exist is kept for nobody beyond a bound."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from broker.guarded import CLIENT, OPEN_WITHOUT_ACLS, OWNER, acl, create, delete, everything
from broker.raw import Raw, batch, create_topic, fetch, produce
from peers.waiting import until

from headrace.broker.requests.apis import k01_fetch
from headrace.broker.requests.fetching.reading import Reading
from headrace.broker.requests.resting import CONSUMERS_REST_FROM, RestingForConsumer
from headrace.replicas import sessions
from headrace.replicas.sessions import ERRORS_MAX, Session, SessionPartition
from headrace.security.authorizer import Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest
from headrace.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

COUNT = CONSUMERS_REST_FROM + 36
ALL = tuple(range(COUNT))
VERSION = 11


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker() as broker:
        yield broker


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indexes of the partitions that fetches have looked at."""
    seen: list[int] = []
    read = Reading._read_partition

    def noted(self: Reading, partition: SessionPartition, left: int, min_one: bool) -> Any:
        seen.append(partition.index)
        return read(self, partition, left, min_one)

    monkeypatch.setattr(Reading, "_read_partition", noted)
    return seen


class Reader:
    """One session, over its own connection."""

    def __init__(self, raw: Raw, name: str, indexes: tuple[int, ...] = ALL, isolation: int = 0) -> None:
        self.raw, self.name, self.isolation = raw, name, isolation
        self.offsets = dict.fromkeys(indexes, 0)
        self.epoch = 1
        answer = raw.ask(fetch(name, 0, indexes, session_epoch=0, max_wait_ms=0, isolation_level=isolation), VERSION)
        self.id = answer.session_id
        self._take(answer)

    def ask(self, *, add: tuple[int, ...] = (), forget: tuple[int, ...] = (), max_wait_ms: int = 0) -> Any:
        """What has changed, with the new offsets of what was read last."""
        for index in forget:
            self.offsets.pop(index, None)
        for index in add:
            self.offsets.setdefault(index, 0)
        named = {index: self.offsets[index] for index in (*self._moved, *add) if index in self.offsets}
        request = FetchRequest(
            session_id=self.id, session_epoch=self.epoch, min_bytes=1, max_bytes=1 << 20, max_wait_ms=max_wait_ms,
            isolation_level=self.isolation,
            topics=[FetchTopic(self.name, partitions=[
                FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                for index, offset in named.items()
            ])] if named else [],
            forgotten_topics_data=[ForgottenTopic(self.name, partitions=list(forget))] if forget else [],
        )  # fmt: skip
        self.epoch += 1
        answer = self.raw.ask(request, VERSION)
        self._take(answer)
        return answer

    def _take(self, answer: Any) -> None:
        self._moved = []
        for partition in parts(answer):
            records = bytes(partition.records or b"")
            for _, header in iter_headers(records):
                self.offsets[partition.partition_index] = header.base_offset + header.record_count
                self._moved.append(partition.partition_index)
            if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.offsets[partition.partition_index] = partition.log_start_offset
                self._moved.append(partition.partition_index)


def parts(answer: Any) -> list[Any]:
    assert answer.error_code == 0
    return [partition for topic in answer.responses for partition in topic.partitions]


def said(answer: Any) -> list[tuple[Any, ...]]:
    """An answer to compare with another one's."""
    return [
        (each.partition_index, each.error_code, each.high_watermark, each.last_stable_offset, each.log_start_offset,
         bytes(each.records or b""))
        for each in parts(answer)
    ]  # fmt: skip


def _resting(session: Session) -> int:
    return len(session.kept) if isinstance(session.kept, RestingForConsumer) else 0


def write(raw: Raw, name: str, index: int) -> None:
    answer = raw.ask(produce(name, batch(b"x"), partition=index), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def delete_before(raw: Raw, name: str, index: int, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    answer = raw.ask(DeleteRecordsRequest([DeleteRecordsTopic(name, [partition])], 5000), 2)
    assert answer.topics[0].partitions[0].error_code == 0


def test_an_idle_session_costs_what_changes(served: TestBroker, looked_at: list[int]) -> None:
    create_topic(served.port, "idle", COUNT)
    with Raw(served.port) as raw, Raw(served.port) as other:
        reader = Reader(raw, "idle")
        assert sorted(set(looked_at)) == list(ALL)
        reader.ask()  # they lie down
        looked_at.clear()
        for _ in range(5):
            assert parts(reader.ask(max_wait_ms=5)) == []
        assert looked_at == [], "nothing is looked at where nothing changes"
        write(other, "idle", 7)
        assert [each.partition_index for each in parts(reader.ask(max_wait_ms=5000))] == [7]
        reader.ask(), reader.ask()
        looked_at.clear()
        assert parts(reader.ask(max_wait_ms=5)) == []
        assert looked_at == []


def test_a_fetch_that_waits_hears_of_what_rests(served: TestBroker) -> None:
    create_topic(served.port, "waits", COUNT)
    with Raw(served.port) as raw, Raw(served.port) as other:
        reader = Reader(raw, "waits")
        reader.ask()
        request = FetchRequest(
            session_id=reader.id, session_epoch=2, min_bytes=1, max_bytes=1 << 20, max_wait_ms=30_000
        )
        raw.send(request, VERSION)
        until(lambda: served.call(lambda inside: inside.fetches.waiting == 1), "the fetch waits")
        write(other, "waits", 99)
        _, answer = raw.receive(1, VERSION)
        assert [each.partition_index for each in parts(answer)] == [99]
        assert served.call(lambda inside: inside.fetches.waiting) == 0


def test_nothing_is_left_of_a_session_that_ends(served: TestBroker) -> None:
    name = "ends"
    create_topic(served.port, name, COUNT)
    with Raw(served.port) as raw:
        reader = Reader(raw, name)
        reader.ask()

        def watchers() -> int:
            return served.call(
                lambda inside: sum(
                    len(each.fetch_waiters) for each in inside.replicas.by_name.values() if each.topic == name
                )
            )

        assert watchers() == COUNT
        raw.ask(FetchRequest(session_id=reader.id, session_epoch=-1, max_bytes=1), VERSION)
        assert watchers() == 0


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_it_answers_as_one_that_looks_at_all(
    served: TestBroker, monkeypatch: pytest.MonkeyPatch, seed: int, isolation: int
) -> None:
    rng, name = random.Random(seed), f"alike-{isolation}-{seed}"
    create_topic(served.port, name, 12)
    monkeypatch.setattr(k01_fetch, "CONSUMERS_REST_FROM", 1)
    with Raw(served.port) as one, Raw(served.port) as two, Raw(served.port) as other:
        rests, looks = Reader(one, name, tuple(range(10)), isolation), Reader(two, name, tuple(range(10)), isolation)

        def kept() -> int:
            return served.call(lambda inside: _resting(inside.fetch_sessions.sessions[rests.id]))

        rested = 0
        for _ in range(60):
            for _ in range(rng.choice((0, 0, 1, 3))):
                write(other, name, rng.randrange(12))
            if rng.random() < 0.2:
                index = rng.randrange(12)
                delete_before(other, name, index, -1)
            add: tuple[int, ...] = (rng.randrange(12),) if rng.random() < 0.2 else ()
            forget: tuple[int, ...] = (rng.randrange(12),) if rng.random() < 0.2 else ()
            forget = tuple(each for each in forget if each not in add and len(rests.offsets) > 2)
            monkeypatch.setattr(k01_fetch, "CONSUMERS_REST_FROM", 1)
            first = rests.ask(add=add, forget=forget)
            monkeypatch.setattr(k01_fetch, "CONSUMERS_REST_FROM", 1 << 30)
            second = looks.ask(add=add, forget=forget)
            assert sorted(said(first)) == sorted(said(second))
            rested = max(rested, kept())
        assert rested > 3


def test_a_deleted_topic_is_told(served: TestBroker) -> None:
    create_topic(served.port, "goes", COUNT)
    with Raw(served.port) as raw, Raw(served.port) as other:
        reader = Reader(raw, "goes")
        reader.ask()
        assert other.ask(DeleteTopicsRequest(topic_names=["goes"], timeout_ms=5000), 5).responses[0].error_code == 0
        answer = reader.ask()
        assert {each.error_code for each in parts(answer)} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(parts(answer)) == COUNT


def test_whoever_may_read_no_longer_is_told() -> None:
    with running_broker(OPEN_WITHOUT_ACLS) as guarded:
        create_topic(guarded.port, "rights", COUNT)
        reads = acl(ResourceType.TOPIC, "rights", Operation.READ)
        with Raw(guarded.port) as owner, Raw(guarded.port, source=CLIENT) as raw:
            assert create(owner, *everything(OWNER), reads) == [0] * 5
            reader = Reader(raw, "rights")
            reader.ask()
            assert parts(reader.ask()) == []
            assert delete(owner, resource_type=ResourceType.TOPIC, name="rights").error_code == 0
            answer = reader.ask()
            assert {each.error_code for each in parts(answer)} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            assert len(parts(answer)) == COUNT


def test_what_does_not_exist_is_in_no_session(served: TestBroker) -> None:
    create_topic(served.port, "real", 2)
    with Raw(served.port) as raw:
        request = fetch("real", 0, (0, 1), session_epoch=0, max_wait_ms=0)
        missing = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(ERRORS_MAX + 1)]
        request.topics.append(FetchTopic("none", partitions=missing))
        answer = raw.ask(request, VERSION)
        assert (answer.session_id, len(parts(answer))) == (0, ERRORS_MAX + 3)
        reader = Reader(raw, "real", (0, 1))
        assert reader.id > 0
        request.session_id, request.session_epoch = reader.id, 1
        answer = raw.ask(request, VERSION)
        assert answer.session_id == 0 and len(parts(answer)) >= ERRORS_MAX + 1
        request.session_epoch = 2
        assert raw.ask(request, VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_grows_beyond_the_bound_ends(served: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    create_topic(served.port, "grows", 4)
    with Raw(served.port) as raw:
        reader = Reader(raw, "grows", (0, 1))
        held = served.call(lambda inside: inside.fetch_sessions.partitions_of_clients)
        monkeypatch.setattr(sessions, "PARTITIONS_MAX", held + 1)
        assert reader.ask(add=(2,)).session_id == reader.id
        assert reader.ask(add=(3,)).session_id == 0
        assert reader.raw.ask(fetch("grows", 0, (0,), session_epoch=0, max_wait_ms=0), VERSION).session_id > 0
