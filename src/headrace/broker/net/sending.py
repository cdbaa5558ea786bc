"""Sends the queued output of one connection: at once, when the peer takes more, and after a worker has read file ranges
that were not in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.blocked import Blocked
from headrace.broker.net.output import AGAIN, BLOCKED, COLD, DONE, BrokenFrameError, Output
from headrace.env.network import READ_AHEAD_BYTES
from headrace.wire.primitives import Buffer, Part

if TYPE_CHECKING:
    from headrace.broker.net.ports import ServedConnection
    from headrace.broker.net.shared import Shared
    from headrace.env.network import Stream
    from headrace.env.workers import Raised

OUTPUT_BYTES: Final = 1024 * 1024
OUTPUT_PARTS: Final = 256
"""Bounds on the unsent replies of a connection, in bytes and parts; beyond either it is not read from."""


class Sending:
    """The output queue of one connection and its state. While it waits for the disk, more may be queued, but nothing is
    sent."""

    __slots__ = (
        "_accounted",
        "_connection",
        "_ended",
        "_output",
        "_shared",
        "_since",
        "_stream",
        "_waits_for_disk",
        "_writing",
        "queued",
    )

    def __init__(self, connection: ServedConnection, stream: Stream, shared: Shared) -> None:
        self._connection = connection
        self._shared = shared
        self._stream = stream
        self._output = Output(self._shared.scratch)
        self.queued = self._output.parts
        """Parts still to be sent."""
        self._accounted = 0
        """Bytes drawn from the budget for responses."""
        self._since = 0.0
        """Monotonic time of the last change of `_writing`."""
        self._writing = False
        """Whether the output waits for the socket to become writable."""
        self._waits_for_disk = False
        self._ended = False

    @property
    def held(self) -> int:
        """Bytes in Python's memory that are still to be sent."""
        return self._output.held

    @property
    def is_over_bound(self) -> bool:
        """Whether the queue exceeds the bounds within which the connection is read from."""
        return self._output.held > OUTPUT_BYTES or len(self.queued) > OUTPUT_PARTS

    def stalled_s(self, now: float) -> float:
        """Returns for how many seconds the peer has not taken the whole queue."""
        return now - self._since if self._writing and self._output.held else 0.0

    def add(self, parts: list[Part]) -> None:
        """Queues parts. If the queue is too long the connection is not read from until some of it is sent: small
        requests may have large answers."""
        self._output.add(parts)
        if self.is_over_bound:
            self._connection.block(Blocked.OUTPUT)

    def add_bytes(self, data: Buffer) -> None:
        """Queues one buffer."""
        self._output.add_bytes(data)

    def skip(self, sent: int) -> None:
        """Drops the first `sent` bytes, which have been sent already."""
        self._output.skip(sent)

    def go_on(self, may_wait: bool = False) -> None:
        """Sends as much as the peer takes now. Raises OSError if the stream is gone and BrokenFrameError if a file is
        shorter than its slice."""
        shared = self._shared
        if self.queued and not self._waits_for_disk:
            most = shared.send_bytes()
            self._account_for(self._output.send(self._stream, shared.monotonic, most, may_wait=may_wait))

    def end(self, *, send_last: bool) -> None:
        """Drops the queue; if `send_last`, sends as much as the peer takes first."""
        if send_last and self.queued and not self._waits_for_disk:
            try:
                self._output.send(self._stream, self._shared.monotonic)
            except (OSError, BrokenFrameError):
                pass  # the connection ends in any case
        self._shared.responses_budget.give(self._accounted)
        self._accounted = 0
        self._output = Output(self._shared.scratch)
        self.queued = self._output.parts
        self._ended = True
        del self._connection  # so that both are freed at once: thousands of clients a second may connect and not log in

    def _writable(self) -> None:
        self._connection.active = True
        self._try_on()

    def _try_on(self, may_wait: bool = False) -> None:
        try:
            self.go_on(may_wait)
        except (OSError, BrokenFrameError) as error:
            self._connection.close(str(error) if isinstance(error, BrokenFrameError) else "")

    def _account_for(self, outcome: int) -> None:
        """Settles a turn: waits for the socket or the disk, adjusts the budget, and has the connection read from only
        while its client takes its replies."""
        waits = outcome in (BLOCKED, AGAIN)
        if waits != self._writing:
            self._writing, self._since = waits, self._shared.monotonic()
            self._stream.on_writable(self._writable if waits else None)
        if outcome == COLD:
            self._read_ahead()
        output = self._output
        budget = self._shared.responses_budget
        more = output.held - self._accounted
        self._accounted = output.held
        if more < 0:
            budget.give(-more)
        else:
            budget.used += more
        if outcome != DONE and (self.is_over_bound or budget.exhausted):
            self._connection.block(Blocked.OUTPUT)
        elif 2 * len(self.queued) <= OUTPUT_PARTS and 2 * output.held <= OUTPUT_BYTES:
            self._connection.unblock(Blocked.OUTPUT)

    def _read_ahead(self) -> None:
        """Has a worker read the next file range into memory, so that the event loop never waits for the disk."""
        self._waits_for_disk = True
        part, at = self._output.cold_slice()
        size = min(READ_AHEAD_BYTES, part.size - at)
        self._shared.cold_reads.value += 1
        self._shared.workers.submit(lambda: part.file.read_ahead(part.position + at, size)).deliver_to(self._was_read)

    def _was_read(self, outcome: Raised | None) -> None:
        self._waits_for_disk = False
        if self._ended:
            return
        if outcome is not None:
            self._connection.close(f"a segment could not be read: {outcome.error}")
            return
        self._connection.active = True
        self._try_on(may_wait=True)
