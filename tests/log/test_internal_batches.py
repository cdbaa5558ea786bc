"""What a coordinator appends is in the log as a whole, or not at all; which markers it may write."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from headrace.env.posix import PosixFile
from headrace.log.log import Log
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import EndMarker, build_marker

Open = Callable[..., Log]
NOW_MS = 1_700_000_000_000


def append_together(log: Log, *batches: bytes) -> Any:
    return log.writer.append(b"".join(batches), leader_epoch=0, now_ms=NOW_MS, origin="coordinator")


@pytest.fixture
def three(make_batch: Callable[..., bytes]) -> tuple[bytes, ...]:
    """Batches of more than 300 bytes."""
    return tuple(make_batch(bytes([i]) * 150, bytes([i]) * 150) for i in range(3))


def test_it_lies_in_one_segment(open_at: Open, three: tuple[bytes, ...], read_values: Any) -> None:
    log = open_at({"segment_bytes": 1_500})
    append_together(log, three[0])
    for base in (2, 8):
        result = append_together(log, *three)
        assert (result.error, result.base_offset, result.last_offset) == (ErrorCode.NONE, base, base + 5)
    assert log.bases == [0, 2, 8]
    assert [offset for offset, _ in read_values(log)] == list(range(14))


def test_a_disk_with_room_for_a_part_of_it_gets_nothing(
    open_at: Open, three: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch, read_values: Any
) -> None:
    log = open_at({"segment_bytes": 1_500})
    append_together(log, three[0], three[1])
    room = len(three[0])
    real = PosixFile.append

    def append_while_there_is_room(file: PosixFile, parts: Any) -> int:
        nonlocal room
        room -= sum(map(len, parts))
        if room < 0:
            raise OSError(errno.ENOSPC, "no space")
        return real(file, parts)

    with monkeypatch.context() as patched:
        patched.setattr(PosixFile, "append", append_while_there_is_room)
        assert append_together(log, *three).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.end_offset == 4
    assert [offset for offset, _ in read_values(log)] == [0, 1, 2, 3]
    assert append_together(log, *three).base_offset == 4


def test_what_no_segment_holds_is_refused(open_at: Open, three: tuple[bytes, ...]) -> None:
    log = open_at({"segment_bytes": 800})
    assert append_together(log, *three).error is ErrorCode.RECORD_LIST_TOO_LARGE
    assert append_together(log, *three[:2]).base_offset == 0
    assert log.end_offset == 4


# --- markers

FIVE = 5
"""A coordinator's epoch."""


def end(
    log: Log, epoch: int, origin: str = "marker", *, coordinator_epoch: int = FIVE, committed: bool = False
) -> ErrorCode:
    """Producer 1's transaction ends."""
    batch = build_marker(EndMarker(1, epoch, coordinator_epoch, committed), NOW_MS)
    error: ErrorCode = log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS, origin=origin).error  # type: ignore[arg-type]
    return error


@pytest.fixture
def begin(append: Callable[..., Any]) -> Callable[..., ErrorCode]:
    def it(log: Log, epoch: int = 3, sequence: int = 0) -> ErrorCode:
        fields = {"producer_id": 1, "producer_epoch": epoch, "base_sequence": sequence, "transactional": True}
        error: ErrorCode = append(log, b"t", **fields).error
        return error

    return it


Begin = Callable[..., ErrorCode]


def test_a_marker_carries_the_epoch_of_the_transaction_that_it_ends(open_at: Open, begin: Begin) -> None:
    log = open_at()
    begin(log)
    assert end(log, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(log, 3) is ErrorCode.NONE
    assert end(log, 3) is ErrorCode.NONE, "its answer was lost: it comes again"
    assert [entry.first_offset for entry in log.segments[0].aborted()] == [0], "and the index has it once"
    assert begin(log, 3, 1) is ErrorCode.NONE, "sequences go on in the same epoch"


def test_a_raising_marker_carries_the_next_epoch(open_at: Open, begin: Begin) -> None:
    """KIP-890; a retry where nothing is open is written again (KAFKA-19999)."""
    log = open_at()
    begin(log)
    assert end(log, 3, "raising marker") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(log, 4, "raising marker") is ErrorCode.NONE
    assert end(log, 4, "raising marker") is ErrorCode.NONE
    assert [entry.first_offset for entry in log.segments[0].aborted()] == [0]
    assert begin(log, 4, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert begin(log, 4, 0) is ErrorCode.NONE


def test_a_late_raising_marker_does_not_end_the_next_transaction(open_at: Open, begin: Begin) -> None:
    log = open_at()
    begin(log)
    end(log, 4, "raising marker")
    begin(log, 4)
    assert end(log, 4, "raising marker") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.last_stable_offset(log.end_offset) == log.end_offset - 1


@pytest.mark.parametrize("origin", ["marker", "raising marker"])
def test_a_coordinator_that_another_has_replaced_ends_nothing(open_at: Open, begin: Begin, origin: str) -> None:
    log = open_at()
    begin(log)
    assert end(log, 4, origin) is ErrorCode.NONE
    begin(log, 4)
    assert end(log, 5, origin, coordinator_epoch=FIVE - 1) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(log, 5, origin, coordinator_epoch=FIVE + 1) is ErrorCode.NONE


def test_a_marker_where_nothing_was_written_ends_nothing(open_at: Open) -> None:
    log = open_at()
    assert end(log, 0, "raising marker") is ErrorCode.NONE
    assert (log.end_offset, log.producers.unstable, log.segments[0].aborted()) == (1, (), [])


@pytest.mark.parametrize(("epoch", "coordinator_epoch"), [(2, FIVE), (3, FIVE - 1)])
def test_a_follower_takes_every_marker(open_at: Open, begin: Begin, epoch: int, coordinator_epoch: int) -> None:
    log = open_at()
    begin(log)
    end(log, 3)
    batch = bytearray(build_marker(EndMarker(1, epoch, coordinator_epoch, True), NOW_MS))
    batch[:8] = log.end_offset.to_bytes(8, "big")
    assert log.writer.append(bytes(batch), leader_epoch=0, now_ms=NOW_MS, origin="replica").error is ErrorCode.NONE
    assert open_at().end_offset == 3
