"""What the active controller knows of the brokers' lives: it decides by it, and its tasks maintain it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.controller.sessions import BrokerSessions
    from headrace.env import Node


class BrokerLiveness:
    """`sessions` are those of the brokers while this node is the active controller, else None.

    `own_broker_epoch` is the epoch under which this process is registered as a broker; -1 if it is not, or not yet.
    """

    def __init__(self, node: Node) -> None:
        self.sessions: BrokerSessions | None = None
        self.own_broker_epoch = -1
        self._clock = node.clock

    def now_ms(self) -> int:
        """The time of sessions, in ms of the steady clock."""
        return int(self._clock.monotonic() * 1000)
