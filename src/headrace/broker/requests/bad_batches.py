"""Logs and counts batches that were refused for their content: a wrong checksum, a cut batch, a wrong count.

Writes at most one line per connection and second, so that a broken client cannot fill the disk; counts the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import Clock, LogSink
    from headrace.log.append_results import AppendResult

BROKEN: Final = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})
"""The errors that are about the data, not about a client that is late, sends too much or is not allowed."""

QUIET_S: Final = 1.0
"""Seconds for which a connection that was logged is not logged again."""

NAMED_MAX: Final = 1000
"""Most connections whose last log line is remembered. While so many had one within QUIET_S, no other is logged."""

MESSAGE_CHARS_MAX: Final = 200
"""Most characters of the reason in a log line, as it may quote the client."""


class BadBatches:
    """The refused batches of one broker. Good batches never get here."""

    def __init__(self, clock: Clock, log: LogSink, metrics: Registry) -> None:
        self._clock = clock
        self._log = log
        self._named: dict[tuple[str, int], float] = {}
        self._unsaid = 0
        self._count = metrics.counter("produce.bad_batches")
        self._unsaid_count = metrics.counter("produce.bad_batches_unlogged")

    def refused(self, replica: Replica, result: AppendResult, client: tuple[str, int]) -> None:
        """Counts a refused batch, and logs it unless its client (host and port) was logged within QUIET_S."""
        if result.error not in BROKEN:
            return
        self._count.value += 1
        if not self._may_name(client):
            self._unsaid += 1
            self._unsaid_count.value += 1
            return
        unsaid, self._unsaid = self._unsaid, 0
        self._log.warning(
            "batch refused",
            client=f"{client[0]}:{client[1]}",
            partition=f"{replica.topic}-{replica.index}",
            error=result.error.name,
            why=(result.error_message or "")[:MESSAGE_CHARS_MAX],
            **({"refused_without_a_line": unsaid} if unsaid else {}),
        )

    def _may_name(self, client: tuple[str, int]) -> bool:
        now = self._clock.monotonic()
        if now - self._named.get(client, now - QUIET_S) < QUIET_S:
            return False
        if len(self._named) >= NAMED_MAX:
            self._named = {each: at for each, at in self._named.items() if now - at < QUIET_S}
            if len(self._named) >= NAMED_MAX:
                return False
        self._named[client] = now
        return True
