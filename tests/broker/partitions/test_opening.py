"""Logs are opened by workers: a request for one that is not open waits for it, and nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker.partitions.members import Cluster, same
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.broker.partitions import opening
from headrace.log.log import Log
from headrace.log.manager import LogManager
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.metadata.image import DIRECTORY_UNASSIGNED
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import metadata_records as mr
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
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
from headrace.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest

PATIENCE_S = 60
PARTITIONS = 12


class Held:
    """Partitions of topic `t` whose logs are not opened before the test says so, and who opened the others."""

    def __init__(self) -> None:
        self.may_open = {index: threading.Event() for index in range(PARTITIONS)}
        self.opened_by: dict[int, str] = {}

    def release(self) -> None:
        for event in self.may_open.values():
            event.set()


@contextmanager
def restarted(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TestBroker, Held]]:
    """A broker after a clean restart, that has opened none of the logs of topic `t`."""
    with running_broker(data=data) as served, Raw(served.port) as raw:
        create_topic(served.port, "t", PARTITIONS)
        for index in range(PARTITIONS):
            raw.ask(produce("t", batch(b"%d" % index), partition=index), 9)
    held = Held()

    def held_open(resources: Resources, path: str, key: tuple[str, int], *more: Any, **named: Any) -> Log:
        topic, index = key
        if topic == "t":
            held.opened_by[index] = threading.current_thread().name
            assert held.may_open[index].wait(PATIENCE_S)
        return open_log(resources, path, key, *more, **named)

    monkeypatch.setattr("headrace.log.opening.open_log", held_open)
    monkeypatch.setattr(opening, "OPENED_A_SLICE", 1)
    with running_broker(data=data) as served, ExitStack() as stack:
        stack.callback(held.release)
        yield served, held


def asks() -> dict[str, Callable[[Raw], tuple[int, int]]]:
    """(error code, an offset that only the open log knows) of requests of every kind for partition 3."""

    def produced(raw: Raw) -> tuple[int, int]:
        answer = raw.ask(produce("t", batch(b"x"), partition=3), 9).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def fetched(raw: Raw) -> tuple[int, int]:
        answer = raw.ask(fetch("t", partitions=(3,)), 11).responses[0].partitions[0]
        return answer.error_code, answer.high_watermark

    def listed(raw: Raw) -> tuple[int, int]:
        asked = ListOffsetsTopic("t", [ListOffsetsPartition(3, timestamp=-1)])
        answer = raw.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7).topics[0].partitions[0]
        return answer.error_code, answer.offset

    def deleted(raw: Raw) -> tuple[int, int]:
        asked = DeleteRecordsTopic("t", [DeleteRecordsPartition(3, -1)])
        answer = raw.ask(DeleteRecordsRequest(topics=[asked]), 2).topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    def ended(raw: Raw) -> tuple[int, int]:
        asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(3, leader_epoch=0)])
        answer = raw.ask(OffsetForLeaderEpochRequest(topics=[asked]), 4).topics[0].partitions[0]
        return answer.error_code, answer.end_offset

    def described(raw: Raw) -> tuple[int, int]:
        answer = raw.ask(DescribeProducersRequest(topics=[TopicRequest("t", [3])]), 0).topics[0].partitions[0]
        return answer.error_code, 1 + len(answer.active_producers)

    return {each.__name__: each for each in (produced, fetched, listed, deleted, ended, described)}


@pytest.mark.parametrize("kind", asks())
def test_a_request_waits_for_the_log_that_it_needs_and_for_no_other(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with restarted(tmp_path, monkeypatch) as (served, held), Raw(served.port) as raw, Raw(served.port) as other:
        held.may_open[3].set()  # the others are not opened as long as this test lasts
        assert asks()[kind](raw) == (0, 1)
        assert held.opened_by[3].startswith("headrace"), held.opened_by
        assert other.ask(fetch("nowhere"), 11).responses[0].partitions[0].error_code == 3


def test_the_event_loop_goes_on_and_order_is_kept_while_a_log_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with restarted(tmp_path, monkeypatch) as (served, held), Raw(served.port) as raw, Raw(served.port) as other:
        for value in (b"a", b"b", b"c"):
            raw.send(produce("t", batch(value), partition=5), 9)
        raw.send(produce("t", batch(b"d"), partition=6), 9)
        assert other.ask(fetch("nowhere"), 11).responses[0].partitions[0].error_code == 3
        for _ in range(50):
            if 5 in held.opened_by:
                break
            other.ask(fetch("nowhere"), 11)
        held.release()
        answers = [raw.receive(0, 9)[1].responses[0].partition_responses[0] for _ in range(4)]
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, 1), (0, 2), (0, 3), (0, 1)]
        assert "headrace-broker" not in held.opened_by.values()  # the loop's thread


def test_a_topic_deleted_while_its_log_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with restarted(tmp_path, monkeypatch) as (served, held), Raw(served.port) as raw, Raw(served.port) as other:
        raw.send(produce("t", batch(b"a"), partition=5), 9)
        while 5 not in held.opened_by:
            other.ask(fetch("nowhere"), 11)
        deletion = threading.Thread(
            target=lambda: other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000), 6)
        )
        deletion.start()
        while served.call(lambda broker: broker.image.topics.by_name("t")) is not None:
            pass
        held.release()
        deletion.join()
        answer = raw.receive(0, 9)[1].responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert served.call(lambda broker: [home.failure for home in broker.logs.directories.values()]) == [None]
        create_topic(served.port, "t", PARTITIONS)
        produced = raw.ask(produce("t", batch(b"new"), partition=5), 9).responses[0].partition_responses[0]
        assert (produced.error_code, produced.base_offset) == (0, 0)


def test_the_logs_of_a_huge_topic_are_taken_away_some_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of the same name has none of their records, and a stop leaves none of their folders."""
    monkeypatch.setattr(opening, "TAKEN_AWAY_A_TURN", 2)
    turns: list[int] = []
    real = opening.Opener._take_more_away

    def counted(self: opening.Opener) -> None:
        turns.append(len(self._doomed))
        real(self)

    monkeypatch.setattr(opening.Opener, "_take_more_away", counted)
    deletion = DeleteTopicsRequest([DeleteTopicState("t")], [], 5000)
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t", 40)
        raw.ask(produce("t", batch(b"old"), partition=39), 9)
        raw.ask(deletion, 6)
        create_topic(served.port, "t", 40)
        produced = raw.ask(produce("t", batch(b"new"), partition=39), 9).responses[0].partition_responses[0]
        assert (produced.error_code, produced.base_offset) == (0, 0)
        assert max(turns) > 20
        raw.ask(deletion, 6)
    assert not {f"t-{index}" for index in range(40)} & {folder.name for folder in tmp_path.iterdir()}


