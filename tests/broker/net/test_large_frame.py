"""How the memory of a large frame grows as it arrives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.broker.net.budget import Budget
from headrace.broker.net.client_session import ClientSession
from headrace.broker.net.frame_memory import FrameMemory
from headrace.broker.net.input import Input
from headrace.broker.net.large_frame import COPIED_BYTES_MAX, RECEIVED_BYTES_MAX, LargeFrame

if TYPE_CHECKING:
    from collections.abc import Iterator

MB = 1024 * 1024


class CountingMemory(FrameMemory):
    """Counts the bytes that are filled with zeros, and what is reserved."""

    def __init__(self, limit: int = 1 << 40) -> None:
        super().__init__(Budget(limit), self._reserve)
        self.zeroed: list[int] = []
        self.reserved: list[int] = []

    def _reserve(self, size: int) -> memoryview:
        self.reserved.append(size)
        return memoryview(bytearray(size))

    def take_buffer(self, least: int, wanted: int) -> bytearray:
        buffer = super().take_buffer(least, wanted)
        self.zeroed.append(len(buffer))
        return buffer


def begun(memory: FrameMemory, head: bytes, need: int) -> LargeFrame:
    frame = LargeFrame(memory, object(), memoryview(head), need)
    memory.budget.force(frame.room)
    return frame


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    chance, at = random.Random(seed), 0
    while at < len(data):
        size = chance.randrange(1, 3 * MB)
        yield data[at : at + size]
        at += size


def receive(frame: LargeFrame, data: bytes) -> None:
    """As a connection does: no more than there is room for, and more room before that."""
    while data:
        if frame.is_full:
            assert frame.grow()
        room = frame.free
        assert 0 < len(room) <= RECEIVED_BYTES_MAX
        some = data[: len(room)]
        room[: len(some)] = some
        frame.have += len(some)
        data = data[len(some) :]


@pytest.mark.parametrize("need", [300_000, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 40 * MB + 7])
def test_no_step_fills_or_copies_more_than_a_bound(need: int) -> None:
    memory = CountingMemory()
    data = random.Random(need).randbytes(need)
    frame = begun(memory, data[:260_000], need)
    budget = memory.budget
    for piece in pieces(data[260_000:], need):
        receive(frame, piece)
        assert frame.have <= budget.used <= max(2 * frame.have, 64 * 1024), "what it draws follows what has arrived"
    assert frame.have == need
    assert bytes(frame.view[:need]) == data
    assert max(memory.zeroed) <= COPIED_BYTES_MAX
    assert sum(memory.zeroed) <= 3 * COPIED_BYTES_MAX, "in all, too"
    assert memory.reserved == ([need] if need > COPIED_BYTES_MAX else [])
    frame.release()
    assert budget.used == 0


def test_pages_are_reserved_only_for_what_has_partly_arrived() -> None:
    """Clients that announce 100 MB each and send little of it reserve nothing."""
    memory = CountingMemory()
    frame = begun(memory, bytes(260_000), 100 * MB)
    receive(frame, bytes(700_000))
    assert not memory.reserved
    receive(frame, bytes(2 * MB))
    assert memory.reserved == [100 * MB]
    assert memory.budget.used == frame.room < 4 * MB
    frame.release()


def test_a_frame_in_pages_waits_for_the_budget() -> None:
    memory = CountingMemory(limit=9 * MB)
    frame = begun(memory, bytes(256 * 1024), 100 * MB)
    receive(frame, bytes(8 * MB - 256 * 1024))
    assert memory.budget.overdraw(1, "another")
    assert frame.is_full
    assert not frame.grow()
    assert frame.room == 8 * MB
    memory.budget.give(1)
    memory.budget.settle("another")
    assert frame.grow(), "it may go beyond the limit alone"
    assert memory.budget.used == frame.room == 16 * MB
    frame.release()
    assert memory.budget.used == 0


def test_a_system_without_memory_leaves_the_budget_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = CountingMemory()
    frame = begun(memory, bytes(256 * 1024), 100 * MB)

    def refuse(size: int) -> memoryview:
        raise OSError(12, f"no {size} bytes")

    monkeypatch.setattr(memory, "pages", refuse)
    with pytest.raises(MemoryError):
        receive(frame, bytes(4 * MB))
    assert memory.budget.used == frame.room
    frame.release()
    assert memory.budget.used == 0


def test_a_frame_is_received_in_turns_of_a_megabyte() -> None:
    """However much the socket has."""

    class Greedy:
        def __init__(self) -> None:
            self.asked: list[int] = []

        def receive_into(self, buffer: memoryview) -> int:
            self.asked.append(len(buffer))
            return len(buffer)

    shared: Any = None
    stream: Any = Greedy()
    arrived = Input(shared, stream, ClientSession())
    frame = begun(CountingMemory(), bytes(256 * 1024), 100 * MB)
    while frame.have < 90 * MB:
        assert arrived.receive_frame(frame) == stream.asked[-1]
    assert max(stream.asked) == RECEIVED_BYTES_MAX
    frame.release()
