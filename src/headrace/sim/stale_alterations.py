"""Steered faults: a follower leaves the ISR and rejoins. Its leader's request for that is sent again after a broken
connection, and answered. Then the follower leaves once more, and the first request reaches the controller.

The follower lacks records committed meanwhile: the earlier ISR must not come back.
"""

from __future__ import annotations

import errno
from asyncio import sleep
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from headrace.client.async_connection import AsyncConnection
from headrace.replicas.partition import PartitionState
from headrace.sim.loop import PROCESS, WORLD
from headrace.sim.moments import MomentFaults, after_each, before_each
from headrace.sim.network import SimStream
from headrace.wire.messages.k56_alter_partition import AlterPartitionRequest

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

BREAKS_S: Final = 0.2
"""When the connection breaks on which the leader has asked."""
LATE_S: Final = (2.5, 3.5)
"""How late that comes: the follower is out by then."""


class StaleAlterations(MomentFaults):
    """Delays AlterPartition requests until they are stale."""

    def __init__(self, world: World, brokers: Mapping[int, AnyMachine]) -> None:
        """The controllers are elsewhere: `brokers` reach them all the time. That followers fall out at first is the
        business of others."""
        super().__init__(world, "stale alterations")
        self._brokers = brokers
        self.lasts = False
        """Whether an alteration is on its way."""
        self._joining: dict[str, list[str]] = {}
        """By the host of a leader: whom it has just decided to ask for."""

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [after_each(PartitionState, "_ask_for", self._decided), before_each(AsyncConnection, "ask", self._asked)]

    def _decided(self, state: PartitionState, isr: tuple[int, ...]) -> None:
        if joining := [self._brokers[each].host for each in isr if each not in state.isr]:
            self._joining[self._brokers[state.node_id].host] = joining

    def _asked(self, connection: AsyncConnection, request: object, *_: object, **__: object) -> None:
        if not isinstance(request, AlterPartitionRequest):
            return
        host = getattr(PROCESS.get(), "host", "")
        stream: Any = vars(connection)["_stream"]
        joining = self._joining.pop(host, [])
        is_met = self._is_on and not self.lasts and joining and isinstance(stream, SimStream)
        if is_met and self._world.strikes("stale alteration", host):
            self.lasts = True
            late_s = self._rng.uniform(*LATE_S)
            self._world.network.stall(stream, late_s)
            gone = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._world.loop.call_later(BREAKS_S, stream.fail, gone, context=WORLD.copy())
            self._owner.spawn(self._fall_behind(joining, host, late_s))

    async def _fall_behind(self, joining: list[str], leader: str, late_s: float) -> None:
        await sleep(2 * BREAKS_S)
        for host in joining:
            self._world.network.cut_one_way(host, leader)
        await sleep(late_s)
        for host in joining:
            self._world.network.reconnect(host, leader)
        self.lasts = False
