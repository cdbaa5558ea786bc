"""Clients that ask for a version of an API that does not exist, as those of Kafka 0.9 and 0.10 do.

Kafka's answer is to close the connection, and such a client comes back at once, for ever. So the connection stays
silent for a moment before it ends, and there is one line in the log for an address and minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.broker.net.blocked import Blocked

if TYPE_CHECKING:
    from headrace.broker.net.ports import ServedConnection
    from headrace.broker.telemetry.metrics import Counter
    from headrace.env import Owner

SILENT_S: Final = 1.0
SILENT_MAX: Final = 1000
"""Connections that are silent at a time; another one is closed at once."""
LINE_S: Final = 60.0
ADDRESSES_MAX: Final = 1000
"""Addresses whose last log line is remembered. If the table is full, a new address is not logged until the oldest entry
expires."""


class OldClients:
    """Closes connections after a silent moment, and logs each address once a minute."""

    def __init__(self, owner: Owner, monotonic: Callable[[], float], bad: Counter) -> None:
        """`bad` counts connections that end without a line."""
        self._owner = owner
        self._monotonic = monotonic
        self._bad = bad
        self._silent = 0
        self._named: dict[str, float] = {}

    def end(self, connection: ServedConnection, why: str) -> None:
        """Stops reading from the connection, and closes it after SILENT_S."""
        if self._silent >= SILENT_MAX:
            self._close(connection, why)
            return
        self._silent += 1
        connection.block(Blocked.OLD_CLIENT)
        self._owner.later(SILENT_S, self._end, connection, why)

    def _end(self, connection: ServedConnection, why: str) -> None:
        self._silent -= 1
        if not connection.closed:
            self._close(connection, why)

    def _close(self, connection: ServedConnection, why: str) -> None:
        if self._has_line(connection.client.peer_host):
            connection.close(f"{why}: a client older than this broker serves, or newer")
        else:
            self._bad.value += 1
            connection.close("")

    def _has_line(self, address: str) -> bool:
        """Returns whether the address may be logged now, and remembers it if so."""
        now = self._monotonic()
        named = self._named
        while named and now - next(iter(named.values())) >= LINE_S:
            del named[next(iter(named))]
        if address in named or len(named) >= ADDRESSES_MAX:
            return False
        named[address] = now
        return True
