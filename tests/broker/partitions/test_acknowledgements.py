"""What an acknowledgement waits for: what the producer asked for, the in-sync replicas, the disk. Three conditions."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce
from env.turns_by_hand import TurnsByHand
from log.clocks import HandClock

from headrace.broker.broker import Broker
from headrace.broker.partitions.replica import Replica
from headrace.env.completion import Completion
from headrace.log.log import Log
from headrace.machine import Decision
from headrace.metadata.image import Partition
from headrace.replicas.partition import PartitionState
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import ProduceRequest
from headrace.wire.messages.metadata_records import PartitionChangeRecord

PATIENCE_S = 60


class Rig:
    """A replica with a log that is two numbers, and whoever waits for it."""

    def __init__(self, *, replicas: tuple[int, ...], isr: tuple[int, ...], flush_gated: bool = False) -> None:
        self.log = SimpleNamespace(
            end_offset=0,
            flushing=SimpleNamespace(flushed_offset=0),
            epochs=SimpleNamespace(assign=lambda *_: None, dirty=False),
            has_no_gap=lambda: None,
            state=SimpleNamespace(config=SimpleNamespace(min_insync_replicas=2), active=SimpleNamespace(size=0)),
        )
        log = cast(Log, self.log)
        self.replica = Replica("t", 0, bytes(16), log, PartitionState(1), HandClock(0), flush_gated)
        self.turns = TurnsByHand()
        self.completions = self.turns.completions()
        self.replicas = replicas
        self.epoch = 0
        self._said: list[tuple[str, ErrorCode]] = []
        self.lead(isr)

    def lead(self, isr: tuple[int, ...]) -> None:
        self.epoch += 1
        directories = (bytes(16),) * len(self.replicas)
        self.replica.become_leader(Partition(0, self.replicas, directories, isr, 1, 0, self.epoch))

    def append(self) -> None:
        """One record, and two producers who wait for it: one wants every replica, one this broker alone."""
        self.log.end_offset += 1
        if not self.replica.flush_gated:
            self.replica.reached(self.log.end_offset, 1)
        for name, needs_all in (("one", False), ("all", True)):
            said = f"{name}@{self.log.end_offset}"
            completion: Completion[ErrorCode] = Completion(self.completions)
            completion.deliver_to(partial(self.note, said))
            error = self.replica.acknowledged(self.log.end_offset, needs_all)
            if error is not None:
                completion.complete(error)
            else:
                self.replica.wait(self.log.end_offset, needs_all, completion, float("inf"))

    def note(self, said: str, error: ErrorCode) -> None:
        self._said.append((said, error))

    @property
    def said(self) -> list[tuple[str, ErrorCode]]:
        """What was delivered."""
        self.turns.run()
        return self._said

    def sync(self) -> None:
        self.log.flushing.flushed_offset = self.log.end_offset
        self.replica.synced(self.log.end_offset)

    def told(self) -> list[str]:
        assert all(error is ErrorCode.NONE for _, error in self.said)
        said, self._said = [each for each, _ in self.said], []
        return said


def test_a_lone_replica_answers_at_once() -> None:
    rig = Rig(replicas=(1,), isr=(1,))
    rig.append()
    assert rig.told() == ["one@1", "all@1"]
    assert not rig.replica.answers_wait and not rig.replica.under_min_isr


def test_a_lone_replica_behind_its_disk_answers_nobody_before_the_sync() -> None:
    rig = Rig(replicas=(1,), isr=(1,), flush_gated=True)
    rig.append()
    assert rig.told() == [] and rig.replica.high_watermark == 0
    rig.sync()
    assert rig.told() == ["one@1", "all@1"] and rig.replica.high_watermark == 1


def test_all_means_every_replica_that_is_in_sync() -> None:
    rig = Rig(replicas=(1, 2, 3), isr=(1, 2, 3))
    rig.append()
    assert rig.told() == ["one@1"] and rig.replica.high_watermark == 0
    rig.lead((1,))  # alone in sync, and min.insync.replicas is 2: nothing is committed
    rig.append()
    assert rig.told() == ["one@2"] and rig.replica.high_watermark == 0 and rig.replica.under_min_isr
    rig.log.state.config.min_insync_replicas = 1
    rig.append()
    assert rig.told() == ["all@1", "all@2", "one@3", "all@3"]


def test_the_disk_is_a_condition_of_its_own_beside_the_replicas() -> None:
    rig = Rig(replicas=(1, 2, 3), isr=(1, 2, 3), flush_gated=True)
    rig.append()
    assert rig.told() == []
    rig.sync()
    assert rig.told() == ["one@1"]  # synced here, and nobody else has it


@pytest.mark.parametrize("end", ["deposed", "offline"])
def test_who_waits_is_told_when_the_leader_leads_no_more(end: str) -> None:
    rig = Rig(replicas=(1, 2, 3), isr=(1, 2, 3), flush_gated=True)
    rig.append()
    if end == "deposed":
        rig.replica.become_follower(Partition(0, (1, 2, 3), (bytes(16),) * 3, (2,), 2, 1, 9))
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        rig.replica.become_offline(ErrorCode.KAFKA_STORAGE_ERROR)
        error = ErrorCode.KAFKA_STORAGE_ERROR
    assert sorted(rig.said) == [("all@1", error), ("one@1", error)]
    assert rig.replica.error is error and not rig.replica.takes_appends


def change(served: TestBroker, topic: str, **fields: Any) -> None:
    """Has the metadata say something else of partition 0, as a controller with more brokers would."""
    broker = served.inside
    assert served._loop is not None

    async def submit() -> None:
        known = broker.image.topics.by_name(topic)
        assert known is not None
        record = PartitionChangeRecord(partition_id=0, topic_id=known.id, **fields)
        await broker.quorum.submit(lambda _: Decision(None, (record,)))

    asyncio.run_coroutine_threadsafe(submit(), served._loop).result(PATIENCE_S)


def timed(timeout_ms: int, acks: int) -> ProduceRequest:
    request = produce("t", batch(b"x"), acks=acks)
    request.timeout_ms = timeout_ms
    return request


def high_watermark(broker: Broker) -> int:
    return broker.replicas.by_name["t", 0].high_watermark


def test_with_a_replica_elsewhere_all_waits_and_the_checkpoint_tells_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A start on a directory that others have replicas of is refused, until they can be led.
    monkeypatch.setattr("headrace.metadata.adoption.foreign_replicas", lambda *_: [])
    two = {"replicas": [1, 2], "isr": [1, 2], "directories": [bytes(15) + b"\1"] * 2}
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")

        def ask(timeout_ms: int, acks: int) -> tuple[int, int]:
            answer = raw.ask(timed(timeout_ms, acks), 9).responses[0].partition_responses[0]
            return answer.error_code, answer.base_offset

        assert ask(5000, -1) == (0, 0)
        assert ask(5000, -1) == (0, 1)
        change(served, "t", **two)
        assert ask(5000, 1) == (0, 2)
        assert ask(50, -1) == (ErrorCode.REQUEST_TIMED_OUT, 3)
        assert raw.ask(fetch("t"), 11).responses[0].partitions[0].high_watermark == 2
        raw.send(timed(60_000, -1), 9)
        with Raw(served.port) as other:
            assert other.ask(fetch("t", 2), 11).responses[0].partitions[0].high_watermark == 2
        change(served, "t", isr=[1])  # the other one has left the in-sync set
        answer = raw.receive(0, 9)[1].responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 4)
        change(served, "t", isr=[1, 2])
        assert ask(5000, 1) == (0, 5)
        assert served.call(high_watermark) == 5
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        partition = raw.ask(fetch("t"), 11).responses[0].partitions[0]
        assert partition.high_watermark == 5
        change(served, "t", isr=[1])
        assert served.call(high_watermark) == 6


def test_the_checkpoint_of_a_lone_leader_is_where_it_begins_and_not_where_it_stays(tmp_path: Path) -> None:
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        for _ in range(3):
            raw.ask(produce("t", batch(b"x")), 9)
    checkpoint = tmp_path / "replication-offset-checkpoint"
    assert checkpoint.read_bytes() == b"0\n1\nt 0 3\n"
    checkpoint.write_bytes(b"0\n1\nt 0 1\n")
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        assert raw.ask(fetch("t"), 11).responses[0].partitions[0].high_watermark == 3
    assert checkpoint.read_bytes() == b"0\n1\nt 0 3\n"


def test_nothing_that_is_not_synced_is_read_where_acknowledgements_wait_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flush, may_sync = Log.flush, threading.Event()

    def slow(log: Log, up_to: int | None = None) -> int:
        if log.topic_partition[0] == "t":
            assert may_sync.wait(PATIENCE_S)
        return flush(log, up_to)

    monkeypatch.setattr(Log, "flush", slow)
    with running_broker({"acks.flush": "before-reply"}) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        for acks in (1, -1):
            raw.send(timed(60_000, acks), 9)
        with Raw(served.port) as other:
            while served.call(lambda broker: broker.logs.logs["t", 0].end_offset) < 2:
                pass
            assert other.ask(fetch("t"), 11).responses[0].partitions[0].high_watermark == 0
        may_sync.set()
        answers = [raw.receive(0, 9)[1].responses[0].partition_responses[0] for _ in range(2)]
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 1)]
