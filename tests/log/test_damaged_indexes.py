"""Indexes that are missing or damaged are rebuilt: after a clean stop and after a crash lookups answer as before."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import pytest
from log.conftest import read_at
from log.managers import HOUR_MS, NOW_MS, TOPIC_ID, fill, make, run, settings_of, simulated

from headrace.config import BrokerConfig, topic_config
from headrace.log.log import Log
from headrace.log.read_results import TimestampOffset
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.sim.disk import SimDisk
from headrace.wire.records import Record, build_batch

Open = Callable[..., Log]
Append = Callable[..., Any]
SMALL = {"segment_bytes": 100_000, "index_interval_bytes": 1000}
COUNT = 300


def filled(open_at: Open, append: Append, settings: dict[str, Any] | None = None) -> Log:
    log = open_at(settings or SMALL)
    for number in range(COUNT):
        append(log, b"x" * 900, timestamp=NOW_MS + 10 * number, now_ms=NOW_MS + 10 * number)
    return log


def answers(log: Log) -> list[TimestampOffset | None]:
    return [log.reader.offset_for_timestamp(NOW_MS + late) for late in range(-5, 10 * COUNT + 5, 95)]


def positions(log: Log) -> list[int]:
    found = []
    for offset in range(0, COUNT, 7):
        result = read_at(log, offset, max_bytes=1, max_offset=COUNT)
        assert result.slice is not None
        found.append(result.slice.position)
    return found


def taken_away(_: bytes) -> None:
    return None


def emptied(_: bytes) -> bytes:
    return b""


def zeroed(data: bytes) -> bytes:
    return bytes(len(data))


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def half_of_its_entries(data: bytes) -> bytes:
    return data[: len(data) // 24 // 2 * 24]


def torn(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes(len(data) - len(data) // 2)


def odd(data: bytes) -> bytes:
    return data + b"odd"


def text(_: bytes) -> bytes:
    return b"this is no index at all, but it is about as long as one may well be" * 3


def ones(data: bytes) -> bytes:
    return b"\xff" * len(data)


def noise(data: bytes) -> bytes:
    return random.Random(7).randbytes(len(data))


def noise_inside(data: bytes) -> bytes:
    third = len(data) // 24 // 3 * 24
    return data[:third] + random.Random(7).randbytes(third) + data[2 * third :]


def falling(data: bytes) -> bytes:
    return data[24:48] + data[:24] + data[48:]


DAMAGE = [taken_away, emptied, zeroed, half, half_of_its_entries, torn, odd, text, ones, noise, noise_inside, falling]
BOTH = (".index", ".timeindex")


def spoil(log: Log, kinds: tuple[str, ...], damage: Callable[[bytes], bytes | None]) -> None:
    for name in sorted(os.listdir(log.directory)):
        if name.endswith(kinds):
            path = Path(log.directory) / name
            data = damage(path.read_bytes())
            path.unlink()
            if data is not None:
                path.write_bytes(data)


@pytest.mark.parametrize("kinds", [(".index",), (".timeindex",), BOTH], ids=["index", "timeindex", "both"])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("clean", [True, False])
def test_lookups_answer_as_before(
    open_at: Open,
    append: Append,
    kinds: tuple[str, ...],
    damage: Callable[[bytes], bytes | None],
    clean: bool,
) -> None:
    if damage is half_of_its_entries and kinds == BOTH:
        kinds = (".timeindex",)  # where both end at the same batch nothing shows that there were more entries
    log = filled(open_at, append)
    log.close()
    assert len(log.segments) == 3
    expected = answers(log), positions(log), log.reader.max_timestamp_offset()
    assert None not in expected[0][:-1]
    spoil(log, kinds, damage)
    again = open_at(SMALL, clean=clean, recovery_point=COUNT)
    assert (answers(again), positions(again), again.reader.max_timestamp_offset()) == expected
    assert again.end_offset == COUNT
    assert not append(again, b"more", timestamp=NOW_MS + 10 * COUNT, now_ms=NOW_MS + 10 * COUNT).error
    again.close()
    third = open_at(SMALL, clean=True, recovery_point=COUNT + 1)
    assert (answers(third)[:-1], positions(third)) == (expected[0][:-1], expected[1])


@pytest.mark.parametrize("damage", DAMAGE)
def test_lookups_ask_first_for_the_newest_record(
    open_at: Open, append: Append, damage: Callable[[bytes], bytes | None]
) -> None:
    log = filled(open_at, append)
    log.close()
    expected = log.reader.max_timestamp_offset()
    spoil(log, (".timeindex",), damage)
    assert open_at(SMALL, clean=True, recovery_point=COUNT).reader.max_timestamp_offset() == expected


def test_a_log_is_cut_though_its_indexes_are_damaged(open_at: Open, append: Append) -> None:
    log = filled(open_at, append)
    log.close()
    expected = answers(log)
    spoil(log, BOTH, noise_inside)
    again = open_at(SMALL, clean=True, recovery_point=COUNT)
    again.truncate_to(50)
    assert again.end_offset == 50
    known = [each for each in expected if each is not None and each.offset < 50]
    assert answers(again)[: len(known)] == known


def test_what_is_appended_while_an_index_is_rebuilt_is_in_it(
    open_at: Open, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(open_at, append, {**SMALL, "segment_bytes": 10_000_000})
    log.close()
    segment = log.active
    path = Path(segment.paths()[1])
    path.write_bytes(noise_inside(path.read_bytes()))
    segment.index.forget()
    rebuilt = type(segment)._rebuilt

    def while_appending(self: Any, interval_bytes: int) -> Any:
        built = rebuilt(self, interval_bytes)
        for number in range(COUNT, COUNT + 50):
            append(log, b"x" * 900, timestamp=NOW_MS + 10 * number, now_ms=NOW_MS + 10 * number)
        return built

    monkeypatch.setattr(type(segment), "_rebuilt", while_appending)
    log.state.forget_recent()
    assert segment.find(40) is not None
    entries = segment.index.entries().tolist()
    assert entries == sorted(entries) and entries[-1] >> 32 > COUNT + 40
    assert log.reader.max_timestamp_offset() == TimestampOffset(COUNT + 49, NOW_MS + 10 * (COUNT + 49), 0)
    assert log.reader.offset_for_timestamp(NOW_MS + 10 * COUNT) == TimestampOffset(COUNT, NOW_MS + 10 * COUNT, 0)


def test_a_crash_while_indexes_are_rebuilt_leaves_nothing_half_done() -> None:
    """A recovery that is cut short by another crash must not leave a part of a time index that looks whole."""
    config = replace(topic_config(BrokerConfig.load({}, lambda _: None), {}), index_interval_bytes=100)
    cut_short = 0
    for seed in range(120):
        rng = random.Random(seed)
        disk = SimDisk(rng)
        disk.make_dirs("/t-0")
        disk.sync_directory("/")
        log = open_log(Resources(disk, RLock), "/t-0", ("t", 0), config, now_ms=NOW_MS)
        for number in range(40):
            one = build_batch([Record(0, NOW_MS + number, b"k", b"v" * 30)])
            assert not log.writer.append(one, leader_epoch=0, now_ms=NOW_MS).error
        log.close()
        disk.sync_directory("/t-0")
        disk.remove("/t-0/00000000000000000000.timeindex")
        disk.sync_directory("/t-0")
        at = disk.operations + rng.randint(1, 40)

        def cut(_operation: str, _path: str, disk: SimDisk = disk, at: int = at) -> None:
            if disk.operations >= at:
                raise KeyboardInterrupt

        disk.fail = cut
        try:
            open_log(Resources(disk, RLock), "/t-0", ("t", 0), config, recovery_point=40, now_ms=NOW_MS)
        except KeyboardInterrupt:
            cut_short += 1
        disk.fail = None
        disk.crash()
        log = open_log(Resources(disk, RLock), "/t-0", ("t", 0), config, recovery_point=40, now_ms=NOW_MS)
        for number in range(40):
            found = log.reader.offset_for_timestamp(NOW_MS + number)
            assert found == TimestampOffset(number, NOW_MS + number, 0), (seed, number)
        assert not [name for name in disk.list("/t-0") if name.endswith(".rebuilt")]
    assert cut_short > 30


def test_missing_indexes_are_rebuilt_in_the_background() -> None:
    env, disk = simulated()
    first = make("/a", env=env)
    settings = settings_of(first)
    log = first.get_or_create("t", 0, TOPIC_ID, settings)
    for _ in range(3):
        fill(first, log)
        log.writer.roll(now_ms=NOW_MS)
    fill(first, log)
    first.shutdown()
    names = [name for name in disk.list(log.directory) if name.endswith("index")]
    assert len(names) == 8
    for name in names:
        disk.remove(f"{log.directory}/{name}")
    manager = make("/a", env=env)
    again = manager.get_or_create("t", 0, TOPIC_ID, settings)
    assert len(again.recovery_report.unindexed) == 3, "that of the active segment was needed at once"
    run(manager, NOW_MS + HOUR_MS)
    assert [name for name in disk.list(log.directory) if name.endswith("index")] == names
    assert not manager.reindexing
    manager.shutdown()
    last = make("/a", env=env)
    assert not last.get_or_create("t", 0, TOPIC_ID, settings).recovery_report.unindexed
