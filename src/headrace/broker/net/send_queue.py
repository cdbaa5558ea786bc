"""Decides when answers are sent: those of several connections served in one turn of the loop are sent together, at its
end.

The first of them wakes a waiting client, which costs several times as much as sending to a client that is awake.
Answers with file ranges are sent at once and do not delay others, because making and sending one takes long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.broker.net.ports import Host, ServedConnection
    from headrace.env.owner import Owner

BESIDE_S: Final = 0.000_02
"""Longest gap between serving two connections in the same turn of the loop."""
TOGETHER_S: Final = 0.001
"""Longest time that an answer waits for those of other connections."""


class SendQueue:
    """The connections of a server whose answers wait to be sent. A connection sets `last` and `ended` after answering
    without file ranges."""

    __slots__ = ("_host", "_owner", "_since", "_waiting", "ended", "last")

    def __init__(self, owner: Owner, host: Host) -> None:
        """`host` gets the unexpected errors of connections."""
        self.last: ServedConnection | None = None
        """Connection that was answered last; `ended` is when that was done."""
        self.ended = -BESIDE_S
        self._owner = owner
        self._host = host
        self._waiting: list[ServedConnection] = []
        """Connections whose answers wait for others; `_since` is when the first began to wait."""
        self._since = 0.0

    def add(self, connection: ServedConnection, began: float, *, at_once: bool) -> None:
        """Sends the answers of a connection whose requests were handled since `began`: at once if no other was served
        right before, else with the others."""
        if at_once or self.last is connection or began - self.ended > BESIDE_S:
            connection.flush()
        elif not connection.flush_scheduled:
            connection.flush_scheduled = True
            if not self._waiting:
                self._since = began
                self._owner.soon(self.send_all)
            self._waiting.append(connection)
            if began - self._since > TOGETHER_S:
                self.send_all()

    def send_all(self) -> None:
        """Sends the waiting answers."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            try:
                each.flush()
            except Exception as error:
                self._host.defect_beside(each, error)

    def forget(self, connection: ServedConnection) -> None:
        """Forgets a connection that has closed."""
        if self.last is connection:
            self.last = None
