"""The replies of one connection, which leave in the order of its requests.

A reply that is ready while others are waited for keeps its place behind them. Small frames are collected, and leave
in one send; what the peer does not take, and ranges of files, goes on in `Sending`.
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
    """See the module."""

    __slots__ = ("_kept", "_shared", "_stream", "out", "sending", "unanswered")

    def __init__(self, shared: Shared, stream: Stream, connection: ServedConnection) -> None:
        self._shared = shared
        self._stream = stream
        self._kept = 0
        self.sending = Sending(connection, stream, shared)
        self.out: list[bytes | bytearray] = []
        """Frames that leave with the next `flush`, before what `sending` gets later."""
        self.unanswered: deque[Reply] = deque()
        """Requests whose replies are waited for, or wait for others, in their order."""

    @property
    def is_full(self) -> bool:
        """Whether too much is unanswered for another request to be read."""
        return len(self.unanswered) >= self._shared.unanswered_max or self._kept > OUTPUT_BYTES

    def expect(self, reply: Reply) -> None:
        """Keeps the place of a reply that comes later."""
        unanswered = self.unanswered
        if unanswered and (hurry := unanswered[0].hurry) is not None:
            hurry()
        unanswered.append(reply)
        reply.began = self._shared.began
        self._shared.requests_budget.force(reply.held)

    def keep(self, reply: Reply, parts: list[Part]) -> None:
        """Keeps a reply that is ready, behind those that are waited for."""
        reply.parts = parts
        reply.held = reply.kept = sum(len(part) for part in parts if type(part) is not FileSlice)
        self._kept += reply.kept
        self.expect(reply)

    def emit_ready(self) -> bool:
        """Queues the replies that nothing before them is waited for; returns whether there were any."""
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
        """Queues a reply behind what was queued before."""
        if self.out:
            self.sending.add(list(self.out))
            self.out.clear()
        self.sending.add(parts)

    def flush(self) -> None:
        """Sends what can be sent now. Raises OSError if the stream is gone, and BrokenFrameError if a file is shorter
        than its slice."""
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
        """Drops all replies; if `send_last`, after the peer took what it takes of them."""
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
