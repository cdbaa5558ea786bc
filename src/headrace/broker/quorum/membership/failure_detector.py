"""Tells dead brokers from silent ones, for the active controller: a process that is gone refuses connections.

A broker is suspected when the connection of its heartbeats ends, when another incarnation of it asks to be registered,
and by a new controller that has not heard of it yet. A suspected broker is probed with connections to the listener that
nodes use among themselves: if two in a row are refused it is dead, and fenced at once. Anything else (an answer,
silence, a host that cannot be reached) proves nothing: its session decides then. See docs/adr/0011.

A process that dies closes its sockets one after the other: its listener may take connections for a moment after the
others have ended. So a suspected broker that answers is probed a few times more.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Final

from headrace.env.node import settle

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import Node
    from headrace.env.network import Stream
    from headrace.metadata.image import Broker, Endpoint

GRACE_S: Final = 0.1
"""The pause between two attempts: a listener that is being replaced has that long."""
ATTEMPTS: Final = 5
"""How many attempts a probe makes at most."""
REFUSED: Final = 2
"""How many attempts in a row have to be refused."""
ATTEMPT_S: Final = 0.5
"""How long an attempt waits for an answer."""
SPARED_S: Final = 600.0
"""How long a broker is not fenced early again that was declared dead and lived."""


class FailureDetector:
    """The brokers that are being probed, and those that were declared dead."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._owner = node.owner("failure detector")
        self._log = node.logger("quorum")
        self._probed: set[int] = set()
        self._declared_dead: dict[int, int] = {}
        """Brokers with the broker epoch that they had."""
        self._spared_until_s: dict[int, float] = {}

    async def is_dead(self, broker: Broker, listener: str) -> bool:
        """Probes a suspected broker at its listener of that name, and returns whether it is dead.

        False if it is fenced or spared, or if another probe is under way; and if it has no such listener, for an
        address that is meant for others may refuse this node.
        """
        endpoint = None if broker.fenced else broker.endpoint(listener)
        is_spared = self._node.clock.monotonic() < self._spared_until_s.get(broker.id, 0.0)
        if endpoint is None or is_spared or broker.id in self._probed:
            return False
        self._probed.add(broker.id)
        try:
            return await self._is_gone(endpoint)
        finally:
            self._probed.discard(broker.id)

    def declare_dead(self, broker_id: int, broker_epoch: int) -> None:
        """The broker is fenced because it is dead."""
        self._declared_dead[broker_id] = broker_epoch

    def heard(self, broker_id: int, broker_epoch: int) -> None:
        """A broker lives. If it was declared dead under that epoch, that was wrong, and is not repeated soon."""
        if self._declared_dead.get(broker_id) == broker_epoch:
            del self._declared_dead[broker_id]
            self._spared_until_s[broker_id] = self._node.clock.monotonic() + SPARED_S
            self._log.warning(
                "broker was fenced though it lives: its listener refused this controller", broker=broker_id
            )

    async def _is_gone(self, endpoint: Endpoint) -> bool:
        refused = 0
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(GRACE_S)
            refused = refused + 1 if await self._is_refused(endpoint.host, endpoint.port) else 0
            if refused == REFUSED:
                return True
        return False

    async def _is_refused(self, host: str, port: int) -> bool:
        """Whether nothing listens at an address of a machine that is up."""
        asked: Future[bool] = self._node.future()

        def connected(stream: Stream) -> None:
            stream.close()
            settle(asked, False)

        def failed(error: OSError) -> None:
            settle(asked, error.errno == errno.ECONNREFUSED)

        def timed_out() -> None:
            settle(asked, False)

        timer = self._owner.later(ATTEMPT_S, timed_out)
        connecting = self._node.network.connect(host, port, on_connected=connected, on_failure=failed)
        try:
            return await asked
        finally:
            timer.cancel()
            connecting.cancel()

    def close(self) -> None:
        """Ends its timers."""
        self._owner.close()
