"""Starting after clean shutdowns, crashes and damage."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

import pytest

from headrace.config.topic import TopicConfig
from headrace.log.log import Log
from headrace.log.recovery import LogDamaged, open_log
from headrace.log.recovery_report import RecoveryReport
from headrace.log.resources import Resources
from headrace.log.scan import Scan
from headrace.sim.disk import SimDisk
from headrace.wire.batch import iter_headers

NOW_MS = 1_700_000_000_000
Open = Callable[..., Log]
Append = Callable[..., Any]
SMALL = {"segment_bytes": 1000, "index_interval_bytes": 100}


def filled(open_at: Open, append: Append, count: int = 40, **keywords: Any) -> Log:
    log = open_at(SMALL)
    for index in range(count):
        append(log, b"%03d" % index, timestamp=NOW_MS + index, **keywords)
    return log


def indexes(log: Log) -> dict[int, tuple[list[int], list[tuple[int, int]]]]:
    return {s.base_offset: (s.index.entries().tolist(), s.time_index.entries()) for s in log.segments}


def test_a_clean_start_reads_no_batch_but_the_last(open_at: Open, append: Append, monkeypatch: Any) -> None:
    log = filled(open_at, append, epoch=6)
    log.close()
    read: list[int] = []
    real = os.pread

    def noted(fd: int, size: int, at: int) -> bytes:
        read.append(size)
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", noted)
    again = open_at(SMALL, clean=True)
    assert (again.end_offset, again.recovery_point) == (40, 40)
    assert again.epochs.entries() == [(6, 0)]
    assert sum(read) < 20_000


def test_a_crash_rebuilds_the_same_indexes(open_at: Open, append: Append, read_values: Any) -> None:
    log = filled(open_at, append)
    log.close()
    before, values = indexes(log), read_values(log)
    for name in os.listdir(log.directory):
        if name.endswith(("index", "snapshot")):
            os.remove(f"{log.directory}/{name}")
    again = open_at(SMALL)
    assert read_values(again) == values
    again.close()
    assert {base: offsets for base, (offsets, _) in indexes(again).items()} == {
        base: offsets for base, (offsets, _) in before.items()
    }
    assert [times[-1] for _, times in indexes(again).values()] == [times[-1] for _, times in before.values()]


def test_a_preallocated_index_is_opened_without_its_zeros(open_at: Open, append: Append) -> None:
    log = filled(open_at, append)
    log.close()
    before = indexes(log)
    for name in os.listdir(log.directory):
        if name.endswith("index"):
            with open(f"{log.directory}/{name}", "ab") as file:
                file.write(bytes(10_485_760 - file.tell()))
    again = open_at(SMALL, clean=True)
    assert indexes(again) == before
    assert append(again, b"more").base_offset == 40


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(open_at: Open, append: Append, read_values: Any, cut: int) -> None:
    log = filled(open_at, append)
    with open(log.active.path, "r+b") as file:
        file.truncate(log.active.size - cut)
    again = open_at(SMALL, recovery_point=10)
    assert again.end_offset == 39
    assert again.recovery_report.bytes_cut > 0 and again.recovery_report.cut_offset == 39
    assert append(again, b"new").base_offset == 39
    assert read_values(again)[-2:] == [(38, b"038"), (39, b"new")]


def test_bad_data_above_the_recovery_point_ends_the_log_there(open_at: Open, append: Append) -> None:
    log = filled(open_at, append)
    base = log.segments[2].base_offset
    flip(log.segments[2].path, 65)
    again = open_at(SMALL, recovery_point=base)
    assert again.end_offset == base
    assert again.recovery_report.cut_path.endswith(f"{base:020d}.log")
    assert again.recovery_report.bytes_cut == sum(s.size for s in log.segments[2:])
    assert len(again.segments) == 3


def test_bad_data_below_the_recovery_point_is_named_and_left_alone(open_at: Open, append: Append) -> None:
    log = filled(open_at, append)
    log.close()
    active = log.active
    size = active.size
    with open(active.path, "r+b") as file:
        file.seek(8)
        file.write(b"\0\0\0\0")
    with pytest.raises(LogDamaged) as caught:
        open_at(SMALL, recovery_point=40)
    assert caught.value.corrupt.offset == active.base_offset
    assert caught.value.corrupt.path == active.path
    assert os.path.getsize(active.path) == size


def test_a_log_shorter_than_its_recovery_point_is_damaged(open_at: Open, append: Append) -> None:
    log = filled(open_at, append)
    log.close()
    with open(log.active.path, "r+b") as file:
        file.truncate(0)
    with pytest.raises(LogDamaged):
        open_at(SMALL, recovery_point=40)


def test_checksums_below_the_recovery_point_are_not_computed(open_at: Open, append: Append) -> None:
    log = filled(open_at, append)
    log.close()
    flip(log.segments[0].path, 90)
    assert open_at(SMALL, recovery_point=40).end_offset == 40


@pytest.fixture
def closed(defaults: TopicConfig, make_batch: Callable[..., bytes]) -> Callable[[], tuple[Resources, Log]]:
    """A log on a simulated disk after a clean stop: its segment has index entries, the last batch three records."""

    def close() -> tuple[Resources, Log]:
        resources = Resources(SimDisk(random.Random(1)), RLock)
        resources.disk.make_dirs("/data/t-0")
        log = open_log(resources, "/data/t-0", ("t", 0), defaults, now_ms=NOW_MS)
        for index in range(100):
            assert not log.writer.append(make_batch(b"%03d" % index * 40), leader_epoch=0, now_ms=NOW_MS).error
        assert not log.writer.append(make_batch(b"one", b"two", b"three" * 20), leader_epoch=0, now_ms=NOW_MS).error
        log.close()
        log.active.release()
        assert len(log.active.index.entries()) > 2
        return resources, log

    return close


def damage(resources: Resources, path: str, at: int, new: bytes) -> None:
    data = bytearray(resources.disk.read_file(path))
    assert data[at : at + len(new)] != new
    data[at : at + len(new)] = new
    resources.disk.write_file(path, bytes(data))


def last_batch(resources: Resources, log: Log) -> int:
    """Where the last batch of a log begins in its file."""
    return max(position for position, _, _ in Scan(log.active.file(), 0, log.active.size))


DAMAGES = {
    "too long for the file": (8, b"\0\0\7\xff"),
    "too short": (8, b"\0\0\0\x50"),
    "less than a header": (8, b"\0\0\0\0"),
    "negative": (8, b"\xff\xff\xff\xff"),
    "another magic": (16, b"\1"),
    "an offset below": (0, bytes(8)),
    "an offset far above": (0, b"\x10"),
    "a bit of the records": (100, b"\xff"),
    "the count of offsets": (23, b"\x40"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_end_is_refused_after_a_clean_stop(
    closed: Any, defaults: TopicConfig, make_batch: Callable[..., bytes], what: str
) -> None:
    resources, log = closed()
    at, new = DAMAGES[what]
    position = last_batch(resources, log)
    damage(resources, log.active.path, position + at, new)
    before = resources.disk.read_file(log.active.path)

    def open_it(recovery_point: int) -> Log:
        return open_log(
            resources, "/data/t-0", ("t", 0), defaults, clean=True, recovery_point=recovery_point, now_ms=NOW_MS
        )

    with pytest.raises(LogDamaged) as caught:
        open_it(103)
    assert caught.value.corrupt[1:4] == (log.active.path, 100, position)
    assert resources.disk.read_file(log.active.path) == before

    for recovery_point in (100, 0):  # what was never called safe is cut, as after a crash
        resources.disk.write_file(log.active.path, before)
        again = open_it(recovery_point)
        assert (again.end_offset, again.active.size) == (100, position)
        report = again.recovery_report
        assert (report.cut_path, report.cut_offset) == (log.active.path, 100)
        assert report.bytes_cut == len(before) - position
        assert again.writer.append(make_batch(b"new"), leader_epoch=0, now_ms=NOW_MS).base_offset == 100


def test_the_length_of_a_batch_before_the_last_leads_nobody_astray(closed: Any, defaults: TopicConfig) -> None:
    resources, log = closed()
    batches = [position for position, _, _ in Scan(log.active.file(), 0, log.active.size)]
    damage(resources, log.active.path, batches[-2] + 8, b"\0\0\0\x60")
    with pytest.raises(LogDamaged, match=r"offset 99\)"):
        open_log(resources, "/data/t-0", ("t", 0), defaults, clean=True, recovery_point=103, now_ms=NOW_MS)


def test_an_index_that_points_between_batches_is_made_anew(closed: Any, defaults: TopicConfig) -> None:
    resources, log = closed()
    entries = log.active.index.entries().tolist()
    index = log.active.path.replace(".log", ".index")
    damage(resources, index, 8 * len(entries) - 4, (entries[-1] % 2**32 + 30).to_bytes(4, "big"))
    again = open_log(resources, "/data/t-0", ("t", 0), defaults, clean=True, recovery_point=103, now_ms=NOW_MS)
    assert (again.end_offset, again.recovery_report) == (103, RecoveryReport())
    assert again.active.index.entries().tolist() == entries


def test_producers_come_back_from_snapshots_and_the_log(open_at: Open, append: Append) -> None:
    log = open_at(SMALL)
    for index in range(40):
        append(log, b"%03d" % index, producer_id=index % 3, producer_epoch=1, base_sequence=index // 3)
    known = {pid: p.batches[-1] for pid, p in log.producers.items()}
    for again in (open_at(SMALL), open_at(SMALL, recovery_point=20)):
        assert {pid: p.batches[-1] for pid, p in again.producers.items()} == known
    log.close()
    assert {pid: p.batches[-1] for pid, p in open_at(SMALL, clean=True).producers.items()} == known


def test_a_damaged_snapshot_falls_back_on_an_older_one(open_at: Open, append: Append) -> None:
    log = open_at(SMALL)
    for index in range(40):
        append(log, b"%03d" % index, producer_id=5, producer_epoch=0, base_sequence=index)
    log.close()
    newest = max(name for name in os.listdir(log.directory) if name.endswith(".snapshot"))
    flip(f"{log.directory}/{newest}", 12)
    again = open_at(SMALL, clean=True)
    assert again.producers.get(5).batches[-1].last_sequence == 39  # type: ignore[union-attr]


def test_a_hole_between_segments_ends_the_log(open_at: Open, append: Append) -> None:
    log = filled(open_at, append)
    lost = log.segments[2].base_offset
    os.remove(log.segments[2].path)
    again = open_at(SMALL)
    assert again.end_offset == lost
    assert again.recovery_report.bytes_cut > 0


def test_an_interrupted_deletion_goes_on(open_at: Open, append: Append) -> None:
    log = filled(open_at, append)
    log.segments[0].rename(".deleted")
    assert not list(Path(open_at(SMALL).directory).glob("*.deleted"))


def flip(path: str, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


@pytest.mark.parametrize("torn", [b"", b"\0" * 58])
def test_a_folder_that_a_crash_left_half_made_is_opened(open_at: Open, torn: bytes) -> None:
    log = open_at(SMALL)
    log.close()
    with open(f"{log.directory}/partition.metadata", "wb") as file:
        file.write(torn)
    assert open_at(SMALL).end_offset == 0


NOT_RISING = [b"0\n2\n3 7\n1 0\n", b"0\n2\n1 7\n2 0\n", b"0\n1\n-1 0\n"]
GARBAGE = [b"garbage\n", b"\0" * 40, b"", None, b"0\n9\n1 0\n", *NOT_RISING]


@pytest.mark.parametrize("content", GARBAGE)
@pytest.mark.parametrize("clean", [True, False])
def test_leader_epochs_come_from_the_batches_where_their_file_cannot_be_read(
    open_at: Open, append: Append, content: bytes | None, clean: bool
) -> None:
    log = open_at(SMALL)
    for index in range(60):
        append(log, b"%d" % index, epoch=(2, 2, 5, 9)[index // 15])
    log.close()
    expected = log.epochs.entries()
    assert expected == [(2, 0), (5, 30), (9, 45)] and len(log.segments) > 4
    path = Path(log.directory) / "leader-epoch-checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    again = open_at(SMALL, clean=clean, recovery_point=60)
    assert again.epochs.entries() == expected
    assert bool(again.recovery_report.rebuilt) == bool(content)
    append(again, b"more", epoch=9)
    again.close()
    assert path.read_bytes() == b"0\n3\n2 0\n5 30\n9 45\n"


def test_epochs_below_the_log_start_are_not_brought_back(open_at: Open, append: Append) -> None:
    log = open_at(SMALL)
    for index in range(60):
        append(log, b"%d" % index, epoch=index // 20)
    log.delete_records_before(25)
    log.close()
    (Path(log.directory) / "leader-epoch-checkpoint").write_bytes(b"garbage")
    again = open_at(SMALL, clean=True, recovery_point=60, log_start_offset=25)
    assert again.epochs.entries() == log.epochs.entries() == [(1, 25), (2, 40)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_folder_of_a_topic_that_nobody_knows_is_damaged(open_at: Open, append: Append, clean: bool) -> None:
    log = open_at(SMALL)
    append(log, b"1")
    log.close()
    (Path(log.directory) / "partition.metadata").write_bytes(b"garbage\n")
    with pytest.raises(LogDamaged, match=r"partition\.metadata"):
        open_at(SMALL, clean=clean)


def raise_last_offset(log: Log, by: int) -> int:
    """Damages the base offset of the last batch; returns the one that it had."""
    segment = log.active
    with open(segment.path, "r+b") as file:
        data = file.read()
        at = [position for position, _ in iter_headers(data)][-1]
        base = int.from_bytes(data[at : at + 8], "big")
        file.seek(at)
        file.write((base + by).to_bytes(8, "big"))
    return base


@pytest.mark.parametrize("by", [1, 3, 1 << 20])
@pytest.mark.parametrize("records", [1, 4])
@pytest.mark.parametrize("count", [1, 3, 30, 31, 32, 33])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_last_offset_that_was_raised_after_a_clean_stop_is_noticed(
    open_at: Open, append: Append, by: int, records: int, count: int, policy: str
) -> None:
    settings = {"index_interval_bytes": 100, "cleanup_policy": frozenset({policy})}
    log = open_at(settings)
    for _ in range(count):
        append(log, *[b"x" * 40] * records)
    log.close()
    end = log.end_offset
    base = raise_last_offset(log, by)
    with pytest.raises(LogDamaged, match=f"offset {base}"):
        open_at(settings, clean=True, recovery_point=end)


def test_a_gap_before_the_end_of_a_log_is_no_damage(open_at: Open, make_batch: Callable[..., bytes]) -> None:
    log = open_at({"cleanup_policy": frozenset({"compact"})})
    for base in (0, 5, 9):
        one = base.to_bytes(8, "big") + make_batch(b"v")[8:]
        assert not log.writer.append(one, leader_epoch=0, now_ms=NOW_MS, origin="replica").error
    log.close()
    for recovery_point in (0, 3, 10):
        assert open_at(clean=True, recovery_point=recovery_point).end_offset == 10


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_gap_is_told_where_something_lies_behind_it(open_at: Open, append: Append, policy: str) -> None:
    """What is cut at the gap has none: it would be cut there once more, when all that was missing has come again."""
    settings = {**SMALL, "cleanup_policy": frozenset({policy})}
    log = open_at(settings)
    while len(log.segments) < 3:
        append(log, b"x" * 40)
    log.close()
    path = Path(log.segments[0].path)
    *_, (last, header) = iter_headers(path.read_bytes())
    os.truncate(path, last)
    found = open_at(settings, clean=False)
    is_kept = policy == "compact"
    assert found.gap_offset == (header.base_offset if is_kept else -1)
    assert found.end_offset == (log.end_offset if is_kept else header.base_offset)
