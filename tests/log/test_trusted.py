"""What a coordinator appends is in the log as a whole, or not at all."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from headrace.env.posix import PosixFile
from headrace.log.log import Log
from headrace.wire.errors import ErrorCode

Open = Callable[..., Log]
NOW_MS = 1_700_000_000_000


def append_together(log: Log, *batches: bytes) -> Any:
    return log.append(b"".join(batches), leader_epoch=0, now_ms=NOW_MS, origin="coordinator")


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
