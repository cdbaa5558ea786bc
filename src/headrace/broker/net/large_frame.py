"""A frame too large for the shared buffer, in memory of its own that grows as the frame arrives.

A new buffer is filled with zeros, and the part that has arrived is copied into it: for a frame of 100 MB that took 45
ms in one turn of the loop. So buffers double only up to COPIED_BYTES_MAX. A larger frame moves once into pages of the
system, which are reserved for the whole frame and use memory only as they are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.broker.net.frame_memory import FrameMemory

FRAME_BUFFER_BYTES: Final = 64 * 1024
"""Size of a frame's first buffer, unless more has arrived."""
COPIED_BYTES_MAX: Final = 2 * 1024 * 1024
"""The largest buffer that is filled with zeros and copied into; a larger frame goes on in pages of the system."""
RECEIVED_BYTES_MAX: Final = 1024 * 1024
"""Bytes received of one frame in one turn of the loop."""


class LargeFrame:
    """The part of a frame that has arrived: `have` of `need` bytes, at the beginning of `view`.

    Its memory, `room` bytes so far, is drawn from the budget for requests in the name of `owner`; `release` returns it.
    """

    __slots__ = ("_buffer", "_memory", "_owner", "have", "need", "room", "view")

    def __init__(self, memory: FrameMemory, owner: object, head: memoryview, need: int) -> None:
        """Copies `head`, which has arrived; the caller accounts for `room`."""
        self._memory = memory
        self._owner = owner
        self.have = len(head)
        self.need = need
        buffer = memory.take_buffer(self.have, min(need, max(2 * self.have, FRAME_BUFFER_BYTES)))
        self._buffer: bytearray | None = buffer
        self.room = len(buffer)
        self.view = memoryview(buffer)
        self.view[: self.have] = head

    @property
    def is_full(self) -> bool:
        """Whether the buffer must grow before more can be received."""
        return self.have == self.room

    @property
    def free(self) -> memoryview:
        """Part of the buffer that receives the next bytes in this turn of the loop."""
        return self.view[self.have : min(self.need, self.room, self.have + RECEIVED_BYTES_MAX)]

    def grow(self) -> bool:
        """Doubles the capacity; returns False if there is no memory for that now."""
        size = min(self.need, 2 * self.have)
        old = self._buffer
        more = size - (self.room if old is None else 0)  # while a buffer is copied, both are there
        budget = self._memory.budget
        if not budget.take(more) and not budget.overdraw(more, self._owner):
            return False
        if old is not None:
            self._move(old, size)
        else:
            self.room = size
        return True

    def _move(self, old: bytearray, size: int) -> None:
        """Moves the received part into memory of `size` bytes, which are taken from the budget."""
        have, budget = self.have, self._memory.budget
        if size > COPIED_BYTES_MAX:
            try:
                self.view = self._memory.pages(self.need)
            except OSError as error:
                budget.give(size)
                raise MemoryError from error
            self._buffer = None
            self.room = size
        else:
            self._buffer = self._memory.take_buffer(have + 1, size)
            self.view = memoryview(self._buffer)
            self.room = len(self._buffer)
            budget.force(self.room - size)
        self.view[:have] = memoryview(old)[:have]
        budget.give(len(old))
        self._memory.return_buffer(old)

    def release(self) -> None:
        """Returns the memory."""
        budget = self._memory.budget
        budget.give(self.room)
        budget.settle(self._owner)
        if self._buffer is not None:
            self._memory.return_buffer(self._buffer)
