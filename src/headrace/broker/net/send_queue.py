"""When answers are sent: those to several connections that are served in one turn of the loop together, at its end.

The first of them wakes a client that waits, which costs several times what sending to a client that is awake does.
Answers out of files are sent at once, and none waits because of them: to make and send one takes long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.broker.net.ports import Host, ServedConnection
    from headrace.env.owner import Owner

BESIDE_S: Final = 0.000_02
"""A request that begins so soon after another connection was served belongs to the same turn of the loop."""
TOGETHER_S: Final = 0.001
"""An answer waits no longer than this for those to other connections."""


class SendQueue:
    """The connections of a server whose answers wait to be sent. A connection that has answered, not out of files, sets
    `last` and `ended`."""

    __slots__ = ("_host", "_owner", "_since", "_waiting", "ended", "last")

    def __init__(self, owner: Owner, host: Host) -> None:
        """`host` gets the unexpected errors of connections."""
        self.last: ServedConnection | None = None
        """The connection that was answered last, and when that ended."""
        self.ended = -BESIDE_S
        self._owner = owner
        self._host = host
        self._waiting: list[ServedConnection] = []
        """Those whose answers wait for others, and since when."""
        self._since = 0.0

    def add(self, connection: ServedConnection, began: float, *, at_once: bool) -> None:
        """Sends the answers to a connection whose requests have been handled since `began`, at once if no other was
        served right before."""
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
        """Sends the answers that wait."""
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
