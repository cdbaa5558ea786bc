"""When answers leave: those to several connections that are served in one turn of the loop together, at its end.

The first of them wakes whoever waits for them, which costs several times what sending to somebody who is awake does.
Answers out of files leave at once, and none waits because of them: to make and send one takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.broker.net.connection import Connection
    from headrace.env.node import Owner

BESIDE_S: Final = 0.000_02
"""What begins so soon after another connection was served belongs to the same turn of the loop."""
TOGETHER_S: Final = 0.001
"""An answer waits no longer than this for those to other connections."""


class Departures:
    """Of all connections of a server. Whoever has answered one, not out of files, says so in `last` and `ended`."""

    __slots__ = ("_defect", "_owner", "_since", "_waiting", "ended", "last")

    def __init__(self, owner: Owner, defect: Callable[[Connection, BaseException], None]) -> None:
        """`defect` is told what nobody expected of a connection."""
        self.last: Connection | None = None
        """Who was answered last, and when that ended."""
        self.ended = -BESIDE_S
        self._owner = owner
        self._defect = defect
        self._waiting: list[Connection] = []
        """Whose answers wait for those of others, and since when."""
        self._since = 0.0

    def leave(self, connection: Connection, began: float, *, at_once: bool) -> None:
        """Sends the answers to a connection whose requests have been handled since `began`; at once in any case where
        no other was served right before."""
        if at_once or self.last is connection or began - self.ended > BESIDE_S:
            connection.flush()
        elif not connection.flush_scheduled:
            connection.flush_scheduled = True
            if not self._waiting:
                self._since = began
                self._owner.soon(self.all_leave)
            self._waiting.append(connection)
            if began - self._since > TOGETHER_S:
                self.all_leave()

    def all_leave(self) -> None:
        """Sends what waits."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            try:
                each.flush()
            except Exception as error:
                self._defect(each, error)

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        if self.last is connection:
            self.last = None
