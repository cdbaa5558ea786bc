"""The output queue of a connection: bytes and file slices, in order, without copying large ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.env.network import NOT_IN_MEMORY, WOULD_BLOCK, Stream
from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer, Part

SMALL_SLICE_BYTES: Final = 96 * 1024
"""Size up to which file ranges are read and sent together with the parts around them: one send wakes the reader once,
where sendfile would need three system calls. Such bytes are not kept if the reader does not take them."""
SCRATCH_BYTES: Final = 2 * SMALL_SLICE_BYTES
PARTS_PER_SEND: Final = 64
SEND_BYTES: Final = 1024 * 1024
SEND_SHARED_BYTES: Final = 256 * 1024
"""Bytes of a file sent at once while many readers fetch much, or beside connections with small requests."""
LAST_BYTES: Final = 4096
"""Size up to which the end of an answer, sent in one send, leaves in the same turn as the part before it."""
TURN_S: Final = 0.0002
"""Time after which a sending connection lets others have their turn."""

DONE: Final = 0
BLOCKED: Final = 1
COLD: Final = 2
AGAIN: Final = 3


class BrokenFrameError(Exception):
    """Raised if a file slice ends before its frame does: the frame cannot be completed, so the connection must end."""


class Output:
    """A queue of parts that one stream sends.

    `held` counts the bytes in Python's memory; a slice of a file counts nothing.
    """

    __slots__ = ("_at", "_scratch", "_took", "held", "parts")

    def __init__(self, scratch: memoryview) -> None:
        """`scratch`: a buffer of SCRATCH_BYTES for small file ranges, which all outputs of one loop may share: its
        content is not kept beyond a call."""
        self._scratch = scratch
        self.held = 0
        self.parts: deque[Part] = deque()
        self._at = 0
        """Position in the first part up to which it has been sent."""
        self._took = SEND_BYTES
        """Bytes that the peer took with the last send of a file range."""

    def __len__(self) -> int:
        return len(self.parts)

    def add(self, parts: list[Part]) -> None:
        """Queues parts behind the queued ones."""
        for part in parts:
            size = len(part)
            if size:
                if type(part) is not FileSlice:
                    self.held += size
                self.parts.append(part)

    def add_bytes(self, data: Buffer) -> None:
        """Queues one buffer."""
        self.held += len(data)
        self.parts.append(data)

    def cold_slice(self) -> tuple[FileSlice, int]:
        """Returns the slice that has to be read from the disk first, and the position in it; called after `send`
        returned COLD."""
        part = self.parts[0]
        assert type(part) is FileSlice
        return part, self._at

    def skip(self, sent: int) -> None:
        """Drops the first `sent` bytes, which have been sent already."""
        self._drop(sent)

    def send(
        self, stream: Stream, monotonic: Callable[[], float], most: int = SEND_BYTES, *, may_wait: bool = False
    ) -> int:
        """Sends as much as the peer takes; returns DONE, BLOCKED, COLD (the disk is needed first) or AGAIN (others'
        turn).

        At most `most` bytes of a file are sent at once, and the clock is checked in between. Each send asks for at most
        twice the bytes that the peer took last, so that no more is looked up in memory than it may take. `may_wait`:
        the first file range was just read, and is sent without checking that it still is in memory. Raises OSError if
        the stream is gone and BrokenFrameError if a file is shorter than its slice.
        """
        until = monotonic() + TURN_S
        parts = self.parts
        sent = 0
        while parts:
            part = parts[0]
            size = len(part) - self._at
            if sent and (size > LAST_BYTES or len(parts) > PARTS_PER_SEND) and monotonic() >= until:
                return AGAIN
            if size > SMALL_SLICE_BYTES and isinstance(part, FileSlice):
                asked = min(size, most, 2 * self._took)
                sent = stream.send_slice(part, self._at, asked, may_wait=may_wait)
                if sent > 0:
                    self._took = max(sent, SMALL_SLICE_BYTES)
                whole = asked
            else:
                run, more = self._gather(stream, may_wait)
                if not run:
                    return COLD
                whole = sum(map(len, run))
                sent = stream.send(run, more)
            may_wait = False
            if sent == WOULD_BLOCK:
                return BLOCKED
            if sent == NOT_IN_MEMORY:
                return COLD
            if sent == 0:
                raise BrokenFrameError("a segment ended within a slice of it")
            self._drop(sent)
            if sent < whole:
                return BLOCKED
        return DONE

    def _gather(self, stream: Stream, may_wait: bool) -> tuple[list[Buffer], bool]:
        """Returns the buffers to send next, with small file ranges read into `scratch`, and whether a large range
        follows at once. No buffers: the first range is not in memory."""
        scratch = self._scratch
        run: list[Buffer] = []
        used = 0
        at = self._at
        for part in self.parts:
            if isinstance(part, FileSlice):
                size = part.size - at
                if size > SMALL_SLICE_BYTES or used + size > len(scratch):
                    return run, True
                into = scratch[used : used + size]
                got = stream.read_slice(part, at, into, may_wait=may_wait)
                if got == NOT_IN_MEMORY:
                    return run, bool(run)
                if got < size:
                    raise BrokenFrameError("a segment ended within a slice of it")
                may_wait = False
                run.append(into)
                used += size
            else:
                run.append(memoryview(part)[at:] if at else part)
            at = 0
            if len(run) == PARTS_PER_SEND:
                break
        return run, False

    def _drop(self, sent: int) -> None:
        sent += self._at
        parts = self.parts
        while parts:
            part = parts[0]
            size = len(part)
            if sent < size:
                break
            sent -= size
            if not isinstance(part, FileSlice):
                self.held -= size
            parts.popleft()
        self._at = sent