def test_a_defect_in_opening_is_reported_and_takes_that_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LogManager.get_or_create

    def get_or_create(logs: LogManager, topic: str, index: int, *more: Any, **named: Any) -> Log:
        if (topic, index) == ("t", 1):
            raise RuntimeError("a defect")
        return real(logs, topic, index, *more, **named)

    monkeypatch.setattr(LogManager, "get_or_create", get_or_create)
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t", 2)
        codes = [
            raw.ask(produce("t", batch(b"a"), partition=index), 9).responses[0].partition_responses[0].error_code
            for index in (0, 1)
        ]
        assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR]
        assert isinstance(served.take_defect(), RuntimeError)


def test_a_partition_in_a_directory_that_is_gone_is_copied_once_its_metadata_allow_it() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        gone = b"another log dir."
        topic_id = bytes(range(16))
        partition = mr.PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1, 2],
            directories=[DIRECTORY_UNASSIGNED, gone],
            isr=[1, 2],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        cluster.write(mr.TopicRecord("u", topic_id), partition)
        assert cluster[2].replicas.offline == {("u", 0): ErrorCode.KAFKA_STORAGE_ERROR}
        cluster.change("u", leader=1)
        assert cluster[2].replicas.offline, "it counts as in sync still: an empty log would be a hole"
        cluster.change("u", isr=[1])
        await cluster[1].append(b"c", topic="u")
        await cluster.until(lambda: 2 in cluster.partition("u").isr and same(cluster, 1, 2, topic="u"))
        assert not cluster[2].replicas.offline

    cluster.run(test)


def test_a_partition_in_a_directory_that_is_gone_opens_when_it_is_assigned_to_one_that_is_there() -> None:
    cluster = Cluster(1)

    async def test() -> None:
        topic_id = bytes(range(16))
        partition = mr.PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1],
            directories=[b"another log dir."],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        cluster.write(mr.TopicRecord("u", topic_id), partition)
        assert cluster[1].replicas.offline
        cluster.change("u", directories=[DIRECTORY_UNASSIGNED])
        await cluster.until(lambda: cluster[1].replicas.held(("u", 0)))
        assert not cluster[1].replicas.offline
        assert await cluster[1].produce(b"a", topic="u") is ErrorCode.NONE

    cluster.run(test)
