"""What a connection still has to send, over a stream that takes only so much."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from headrace.broker.net.output import (
    AGAIN,
    BLOCKED,
    COLD,
    DONE,
    PARTS_PER_SEND,
    SCRATCH_BYTES,
    SEND_BYTES,
    SMALL_SLICE_BYTES,
    TURN_S,
    BrokenFrameError,
    Output,
)
from headrace.env.network import NOT_IN_MEMORY, WOULD_BLOCK
from headrace.env.posix import PosixDisk
from headrace.wire.file_slice import FileSlice


class StingyStream:
    """Takes a random number of bytes at a time, and sometimes none; some reads find nothing in memory."""

    def __init__(self, rng: random.Random, cold: float = 0.0) -> None:
        self.rng = rng
        self.cold = cold
        self.got = bytearray()

    def _room(self, size: int) -> int:
        return self.rng.choice((0, 1, size // 3, size - 1, size, size, size))

    def send(self, parts: list[bytes], more: bool = False) -> int:
        data = b"".join(parts)
        taken = self._room(len(data))
        self.got += data[:taken]
        return taken or WOULD_BLOCK

    def send_slice(self, part: FileSlice, at: int, size: int, *, may_wait: bool = False) -> int:
        assert 0 < size <= part.size - at
        if not may_wait and self.rng.random() < self.cold:
            return NOT_IN_MEMORY
        data = part.file.read(part.position + at, size)
        if not data:
            return 0
        taken = self._room(len(data))
        self.got += data[:taken]
        return taken or WOULD_BLOCK

    def read_slice(self, part: FileSlice, at: int, buffer: memoryview, *, may_wait: bool = False) -> int:
        if not may_wait and self.rng.random() < self.cold:
            return NOT_IN_MEMORY
        data = part.file.read(part.position + at, len(buffer))
        buffer[: len(data)] = data
        return len(data)


@pytest.mark.parametrize("seed", range(60))
def test_everything_arrives_once_in_order(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    content = rng.randbytes(3 * SMALL_SLICE_BYTES)
    (tmp_path / "file").write_bytes(content)
    file = PosixDisk().open(str(tmp_path / "file"))
    stream = StingyStream(rng, cold=rng.choice((0.0, 0.3)))
    output, expected = Output(memoryview(bytearray(SCRATCH_BYTES))), bytearray()
    for _ in range(rng.randrange(1, 40)):
        if rng.random() < 0.5:
            part = rng.randbytes(rng.choice((0, 1, 20, 5000, 100_000)))
            output.add_bytes(part) if part else output.add([part])
            expected += part
        else:
            at = rng.randrange(len(content))
            size = rng.choice((0, 1, 400, 16_384, SMALL_SLICE_BYTES, SMALL_SLICE_BYTES + 1, 10**6))
            size = min(size, len(content) - at)
            output.add([file.slice(at, size)])
            expected += content[at : at + size]
    may_wait = False
    now = itertools.count()

    def clock() -> float:
        return next(now) * rng.choice((0.0, TURN_S / 4, TURN_S))

    for _ in range(20_000):
        outcome = output.send(stream, clock, may_wait=may_wait)  # type: ignore[arg-type]
        assert outcome in (DONE, BLOCKED, COLD, AGAIN)
        if outcome == COLD:
            cold, at = output.cold_slice()
            assert 0 <= at < cold.size
        may_wait = outcome == COLD
        if outcome == DONE:
            break
    assert stream.got == expected
    assert output.held == 0
    assert len(output) == 0


@pytest.mark.parametrize("size", [500, SMALL_SLICE_BYTES + 500])
def test_a_file_that_ends_early_breaks_the_frame(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    file = PosixDisk().open(str(tmp_path / "file"))
    output = Output(memoryview(bytearray(SCRATCH_BYTES)))
    output.add([b"head", FileSlice(file, 50, size)])
    with pytest.raises(BrokenFrameError):
        for _ in range(100):
            output.send(StingyStream(random.Random(1)), float)  # type: ignore[arg-type]


class EagerStream(StingyStream):
    """Takes all that it is given."""

    def _room(self, size: int) -> int:
        return size


def test_a_turn_ends_by_time(tmp_path: Path) -> None:
    """And what is left of an answer, if it is little, leaves with what is before it."""
    (tmp_path / "file").write_bytes(bytes(3 * SEND_BYTES))
    file = PosixDisk().open(str(tmp_path / "file"))
    for took, turn in ((0.0, 3 * SEND_BYTES + 3), (TURN_S / 2, 2 * SEND_BYTES), (TURN_S, SEND_BYTES)):
        stream, output = EagerStream(random.Random(1)), Output(memoryview(bytearray(SCRATCH_BYTES)))
        now = (index * took for index in itertools.count())
        output.add([file.slice(0, 3 * SEND_BYTES), b"end"])
        clock = now.__next__
        assert output.send(stream, clock) == (AGAIN if took else DONE)  # type: ignore[arg-type]
        assert len(stream.got) == turn
        while output.send(stream, clock) == AGAIN:  # type: ignore[arg-type]
            pass
        assert len(stream.got) == 3 * SEND_BYTES + 3
    stream, output = EagerStream(random.Random(1)), Output(memoryview(bytearray(SCRATCH_BYTES)))
    output.add([file.slice(0, SEND_BYTES), b"end"])
    late = iter((0.0, 1.0, 2.0))
    assert output.send(stream, late.__next__) == DONE  # type: ignore[arg-type]


def test_what_left_another_way_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    file = PosixDisk().open(str(tmp_path / "file"))
    stream, output = EagerStream(random.Random(1)), Output(memoryview(bytearray(SCRATCH_BYTES)))
    output.add([b"head", file.slice(2, 6), b"tail"])
    output.skip(7)
    assert output.held == 4
    assert output.send(stream, float) == DONE  # type: ignore[arg-type]
    assert (bytes(stream.got), output.held) == (b"567tail", 0)


def test_a_turn_of_many_small_parts_ends_by_time() -> None:
    """They are more than leave with one send, and each looks like the end of an answer."""
    stream, output = EagerStream(random.Random(1)), Output(memoryview(bytearray(SCRATCH_BYTES)))
    output.add([b"part"] * (3 * PARTS_PER_SEND))
    clock = itertools.count().__next__
    assert output.send(stream, clock) == AGAIN  # type: ignore[arg-type]
    assert len(stream.got) == 4 * PARTS_PER_SEND
    assert output.send(stream, clock) == DONE, "the last two runs leave together"  # type: ignore[arg-type]
