"""Compaction: what stays, what goes, when tombstones go, and that the swap survives a crash (see also tests/sim)."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log.cleaning import clean
from log.conftest import read_at

from headrace.env.posix import PosixClock, PosixDisk
from headrace.log import cleaner
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.wire.batch import BATCH_OVERHEAD, iter_headers, read_header, seal_batch, unsealed
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import EndMarker, build_marker
from headrace.wire.records import Record, build_batch, decode_batch

NOW_MS = 1_700_000_000_000
Open = Callable[..., Log]
Append = Callable[..., Any]
COMPACT = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 1000,
    "index_interval_bytes": 100,
    "delete_retention_ms": 1000,
}


def run(log: Log, last: int | None = None, now_ms: int = NOW_MS, map_bytes: int = 1 << 20) -> int | None:
    found = cleaner.candidate(log, last, log.end_offset, now_ms)
    if found is None:
        return last
    replaced: list[Segment] = []
    done = clean(found, now_ms, cleaner.CleanerThrottle(PosixClock(), 1e12, lambda: False), replaced.extend, map_bytes)
    for segment in replaced:
        segment.remove_files()
    return done.end_offset


def records(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    for segment in log.segments:
        data = segment.file().read(0, segment.size)
        for at, _ in iter_headers(data):
            found += [(r.offset, r.key, r.value) for r in decode_batch(data, at)]
    return found


def seal(log: Log) -> None:
    log.writer.roll(now_ms=NOW_MS)
    log.flush()


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_last_record_of_each_key_stays_at_its_offset(open_at: Open, append: Append, codec: int) -> None:
    log = open_at(COMPACT)
    for index in range(60):
        append(log, b"%d" % index, key=b"k%d" % (index % 7), compression=codec)
    seal(log)
    before = log.size_bytes()
    assert run(log) == 60
    assert records(log) == [(index, b"k%d" % (index % 7), b"%d" % index) for index in range(53, 60)]
    assert (log.log_start_offset, log.end_offset) == (0, 60)
    assert log.size_bytes() < before / 3
    assert append(log, b"more").base_offset == 60
    for again in (open_at(COMPACT), open_at(COMPACT, recovery_point=60)):
        assert records(again)[:-1] == records(log)[:-1] and again.end_offset == 61
    assert read_at(log, 0, max_bytes=1, max_offset=61).size > 0


def test_rounds_build_on_each_other(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    last = None
    latest: dict[bytes, tuple[int, bytes]] = {}
    for index in range(300):
        key = b"k%d" % (index * index % 23)
        append(log, b"%d" % index, key=key)
        latest[key] = (index, b"%d" % index)
        if index % 50 == 49:
            seal(log)
            last = run(log, last, map_bytes=10 * 24)  # room for ten keys: several rounds for each
            last = run(log, last, map_bytes=10 * 24)
    for _ in range(10):
        last = run(log, last)
    assert records(log) == sorted((offset, key, value) for key, (offset, value) in latest.items())
    append(log, b"last", key=b"last")
    seal(log)
    run(log, last)
    assert len(log.segments) < 6  # what the rounds before made small is joined


def test_tombstones_stay_for_their_retention(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    append(log, b"v", key=b"a")
    append(log, None, key=b"a")
    append(log, b"v", key=b"b")
    seal(log)
    last = run(log)
    assert records(log) == [(1, b"a", None), (2, b"b", b"v")]
    header = next(iter_headers(log.segments[0].file().read(0, 200)))[1]
    assert header.has_delete_horizon and header.base_timestamp == NOW_MS + 1000
    assert decode_batch(log.segments[0].file().read(0, 200))[0].timestamp == NOW_MS
    append(log, b"w", key=b"c")
    seal(log)
    last = run(log, last, now_ms=NOW_MS + 999)
    assert (1, b"a", None) in records(log)
    append(log, b"w", key=b"d")
    seal(log)
    run(log, last, now_ms=NOW_MS + 1001)
    assert [key for _, key, _ in records(log)] == [b"b", b"c", b"d"]


def test_lag_and_the_active_segment_hold_back(open_at: Open, append: Append) -> None:
    log = open_at({**COMPACT, "min_compaction_lag_ms": 500})
    append(log, b"1", key=b"a", timestamp=NOW_MS)
    append(log, b"2", key=b"a", timestamp=NOW_MS)
    assert cleaner.candidate(log, None, 2, NOW_MS + 10_000) is None  # all of it is active
    seal(log)
    append(log, b"3", key=b"a", timestamp=NOW_MS + 1000)
    seal(log)
    assert cleaner.candidate(log, None, 3, NOW_MS + 100) is None
    found = cleaner.candidate(log, None, 3, NOW_MS + 600)
    assert found is not None and found.end_offset == 2
    assert cleaner.candidate(log, None, 1, NOW_MS + 600) is None  # the high watermark


def test_a_producer_keeps_its_sequence(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    append(log, b"old", key=b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    append(log, b"new", key=b"a")
    append(log, b"end", key=b"z")
    seal(log)
    run(log)
    assert [offset for offset, _, _ in records(log)] == [1, 2]
    again = open_at(COMPACT)
    assert append(again, b"x", key=b"a", producer_id=9, producer_epoch=0, base_sequence=5).error.name == (
        "OUT_OF_ORDER_SEQUENCE_NUMBER"
    )
    assert again.producers.get(9).batches[-1].last_sequence == 0  # type: ignore[union-attr]


def test_the_end_of_the_range_is_kept_by_an_empty_batch(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    append(log, b"1", key=b"a")
    append(log, None, key=b"b")
    seal(log)
    last = run(log)
    append(log, b"2", key=b"c")
    seal(log)
    run(log, last, now_ms=NOW_MS + 5000)
    assert [h.next_offset for h in headers(log)][-1] == 3


def headers(log: Log) -> list[Any]:
    return [h for s in log.segments for _, h in iter_headers(s.file().read(0, s.size))]


def test_readers_go_on_over_the_gaps(open_at: Open, append: Append, read_values: Any) -> None:
    log = open_at(COMPACT)
    for index in range(100):
        append(log, b"%d" % index, key=b"k%d" % (index % 3))
    seal(log)
    held = read_at(log, 0, max_bytes=100, max_offset=100).slice
    assert held is not None
    before = held.read()
    run(log)
    assert held.read() == before
    append(log, b"tail", key=b"t")
    assert [offset for offset, _ in read_values(log)] == [97, 98, 99, 100]


def test_it_gives_up_when_the_log_changes_under_it(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    for index in range(60):
        append(log, b"%d" % index, key=b"k")
    seal(log)
    found = cleaner.candidate(log, None, 60, NOW_MS)
    assert found is not None

    class Meddler(PosixClock):
        def sleep(self, seconds: float) -> None:
            if log.end_offset == 60:
                log.truncate_to(30)

    with pytest.raises((cleaner.Stopped, OSError)):
        clean(found, NOW_MS, cleaner.CleanerThrottle(Meddler(), 1.0, lambda: False), print)
    assert not [name for name in os.listdir(log.directory) if "cleaned" in name or "swap" in name]
    assert [offset for offset, _, _ in records(log)] == list(range(30))


def ready_to_swap(
    open_at: Open, append: Append, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Log], None]
) -> Log:
    """A log to compact; `meanwhile` is called when the folder is synced between the two steps of the swap."""
    log = open_at(COMPACT)
    for index in range(60):
        append(log, b"%d" % index, key=b"k%d" % (index % 40))
    seal(log)
    sync = PosixDisk.sync_directory
    called: list[str] = []

    def synced(disk: PosixDisk, path: str) -> None:
        sync(disk, path)
        if path not in called and any(name.endswith(".log.swap") for name in os.listdir(path)):
            called.append(path)
            meanwhile(log)

    monkeypatch.setattr(PosixDisk, "sync_directory", synced)
    return log


def leftovers(log: Log) -> list[str]:
    return [name for name in os.listdir(log.directory) if name.endswith((".cleaned", ".swap"))]


def test_nobody_who_appends_waits_for_the_sync_of_a_swap(
    open_at: Open, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[bool] = []

    def roll(log: Log) -> None:
        append(log, b"meanwhile", key=b"m")
        thread = threading.Thread(target=lambda: log.writer.roll(now_ms=NOW_MS), daemon=True)
        thread.start()
        thread.join(5)
        waited.append(thread.is_alive())

    log = ready_to_swap(open_at, append, monkeypatch, roll)
    run(log)
    assert waited and not any(waited)
    assert [key for _, key, _ in records(log)] == [b"k%d" % (n % 40) for n in range(20, 60)] + [b"m"] * len(waited)
    assert not leftovers(log)


@pytest.mark.parametrize("how", ["retention", "truncation", "a start elsewhere"])
def test_what_goes_during_a_swap_does_not_come_back(
    open_at: Open, append: Append, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    seen: list[list[str]] = []

    def remove(log: Log) -> None:
        if how == "retention":
            log.delete_records_before(log.bases[1])
            log.maybe_delete_old_segments(NOW_MS)
        elif how == "truncation":
            log.truncate_to(3)
        else:
            log.truncate_fully_and_start_at(100)
        seen.append(leftovers(log))

    log = ready_to_swap(open_at, append, monkeypatch, remove)
    start = log.bases[1]
    with pytest.raises(cleaner.Stopped):
        run(log)
    assert seen == [[]] and not leftovers(log)
    left = {"retention": list(range(start, 60)), "truncation": [0, 1, 2], "a start elsewhere": []}[how]
    assert [offset for offset, _, _ in records(log)] == left
    again = open_at(COMPACT, log_start_offset=log.log_start_offset)
    assert [offset for offset, _, _ in records(again)] == left


def test_a_swap_whose_sync_fails_leaves_the_log_as_it_was(
    open_at: Open, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: Log) -> None:
        raise OSError(errno.ENOSPC, "no space")

    log = ready_to_swap(open_at, append, monkeypatch, fail)
    with pytest.raises(OSError, match="no space"):
        run(log)
    assert not leftovers(log) and log.state.segment_list.swapping is None
    assert [offset for offset, _, _ in records(log)] == list(range(60))


def test_a_reader_that_meets_a_swap_waits_for_the_names(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    for index in range(60):
        append(log, b"%d" % index, key=b"k%d" % (index % 40))
    seal(log)
    segment = log.segments[1]
    expected = read_at(log, segment.base_offset + 3, max_bytes=1, max_offset=60).size
    segment.index.forget()
    segment.release()
    held, renamed = threading.Event(), threading.Event()

    def rename() -> None:  # as a swap does, with the lock held between the new names and the note of them
        with log.lock:
            for path in segment.paths():
                if os.path.exists(path):
                    os.rename(path, path + ".deleted")
            held.set()
            renamed.wait(5)
            segment.moved(log.directory, ".deleted")

    thread = threading.Thread(target=rename)
    thread.start()
    held.wait()
    threading.Timer(0.05, renamed.set).start()
    assert read_at(log, segment.base_offset + 3, max_bytes=1, max_offset=60).size == expected
    thread.join()


def test_an_unreadable_batch_makes_a_log_uncleanable(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    append(log, b"1" * 200, key=b"a", compression=4)
    seal(log)
    with open(log.segments[0].path, "r+b") as file:
        file.seek(61)
        file.write(b"\xff" * 8)
    with pytest.raises(cleaner.Uncleanable):
        run(log)
    assert len(log.segments) == 2


def rewritten(data: bytes, **fields: int) -> bytes:
    """A batch with other fields in its header, and the checksum of that."""
    changed = read_header(data)._replace(**fields)
    return bytes(
        seal_batch(
            unsealed(data[BATCH_OVERHEAD:]),
            record_count=changed.record_count,
            last_offset_delta=changed.last_offset_delta,
            base_timestamp=changed.base_timestamp,
            max_timestamp=changed.max_timestamp,
            attributes=changed.attributes,
            base_offset=0,
            leader_epoch=-1,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
    )


@pytest.mark.parametrize("base_timestamp", [(1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("tombstone", [False, True])
def test_a_timestamp_beyond_64_bits_makes_a_log_uncleanable(
    open_at: Open, append: Append, base_timestamp: int, tombstone: bool
) -> None:
    log = open_at(COMPACT)
    step = 1 if base_timestamp > 0 else -1
    two = build_batch([Record(0, NOW_MS, b"a", b"1"), Record(1, NOW_MS + step, b"b", None if tombstone else b"2")])
    hostile = rewritten(two, base_timestamp=base_timestamp)
    # A client's is refused; what an earlier release took is there.
    assert log.writer.append(hostile, leader_epoch=0, now_ms=NOW_MS, origin="controller").error is ErrorCode.NONE
    append(log, b"newer", key=b"a")
    seal(log)
    with pytest.raises(cleaner.Uncleanable, match="beyond 64 bits"):
        run(log)
    assert log.end_offset == 3 and len(log.segments) == 2


def test_a_transaction_index_that_cannot_be_read_is_made_again(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    begin(append, log, 1, b"aborted")
    end(log, 1, commit=False)
    seal(log)
    log.close()
    with open(log.segments[0].path.replace(".log", ".txnindex"), "wb") as file:
        file.write(b"\xff" * 34)
    log = open_at(COMPACT, clean=True, recovery_point=2)
    run(log)
    assert records(log) == [(1, *ABORT)]


ABORT, COMMIT = ((bytes([0, 0, 0, kind]), bytes(6)) for kind in (0, 1))


def begin(append: Append, log: Log, producer: int, value: bytes, key: bytes = b"a", sequence: int = 0) -> None:
    fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    assert not append(log, value, key=key, **fields).error


def end(log: Log, producer: int, *, commit: bool) -> None:
    batch = build_marker(EndMarker(producer, 0, 0, commit), NOW_MS)
    assert not log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS, origin="marker").error


def committed(log: Log) -> list[tuple[int, bytes | None]]:
    """What a reader of committed records sees."""
    stable = log.last_stable_offset(log.end_offset)
    found = []
    for segment in log.segments:
        aborted = log.reader.aborted_transactions(
            segment.base_offset, read_at(log, segment.base_offset, max_bytes=1 << 20)
        )
        data = segment.file().read(0, segment.size)
        for at, header in iter_headers(data):
            is_aborted = any(
                entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset < entry.last_offset
                for entry in aborted
            )
            if not header.is_control and not is_aborted:
                found += [(r.offset, r.value) for r in decode_batch(data, at) if r.offset < stable]
    return found


def test_an_aborted_and_an_open_transaction(open_at: Open, append: Append) -> None:
    """What was aborted goes and takes no other record's place; what is open stays, and so does all behind it."""
    log = open_at(COMPACT)
    append(log, b"plain", key=b"b")
    begin(append, log, 1, b"aborted", b"b")
    begin(append, log, 2, b"committed")
    end(log, 1, commit=False)
    end(log, 2, commit=True)
    seal(log)
    begin(append, log, 3, b"open", b"b")
    append(log, b"newest", key=b"a")
    seal(log)
    append(log, b"active", key=b"c")
    assert committed(log) == [(0, b"plain"), (2, b"committed")]
    last = run(log)
    assert last == 5
    assert (1, b"b", b"aborted") not in records(log) and (3, *ABORT) in records(log)
    for _ in range(2):
        assert committed(log) == [(0, b"plain"), (2, b"committed")]
        assert (log.last_stable_offset(8), log.producers.first_undecided_offset) == (5, 5)
        assert (5, b"b", b"open") in records(log) and (6, b"a", b"newest") in records(log)
        log.flush()
        log = open_at(COMPACT, recovery_point=0)
    end(log, 3, commit=False)
    seal(log)
    run(log, last)
    assert committed(log) == [(0, b"plain"), (6, b"newest"), (7, b"active")]
    left = records(log)
    assert (5, b"b", b"open") not in left
    assert (8, *ABORT) in left, "the last marker of its producer"
    assert log.last_stable_offset(9) == 9


