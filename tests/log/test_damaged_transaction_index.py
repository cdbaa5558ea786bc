"""A `.txnindex` that is damaged or gone is made again from the batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log.conftest import read_at

from headrace.log.log import Log
from headrace.log.transaction_index import AbortedTransaction, decode
from headrace.wire.markers import EndMarker, build_marker

NOW_MS = 1_700_000_000_000
SMALL = {"segment_bytes": 260, "index_interval_bytes": 1}
Open = Callable[..., Log]
Append = Callable[..., Any]
Filled = Callable[..., Log]

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "version": lambda data: b"\0\1" + data[2:],
    "zeros": lambda data: bytes(len(data)),
    "of another segment": lambda data: data[:2] + bytes(23) + b"\1" + data[26:],
    "twice": lambda data: data + data,
}


def aborted_in(log: Log, offset: int) -> list[AbortedTransaction]:
    return log.reader.aborted_transactions(offset, read_at(log, offset, max_bytes=1 << 20))


@pytest.fixture
def filled(open_at: Open, append: Append) -> Filled:
    """A log of several segments, in which a long transaction is aborted, and short ones in between."""

    def fill(settings: dict[str, int] = SMALL) -> Log:
        log = open_at(settings)
        sequences = {1: 0, 2: 0, 3: 0}

        def write(producer: int) -> None:
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            assert not append(log, b"t", transactional=True, **fields).error
            sequences[producer] += 1

        def end(producer: int, *, commit: bool = False) -> None:
            batch = build_marker(EndMarker(producer, 0, 0, commit), NOW_MS)
            assert not log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS, origin="marker").error

        for number in range(4):
            write(1)
            write(2)
            end(2, commit=number % 2 == 1)
            write(1)
        end(1)
        write(3)
        write(2)
        end(2)
        return log

    return fill


def indexes(log: Log) -> list[Path]:
    found = sorted(Path(log.directory).glob("*.txnindex"))
    assert len(found) > 2
    return found


def said(log: Log) -> list[list[AbortedTransaction]]:
    return [aborted_in(log, offset) for offset in range(log.end_offset)]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("snapshots", [True, False])
def test_after_a_clean_stop(open_at: Open, filled: Filled, damage: str, snapshots: bool) -> None:
    log = filled()
    before, end_offset = said(log), log.end_offset
    log.close()
    good = {path: path.read_bytes() for path in indexes(log)}
    for path, data in good.items():
        if int(path.stem) or damage != "of another segment":
            path.write_bytes(DAMAGE[damage](data))
    if not snapshots:
        for path in Path(log.directory).glob("*.snapshot"):
            if path.stem != f"{end_offset:020}":
                path.unlink()
    again = open_at(SMALL, clean=True)
    assert again.end_offset == end_offset
    assert said(again) == before
    active = Path(again.segments[-1].path).with_suffix(".txnindex")
    assert active not in good or active.read_bytes() == good[active], "appends add to it"
    assert said(open_at(SMALL, clean=True)) == before


@pytest.mark.parametrize("segment_bytes", [260, 700])
@pytest.mark.parametrize("damage", [*DAMAGE, "gone"])
def test_after_a_crash(open_at: Open, filled: Filled, damage: str, segment_bytes: int) -> None:
    """Wherever the recovery point is: what lies below it in its segment is read too."""
    settings = {**SMALL, "segment_bytes": segment_bytes}
    log = filled(settings)
    before, end_offset = said(log), log.end_offset
    log.flush()
    good = {path: path.read_bytes() for path in Path(log.directory).glob("*.txnindex")}
    for recovery_point in range(end_offset + 1):
        for path, data in good.items():
            path.write_bytes(data)
            base_offset = int(path.stem)
            if log.state.segment_of(base_offset) < log.state.segment_of(recovery_point):
                continue
            if damage == "gone":
                path.unlink()
            elif base_offset or damage != "of another segment":
                path.write_bytes(DAMAGE[damage](data))
        again = open_at(settings, recovery_point=recovery_point)
        assert said(again) == before, recovery_point
        assert again.last_stable_offset(end_offset) == log.last_stable_offset(end_offset) == 17


def test_one_that_is_damaged_can_be_cut_and_added_to(open_at: Open, filled: Filled) -> None:
    log = filled()
    before = said(log)
    log.close()
    for path in indexes(log):
        path.write_bytes(b"\0\1" + path.read_bytes()[2:])
    again = open_at(SMALL, clean=True)
    marker = build_marker(EndMarker(3, 0, 0, False), NOW_MS)
    assert not again.writer.append(marker, leader_epoch=0, now_ms=NOW_MS, origin="marker").error
    assert aborted_in(again, 17)[0].producer_id == 3
    path = indexes(again)[0]
    path.write_bytes(b"\0\1" + path.read_bytes()[2:])
    again = open_at(SMALL, clean=True, recovery_point=again.end_offset)
    again.truncate_to(7, now_ms=NOW_MS)
    assert aborted_in(again, 0) == [entry for entry in before[0] if entry.last_offset < 7]
    active = Path(again.segments[-1].path).with_suffix(".txnindex")
    stored = active.read_bytes() if active.exists() else b""  # without entries there is no file
    assert decode(str(active), stored) == again.segments[-1].aborted(), "it is appended to again"
