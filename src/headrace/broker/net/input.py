"""Unhandled input of one connection: an incomplete frame, or frames behind a blocked one.

Bytes are received into the buffer that all connections share. Only bytes that cannot be handled at once are kept here,
in memory that grows with the bytes that arrive, not with the announced size of a frame, and that is drawn from the
budget for requests.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.broker.net.large_frame import LargeFrame
from headrace.broker.net.plain_header import HEADER_BYTES

if TYPE_CHECKING:
    from headrace.broker.net.client_session import ClientSession
    from headrace.broker.net.shared import Shared
    from headrace.env.network import Stream

SCARCE_RECEIVE_BYTES: Final = 4096
"""Bytes received at once while the budget for requests is spent: enough for a small request."""
NO_MEMORY: Final = -2
"""Result of `receive_frame` if there is no memory for more of the frame."""

_read_size = Struct(">i").unpack_from


class Input:
    """The kept bytes of one connection, drawn from the budget in the name of `client`."""

    __slots__ = ("_client", "_shared", "_stream", "carry", "frame")

    def __init__(self, shared: Shared, stream: Stream, client: ClientSession) -> None:
        self._shared = shared
        self._stream = stream
        self._client = client
        self.carry = b""
        """Kept bytes that fit the shared buffer."""
        self.frame: LargeFrame | None = None
        """Frame that does not fit the shared buffer."""

    @property
    def is_partial(self) -> bool:
        """Whether an incomplete frame is kept."""
        return self.frame is not None or bool(self.carry)

    # --- small frames

    def receive(self) -> int:
        """Receives into the shared buffer, behind the kept bytes; returns the end of the data, 0 if the peer has ended,
        or WOULD_BLOCK. Raises OSError."""
        shared = self._shared
        budget, room, carry = shared.requests_budget, shared.view, self.carry
        have = len(carry)
        if have:
            room[:have] = carry
            room = room[have:]
        if budget.used >= budget.limit:
            room = room[:SCARCE_RECEIVE_BYTES]
        received = self._stream.receive_into(room)
        if received <= 0:
            return received
        if have:
            self.carry = b""
            budget.give(have)
        return have + received

    def take_back(self) -> bytes:
        """Returns the kept bytes, and no longer keeps them."""
        carry, self.carry = self.carry, b""
        if carry:
            self._shared.requests_budget.give(len(carry))
        return carry

    def keep(self, rest: memoryview | bytes) -> None:
        """Keeps bytes that may not be handled yet, even beyond the budget: they have been received."""
        self.carry = bytes(rest)
        self._shared.requests_budget.force(len(rest))

    def keep_beginning(self, rest: memoryview) -> bool:
        """Keeps an incomplete frame of an allowed size. Returns False if the budget is spent: it is overdrawn then, and
        nothing more may be received before other holders have returned bytes."""
        left = len(rest)
        if left >= 4 and (need := _read_size(rest)[0] + 4) > len(self._shared.buffer):
            self.frame = LargeFrame(self._shared.frame_memory, self._client, rest, need)
            left = self.frame.room
        else:
            self.carry = bytes(rest)
        budget = self._shared.requests_budget
        if budget.take(left) or budget.overdraw(left, self._client):
            return True
        budget.force(left)
        return False

    # --- large frames

    def receive_frame(self, frame: LargeFrame) -> int:
        """Receives more of the large frame; returns the bytes received, 0 if the peer has ended, WOULD_BLOCK, or
        NO_MEMORY. Raises OSError."""
        if frame.is_full and not frame.grow():
            return NO_MEMORY
        received = self._stream.receive_into(frame.free)
        if received > 0:
            frame.have += received
        return received

    def drop_frame(self) -> None:
        """Frees the large frame, if there is one."""
        frame, self.frame = self.frame, None
        if frame is not None:
            frame.release()

    def close(self) -> None:
        """Frees everything that is kept."""
        self.take_back()
        self.drop_frame()
        self._shared.requests_budget.settle(self._client)


def size_refusal(size: int, frame_bytes_max: int) -> str:
    """Returns why a frame of that size is refused; empty if it is allowed."""
    if HEADER_BYTES <= size <= frame_bytes_max:
        return ""
    return f"a frame of {size} bytes; {HEADER_BYTES} to {frame_bytes_max} bytes are allowed"