def test_snapshots_of_merged_segments_go(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    last = None

    def snapshots() -> list[int]:
        return sorted(int(name[:20]) for name in os.listdir(log.directory) if name.endswith(".snapshot"))

    for index in range(200):
        append(log, b"x" * 200, key=b"k%d" % (index % 3))
        if index % 20 == 19:
            seal(log)
            last = run(log, last)
    assert len(log.segments) < 15
    assert set(snapshots()) <= {*log.bases, log.state.snapshot_offset}
    log.close()
    for stray in (1, 3):
        (Path(log.directory) / f"{stray:020d}.snapshot").write_bytes(b"left by an earlier release")
    again = open_at(COMPACT, clean=True)
    assert set(snapshots()) <= {*again.bases, again.state.snapshot_offset}


def test_what_a_compaction_replaced_before_it_stopped_is_handed_over(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    for index in range(100):
        append(log, b"x" * 90, key=b"k%d" % index)
    seal(log)
    found = cleaner.candidate(log, None, 100, NOW_MS)
    assert found is not None
    replaced: list[Segment] = []
    with pytest.raises(cleaner.Stopped):
        clean(found, NOW_MS, cleaner.CleanerThrottle(PosixClock(), 1e12, lambda: len(replaced) >= 2), replaced.extend)
    deleted = {name.partition(".")[0] for name in os.listdir(log.directory) if name.endswith(".log.deleted")}
    assert len(replaced) >= 2 and deleted == {f"{segment.base_offset:020d}" for segment in replaced}
