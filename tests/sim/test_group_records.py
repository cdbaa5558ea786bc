"""What the simulator reads of the log of groups, also if that is compacted before the next look."""

from __future__ import annotations

import random
from dataclasses import replace
from threading import RLock
from types import SimpleNamespace
from typing import Any

from log.cleaning import clean
from log.conftest import NOW_MS

from headrace.config import BrokerConfig
from headrace.config.topic import topic_config
from headrace.env.posix import PosixClock
from headrace.groups.consumer.records import ConsumerRecord, Kind
from headrace.groups.modern.epochs import GroupEpoch
from headrace.groups.records import encode
from headrace.log import cleaner
from headrace.log.log import Log
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.log.segment import Segment
from headrace.sim.checkers.group_records import TOPIC, GroupRecords
from headrace.sim.disk import SimDisk
from headrace.wire.records import Record, build_batch

FOLDER = f"/{TOPIC}-0"
EPOCHS = range(2, 8)


def opened() -> Log:
    disk = SimDisk(random.Random(1))
    disk.make_dirs(FOLDER)
    config = replace(topic_config(BrokerConfig.load({}, lambda _: None), {}), cleanup_policy=frozenset({"compact"}))
    return open_log(Resources(disk, RLock), FOLDER, (TOPIC, 0), config, now_ms=NOW_MS)


def write(log: Log, epoch: int) -> None:
    """One decision: the group has another epoch."""
    key, value = encode(ConsumerRecord("g", Kind.EPOCH, "", GroupEpoch(epoch)))
    log.writer.append(build_batch([Record(0, NOW_MS, key, value, [])]), leader_epoch=0, now_ms=NOW_MS)


def compact(log: Log) -> None:
    log.writer.roll(now_ms=NOW_MS)
    log.flush()
    found = cleaner.candidate(log, None, log.end_offset, NOW_MS)
    assert found is not None
    replaced: list[Segment] = []
    clean(found, NOW_MS, cleaner.CleanerThrottle(PosixClock(), 1e12, lambda: False), replaced.extend)
    for segment in replaced:
        segment.remove_files()


def records_of(log: Log) -> GroupRecords:
    state = SimpleNamespace(high_watermark=log.end_offset)
    replica = SimpleNamespace(log=log, state=state, is_being_cut=False)
    broker: Any = SimpleNamespace(replicas=SimpleNamespace(held=lambda _: replica))
    return GroupRecords(lambda: [broker])


def epochs(records: GroupRecords) -> list[int]:
    return [each.value.epoch for _, batch in records.news() for each in batch]  # type: ignore[union-attr]


def test_each_decision_is_read_although_the_log_is_compacted_before_the_next_look() -> None:
    log = opened()
    for epoch in EPOCHS:
        write(log, epoch)
    records = records_of(log)
    with records.listening():
        compact(log)
    assert epochs(records) == list(EPOCHS) and epochs(records) == []


def test_a_compacted_log_no_longer_holds_each_decision() -> None:
    log = opened()
    for epoch in EPOCHS:
        write(log, epoch)
    compact(log)
    assert epochs(records_of(log)) == [EPOCHS[-1]]
