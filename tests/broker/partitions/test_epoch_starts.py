"""Where a leader's epoch begins is on disk before anything is appended under it."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce
from env.turns_by_hand import TurnsByHand
from log.clocks import HandClock

from headrace.broker.partitions.epoch_starts import EpochStarts
from headrace.broker.partitions.replica import Replica
from headrace.config import BrokerConfig, topic_config
from headrace.env.completion import Completion
from headrace.env.posix import PosixDisk
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.metadata.image import Partition
from headrace.replicas.partition import PartitionState
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode

CHECKPOINT = "leader-epoch-checkpoint"
PATIENCE_S = 60


def led_by_1(epoch: int) -> Partition:
    return Partition(0, (1,), (bytes(16),), (1,), 1, epoch, epoch)


def test_the_file_is_kafkas_byte_for_byte(tmp_path: Path) -> None:
    """The bytes are what Apache Kafka 4.3.1 left at each step: made, 3 records, started again, one more record, killed
    and started, started again."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    config = topic_config(BrokerConfig.load({}, lambda _: None), {})
    log = open_log(Resources(PosixDisk(), threading.RLock), str(folder), ("t", 0), config, now_ms=0)
    replica = Replica("t", 0, bytes(16), log, PartitionState(1), HandClock(0), False)

    def file_under(epoch: int) -> bytes:
        if replica.become_leader(led_by_1(epoch)):
            assert not replica.takes_appends
            log.flushing.write_epochs()
            replica.epoch_is_written()
        assert replica.takes_appends
        return (folder / CHECKPOINT).read_bytes()

    assert file_under(0) == b"0\n1\n0 0\n"
    for _ in range(3):
        log.writer.append(batch(b"a"), leader_epoch=0, now_ms=int(time.time() * 1000))
    assert file_under(0) == b"0\n1\n0 0\n"
    assert file_under(2) == b"0\n2\n0 0\n2 3\n"
    log.writer.append(batch(b"a"), leader_epoch=2, now_ms=int(time.time() * 1000))
    assert file_under(4) == b"0\n3\n0 0\n2 3\n4 4\n"
    assert file_under(6) == b"0\n3\n0 0\n2 3\n6 4\n"


def test_nothing_is_appended_before_it_is_synced_and_everything_else_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    write, may_write = PosixDisk.write_file_atomically, threading.Event()

    def slow(disk: PosixDisk, path: str, data: bytes) -> None:
        if path.endswith(f"/slow-0/{CHECKPOINT}"):
            assert may_write.wait(PATIENCE_S)
        write(disk, path, data)

    monkeypatch.setattr(PosixDisk, "write_file_atomically", slow)
    with running_broker() as served, Raw(served.port) as raw, Raw(served.port) as other:
        create_topic(served.port, "slow")
        create_topic(served.port, "quick")
        for value in (b"0", b"1", b"2"):  # the first waits, the others behind it
            raw.send(produce("slow", batch(value)), 9)
        assert other.ask(produce("quick", batch(b"a")), 9).responses[0].partition_responses[0].base_offset == 0
        read = other.ask(fetch("slow"), 11).responses[0].partitions[0]
        assert (read.error_code, read.high_watermark) == (0, 0)
        assert served.call(lambda broker: broker.logs.logs["slow", 0].end_offset) == 0
        may_write.set()
        offsets = [raw.receive(0, 9)[1].responses[0].partition_responses[0].base_offset for _ in range(3)]
        assert offsets == [0, 1, 2]
        path = served.call(lambda broker: broker.logs.logs["slow", 0].directory)
        assert Path(path, CHECKPOINT).read_bytes() == b"0\n1\n0 0\n"


def test_a_disk_that_is_full_for_now_refuses_appends_and_takes_them_later(monkeypatch: pytest.MonkeyPatch) -> None:
    write, full = PosixDisk.write_file_atomically, True

    def fails(disk: PosixDisk, path: str, data: bytes) -> None:
        if full and path.endswith(f"/t-0/{CHECKPOINT}"):
            raise OSError(errno.ENOSPC, "no space")
        write(disk, path, data)

    monkeypatch.setattr(PosixDisk, "write_file_atomically", fails)
    with running_broker() as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        for _ in range(2):
            answer = raw.ask(produce("t", batch(b"a")), 9).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert raw.ask(fetch("t"), 11).responses[0].partitions[0].error_code == 0
        full = False
        answer = raw.ask(produce("t", batch(b"a")), 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_disk_that_fails_takes_the_partition_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write = PosixDisk.write_file_atomically
    homes = [tmp_path / "a", tmp_path / "b"]

    def fails(disk: PosixDisk, path: str, data: bytes) -> None:
        if path.endswith(f"/t-0/{CHECKPOINT}"):
            raise OSError(errno.EIO, "broken")
        write(disk, path, data)

    monkeypatch.setattr(PosixDisk, "write_file_atomically", fails)
    settings = {"log.dirs": ",".join(map(str, homes)), "metadata.log.dir": str(tmp_path / "m")}
    with running_broker(settings, data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        answer = raw.ask(produce("t", batch(b"a")), 9).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        failed = served.call(lambda broker: [home.failure is not None for home in broker.logs.directories.values()])
        assert sorted(failed) == [False, True]


class ByHand:
    """Workers that work when the test says so."""

    def __init__(self) -> None:
        self._turns = TurnsByHand()
        self._completions = self._turns.completions()
        self.queue: list[tuple[Callable[[], Any], Completion[Any]]] = []

    def submit(self, work: Callable[[], Any]) -> Completion[Any]:
        completion: Completion[Any] = Completion(self._completions)
        self.queue.append((work, completion))
        return completion

    def step(self) -> None:
        work, completion = self.queue.pop(0)
        completion.complete(work())
        self._turns.run()


class Led:
    """As much of a replica as is written for."""

    def __init__(self, name: str, written: list[str]) -> None:
        self.leader_epoch = 0
        self.takes_appends = False
        self.log: Any = self
        self.flushing: Any = self
        self.fresh, self.end_offset = False, 1
        self._name, self._written = name, written

    def write_epochs(self) -> None:
        self._written.append(f"{self._name}@{self.leader_epoch}")

    def epoch_is_written(self) -> None:
        self.takes_appends = True


def test_those_who_wait_to_append_keep_their_order_and_a_newer_epoch_is_waited_for() -> None:
    written: list[str] = []
    said: list[str] = []
    workers = ByHand()
    starts = EpochStarts(workers, lambda *_: None)  # type: ignore[arg-type]
    led: Any = Led("a", written)
    starts.add(led)

    def first() -> None:
        said.append("first")
        starts.when_written(led, lambda: said.append("third"))

    starts.when_written(led, first)
    starts.when_written(led, lambda: said.append("second"))
    led.leader_epoch = 1  # led again before the first write is done
    starts.add(led)
    workers.step()
    assert said == [] and not led.takes_appends
    while workers.queue:
        workers.step()
    assert said == ["first", "second", "third"]
    assert written[-1] == "a@1" and led.takes_appends and len(starts) == 0


def test_who_waits_for_a_replica_that_is_led_no_more_finds_out() -> None:
    workers, said = ByHand(), []
    starts = EpochStarts(workers, lambda *_: None)  # type: ignore[arg-type]
    led: Any = Led("a", [])
    starts.add(led)
    starts.when_written(led, lambda: said.append("told"))
    starts.forget(led)
    assert said == ["told"] and len(starts) == 0
    while workers.queue:
        workers.step()
    assert not led.takes_appends
