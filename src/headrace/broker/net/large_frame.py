"""A frame too large for the buffer that all connections share, in one of its own that grows as it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.broker.net.server import Server

FRAME_BUFFER_BYTES: Final = 64 * 1024
"""The first buffer of a frame, unless more of it has arrived."""


class LargeFrame:
    """The part of a frame that has arrived: `have` of its `need` bytes, at the beginning of `buffer`.

    Its buffer is drawn from the budget for requests in the name of `owner`; `release` gives it back.
    """

    __slots__ = ("_owner", "_server", "buffer", "have", "need", "view")

    def __init__(self, server: Server, owner: object, head: memoryview, need: int) -> None:
        """Takes in `head`, which has arrived; the caller accounts for `len(buffer)`."""
        self._server = server
        self._owner = owner
        self.have = len(head)
        self.need = need
        self.buffer = server.take_buffer(self.have, min(need, max(2 * self.have, FRAME_BUFFER_BYTES)))
        self.view = memoryview(self.buffer)
        self.view[: self.have] = head

    @property
    def is_full(self) -> bool:
        """Whether the buffer has to grow before more can be received."""
        return self.have == len(self.buffer)

    def grow(self) -> bool:
        """Makes room for as much again as has arrived; False when there is no memory for it now."""
        have = self.have
        size = min(self.need, 2 * have)
        budget = self._server.requests_budget
        if not budget.take(size) and not budget.overdraw(size, self._owner):
            return False
        old = self.buffer
        self.buffer = self._server.take_buffer(have + 1, size)
        budget.force(len(self.buffer) - size)
        self.view = memoryview(self.buffer)
        self.view[:have] = memoryview(old)[:have]
        budget.give(len(old))
        self._server.return_buffer(old)
        return True

    def release(self) -> None:
        """Gives the buffer and its memory back."""
        budget = self._server.requests_budget
        budget.give(len(self.buffer))
        budget.settle(self._owner)
        self._server.return_buffer(self.buffer)
