"""Steered faults: a coordinator sends markers, its connection breaks, and it sends them again successfully. Then the
first request arrives, when its producer has later transactions, which it must not end.

The packets of the first connection are lost, and its sender considers it closed before they are sent again. Only ends
that raise the epoch are tried (KIP-890): before `transaction.version` 2 a leader cannot distinguish a late marker.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.client.async_connection import AsyncConnection
from headrace.sim.late_answers import stream_from
from headrace.sim.loop import WORLD
from headrace.sim.moments import MomentFaults, before_each
from headrace.transactions.transaction import RAISES_EPOCH_FROM
from headrace.wire.messages.k27_write_txn_markers import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE: Final = 0.7
"""How often a request is met. One that is sent again is not: its producer goes on."""
BREAKS_S: Final = 0.02
"""When the connection breaks on which it was sent."""
LATE_S: Final = (0.3, 3.0)
"""How late it arrives: producers begin another transaction within that."""


class LateMarkers(MomentFaults):
    """Delays WriteTxnMarkers requests beyond their retries."""

    def __init__(self, world: World, brokers: Mapping[int, AnyMachine]) -> None:
        super().__init__(world, "late markers")
        self._hosts = {machine.host for machine in brokers.values()}
        self._met: set[tuple[int, int]] = set()
        """Producer ids and epochs of the ends whose markers were met."""

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [before_each(AsyncConnection, "ask", self._asked)]

    def _asked(self, connection: AsyncConnection, request: object, *_: object, **__: object) -> None:
        if not self._is_on or not isinstance(request, WriteTxnMarkersRequest):
            return
        ends = {(each.producer_id, each.producer_epoch) for each in request.markers}
        raises = all(each.transaction_version >= RAISES_EPOCH_FROM for each in request.markers)
        stream = stream_from(connection, self._hosts)
        if stream is None or not raises or ends & self._met or self._rng.random() > CHANCE:
            return
        if self._world.strikes("late marker", stream.node.host):
            self._met |= ends
            self._world.network.stall(stream, self._rng.uniform(*LATE_S))
            gone = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._world.loop.call_later(BREAKS_S, stream.fail, gone, context=WORLD.copy())
