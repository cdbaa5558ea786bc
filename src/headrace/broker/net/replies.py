"""The replies of one connection, sent in the order of its requests.

A reply that is ready keeps its place behind earlier, pending ones. Small frames are collected and sent together; file
ranges, and bytes that the peer does not take, go through `Sending`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.broker.net.sending import OUTPUT_BYTES, Sending
from headrace.wire.file_slice import FileSlice

if TYPE_CHECKING:
    from headrace.broker.net.ports import ServedConnection
    from headrace.broker.net.reply import Reply
    from headrace.broker.net.shared import Shared
    from headrace.env.network import Stream
    from headrace.wire.primitives import Part


class Replies:
    """The pending and ready replies of one connection."""

    __slots__ = ("_kept", "_shared", "_stream", "out", "sending", "unanswered")

    def __init__(self, shared: Shared, stream: Stream, connection: ServedConnection) -> None:
        self._shared = shared
        self._stream = stream
        self._kept = 0
        """Bytes of ready replies that earlier, pending ones block."""
        self.sending = Sending(connection, stream, shared)
        self.out: list[bytes | bytearray] = []
        """Frames sent by the next `flush`, before anything that `sending` gets later."""
        self.unanswered: deque[Reply] = deque()
        """Requests without a sent reply, in order: the reply is pending, or blocked by an earlier one."""

    @property
    def is_full(self) -> bool:
        """Whether too much is unanswered to read another request."""
        return len(self.unanswered) >= self._shared.unanswered_max or self._kept > OUTPUT_BYTES

    def expect(self, reply: Reply) -> None:
        """Reserves the place of a pending reply."""
        unanswered = self.unanswered
        if unanswered and (hurry := unanswered[0].hurry) is not None:
            hurry()
        unanswered.append(reply)
        reply.began = self._shared.began
        self._shared.requests_budget.force(reply.held)

    def keep(self, reply: Reply, parts: list[Part]) -> None:
        """Keeps a ready reply behind the pending ones."""
        reply.parts = parts
        reply.held = reply.kept = sum(len(part) for part in parts if type(part) is not FileSlice)
        self._kept += reply.kept
        self.expect(reply)

    def emit_ready(self) -> bool:
        """Queues every reply that no earlier one blocks; returns whether it queued any."""
        unanswered = self.unanswered
        emitted = False
        while unanswered and unanswered[0].parts is not None:
            reply = unanswered.popleft()
            assert reply.parts is not None
            self._shared.requests_budget.give(reply.held)
            self._kept -= reply.kept
            self.emit(reply.parts)
            emitted = True
        return emitted

    def emit(self, parts: list[Part]) -> None:
        """Queues a reply behind the queued ones."""
        if self.out:
            self.sending.add(list(self.out))
            self.out.clear()
        self.sending.add(parts)

    def flush(self) -> None:
        """Sends as much as the peer takes now. Raises OSError if the stream is gone, and BrokenFrameError if a file is
        shorter than its slice."""
        out, sending = self.out, self.sending
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            if sending.queued:
                sending.add_bytes(data)
            else:
                sent = self._stream.send((data,))
                if sent == len(data):
                    return
                sending.add_bytes(memoryview(data)[sent:] if sent > 0 else data)
        sending.go_on()

    def close(self, *, send_last: bool) -> None:
        """Drops all replies; if `send_last`, sends as much as the peer takes first."""
        if send_last:
            self.emit([])
        self.sending.end(send_last=send_last)
        self.out.clear()
        unanswered, self.unanswered = self.unanswered, deque()
        held = sum(reply.held for reply in unanswered)
        for reply in unanswered:
            if reply.abandon is not None and reply.parts is None:
                reply.abandon()
        self._shared.requests_budget.give(held)
