"""Tells dead brokers from silent ones, for the active controller: a process that is gone refuses connections.

A broker is suspected when the connection of its heartbeats ends, when another incarnation of it asks to be registered,
and by a new controller that has not heard of it yet. A suspected broker is asked for connections at the listener that
nodes use among themselves: if two in a row are refused it is dead, and fenced at once. Anything else (an answer,
silence, a host that cannot be reached) proves nothing: its session decides then. See docs/adr/0011.

A process that dies closes its sockets one after the other: its listener may take connections for a moment after the
others have ended. So a suspected broker that answers is asked a few times more.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.env.node import settle

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import Node
    from headrace.env.network import Stream
    from headrace.metadata.image import ClusterImage, Endpoint

GRACE_S: Final = 0.1
"""Between two attempts: a listener that is being replaced has that long."""
ATTEMPTS: Final = 5
"""At most so many."""
REFUSED: Final = 2
"""So many in a row have to be refused."""
ATTEMPT_S: Final = 0.5
"""How long an attempt waits for an answer."""
SPARED_S: Final = 600.0
"""For so long a broker is not fenced early again that lived on."""


class DeathWatch:
    """See the module. `dead(id, epoch)` is told of each death, once; `image` is the newest one, `listener` returns the
    name of the listener that brokers use among themselves."""

    def __init__(
        self,
        node: Node,
        image: Callable[[], ClusterImage],
        listener: Callable[[], str],
        dead: Callable[[int, int], None],
    ) -> None:
        self._node = node
        self._image = image
        self._listener = listener
        self._dead = dead
        self._owner = node.owner("death watch")
        self._log = node.logger("quorum")
        self._probed: set[int] = set()
        self._fenced: dict[int, int] = {}
        """Those that were declared dead, with the broker epoch that they had."""
        self._spared_until_s: dict[int, float] = {}

    def suspect(self, broker_id: int) -> None:
        """There is a sign that a broker is no more."""
        if broker_id not in self._probed and self._node.clock.monotonic() >= self._spared_until_s.get(broker_id, 0.0):
            self._probed.add(broker_id)
            self._owner.spawn(self._probe(broker_id))

    def heard(self, broker_id: int, broker_epoch: int) -> None:
        """A broker lives: where it was declared dead under that epoch, that was wrong, and is not done again soon."""
        if self._fenced.get(broker_id) == broker_epoch:
            del self._fenced[broker_id]
            self._spared_until_s[broker_id] = self._node.clock.monotonic() + SPARED_S
            self._log.warning(
                "broker was fenced though it lives: its listener refused this controller", broker=broker_id
            )

    async def _probe(self, broker_id: int) -> None:
        try:
            broker = self._image().brokers.get(broker_id)
            endpoint = None if broker is None or broker.fenced else broker.endpoint(self._listener())
            if broker is None or endpoint is None:
                return  # an address that is meant for others may refuse this node, and the broker lives
            if not await self._is_gone(endpoint):
                return
        finally:
            self._probed.discard(broker_id)
        now = self._image().brokers.get(broker_id)
        if now is not None and now.epoch == broker.epoch and not now.fenced:
            self._fenced[broker_id] = broker.epoch
            self._dead(broker_id, broker.epoch)

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

    async def close(self) -> None:
        """Suspects no more."""
        await self._owner.closed()
