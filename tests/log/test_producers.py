"""Idempotent producers: sequences, duplicates, epochs, expiry, bounds; transactions as far as reading goes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log.conftest import read_at

from headrace.env.posix import PosixFile
from headrace.log.log import Log
from headrace.log.producer_snapshot import SnapshotEntry, SnapshotError, decode, encode
from headrace.log.producers import UNDECIDED, Producers
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, seal_batch, unsealed
from headrace.wire.errors import ErrorCode

NOW_MS = 1_700_000_000_000
Open = Callable[..., Log]
Append = Callable[..., Any]


def send(append: Append, log: Log, sequence: int, *values: bytes, producer: int = 1, epoch: int = 0) -> Any:
    values = values or (b"v",)
    return append(log, *values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def test_sequences_follow_and_duplicates_answer_with_their_first_offset(open_at: Open, append: Append) -> None:
    log = open_at()
    for index in range(7):
        assert send(append, log, index * 2, b"a", b"b").base_offset == index * 2
    again = send(append, log, 6, b"a", b"b")
    assert (again.error, again.base_offset, again.last_offset, again.duplicate) == (ErrorCode.NONE, 6, 7, True)
    assert send(append, log, 2, b"a", b"b").error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # older than five batches
    assert send(append, log, 12, b"a").error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # not the same batch
    assert send(append, log, 20).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 14


def test_duplicates_within_one_write(open_at: Open, make_batch: Any) -> None:
    log = open_at()
    one = make_batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    two = make_batch(b"b", producer_id=1, producer_epoch=0, base_sequence=1)
    results = log.writer.append_many([one, two, one, two], leader_epoch=0, now_ms=NOW_MS)
    assert [(r.base_offset, r.duplicate) for r in results] == [(0, False), (1, False), (0, True), (1, True)]
    assert log.end_offset == 2


def test_an_unknown_producer_may_start_anywhere(open_at: Open, append: Append) -> None:
    assert send(append, open_at(), 77).error is ErrorCode.NONE


def test_epochs(open_at: Open, append: Append) -> None:
    log = open_at()
    send(append, log, 0, epoch=3)
    assert send(append, log, 1, epoch=2).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(append, log, 1, epoch=4).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(append, log, 0, epoch=4).error is ErrorCode.NONE


def test_sequences_wrap() -> None:
    producers = Producers()
    producers.stage(1, 0, 2**31 - 2, 0, 1, 0, False)
    assert producers.check(1, 0, 0, 5, 2) is None
    producers.stage(1, 0, 2**31 - 1, 2, 4, 0, False)
    assert producers.get(1) is None
    producers.commit()
    assert producers.get(1).batches[-1].last_sequence == 1  # type: ignore[union-attr]


def test_idle_producers_expire_and_a_bound_holds() -> None:
    producers = Producers(expiration_ms=1000, producers_max=100)
    for producer_id in range(250):
        producers.stage(producer_id, 0, 0, producer_id, producer_id, producer_id, False)
        producers.commit()
        assert len(producers) <= 100
    assert producers.get(249) is not None and producers.get(0) is None
    producers.remove_expired(1200)
    assert min(pid for pid, _ in producers.items()) == 201


def test_snapshots_round_trip_and_notice_damage() -> None:
    entries = [SnapshotEntry(5, 1, 10, 100, 3, NOW_MS, -1, -1), SnapshotEntry(2**62, 0, 0, 7, 0, NOW_MS, 4, 7)]
    data = encode(entries)
    assert decode("x", data) == entries
    assert len(encode([])) == 10
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        try:
            decode("x", bytes(damaged))
        except SnapshotError:
            continue
        raise AssertionError(f"byte {at} is not covered")


def marker(producer: int, *, commit: bool, epoch: int = 0) -> bytes:
    """An end-of-transaction marker, as a transaction coordinator writes it."""
    key, value = b"\0\0" + (b"\0\1" if commit else b"\0\0"), b"\0\0\0\0\0\1"
    body = bytes([0, 0, 0, len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\0"
    return bytes(
        seal_batch(
            unsealed(bytes([len(body) * 2]) + body),
            record_count=1,
            last_offset_delta=0,
            base_timestamp=NOW_MS,
            max_timestamp=NOW_MS,
            attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
            producer_id=producer,
            producer_epoch=epoch,
        )
    )


def aborted_in(log: Log, offset: int, max_bytes: int = 1 << 20) -> list[AbortedTransaction]:
    return log.reader.aborted_transactions(offset, read_at(log, offset, max_bytes=max_bytes))


def test_transactions_hold_back_the_last_stable_offset(open_at: Open, append: Append) -> None:
    log = open_at({"segment_bytes": 400})
    for producer, sequence in ((1, 0), (2, 0)):
        append(log, b"t", producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
    append(log, b"plain")
    assert log.last_stable_offset(3) == 0
    assert list(log.producers.unstable) == [(0, UNDECIDED)]
    log.writer.append(marker(1, commit=False), leader_epoch=0, now_ms=NOW_MS, origin="coordinator")
    assert list(log.producers.unstable) == [(0, 3), (1, UNDECIDED)]
    assert log.last_stable_offset(3) == 0  # its marker is not replicated yet
    assert log.last_stable_offset(4) == 1
    assert list(log.producers.unstable) == [(1, UNDECIDED)]
    log.writer.append(marker(2, commit=True), leader_epoch=0, now_ms=NOW_MS, origin="coordinator")
    assert log.last_stable_offset(5) == 5
    assert aborted_in(log, 0) == [(1, 0, 3, 1)]
    assert aborted_in(log, 4) == []
    log.flush()
    for again in (open_at({"segment_bytes": 400}), open_at({"segment_bytes": 400}, recovery_point=5)):
        assert aborted_in(again, 0) == [(1, 0, 3, 1)]
        assert again.last_stable_offset(5) == 5


def test_no_more_aborted_transactions_are_named_than_were_read(open_at: Open, append: Append) -> None:
    log = open_at({"segment_bytes": 2000, "index_interval_bytes": 1})
    for sequence in range(30):
        append(log, b"t", producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.writer.append(marker(1, commit=False), leader_epoch=0, now_ms=NOW_MS, origin="coordinator")
    assert len(log.segments) > 2
    assert [entry.first_offset for entry in aborted_in(log, 0)] == list(range(0, log.bases[1], 2))
    for offset in (0, 20, log.bases[1], 58):
        first = offset // 2 * 2
        named = [entry.first_offset for entry in aborted_in(log, offset, max_bytes=1)]
        assert named[0] == first
        assert set(named) <= {first, first + 2}


def test_an_open_transaction_survives_a_restart(open_at: Open, append: Append) -> None:
    log = open_at()
    append(log, b"plain")
    append(log, b"t", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.close()
    again = open_at(clean=True)
    assert (again.last_stable_offset(2), again.producers.unstable) == (1, ((1, UNDECIDED),))
    again = open_at()
    refused = send(append, again, 1)
    assert refused.error is ErrorCode.INVALID_TXN_STATE
    again.truncate_to(1, now_ms=NOW_MS)
    assert (again.last_stable_offset(1), again.producers.unstable) == (1, ())


def test_a_marker_that_could_not_be_written_ends_nothing(
    open_at: Open, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_at()
    append(log, b"t", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    before = log.producers.get(1)

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(PosixFile, "append", no_room)
        refused = log.writer.append(marker(1, commit=False), leader_epoch=0, now_ms=NOW_MS, origin="coordinator")
    assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.producers.get(1), log.last_stable_offset(1)) == (before, 0)
    log.writer.append(marker(1, commit=False), leader_epoch=0, now_ms=NOW_MS, origin="coordinator")
    assert log.last_stable_offset(2) == 2
    assert aborted_in(log, 0) == [(1, 0, 1, 2)]


def test_a_batch_of_an_open_transaction_that_comes_again_has_its_old_offset(open_at: Open, append: Append) -> None:
    """Any of the five that are remembered."""
    log = open_at()
    fields = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    for sequence in range(6):
        assert append(log, b"t", base_sequence=sequence, **fields).base_offset == sequence
    for sequence in range(1, 6):
        again = append(log, b"t", base_sequence=sequence, **fields)
        assert (again.error, again.base_offset, again.duplicate) == (ErrorCode.NONE, sequence, True)
    assert append(log, b"t", base_sequence=0, **fields).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (log.end_offset, log.last_stable_offset(6)) == (6, 0)


def test_one_aborted_over_several_segments_is_named_wherever_a_read_begins(open_at: Open, append: Append) -> None:
    """Also where a crash left no transaction index."""
    log = open_at({"segment_bytes": 200})
    for sequence in range(6):
        append(log, b"t", producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.writer.append(marker(1, commit=False), leader_epoch=0, now_ms=NOW_MS, origin="coordinator")
    assert len(log.segments) > 2
    log.flush()
    indexes = sorted(Path(log.directory).glob("*.txnindex"))
    assert indexes
    for _ in range(2):
        assert [aborted_in(log, offset) for offset in range(7)] == [[(1, 0, 6, 7)]] * 7
        for index in indexes:
            index.unlink(missing_ok=True)
        log = open_at({"segment_bytes": 200})
