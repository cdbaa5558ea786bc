"""Steered faults: a coordinator's verification of a transactional batch reaches the leader late, because packets of
that connection are lost and sent again while all other connections work.

By then the transaction may be over: the producer has given up, and the markers came by another connection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from headrace.client.async_connection import AsyncConnection
from headrace.sim.loop import PROCESS
from headrace.sim.moments import MomentFaults, after_each
from headrace.sim.network import SimStream
from headrace.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE: Final = 0.7
"""How often a question is met."""
LASTS_S: Final = (0.05, 1.5)
"""From one retransmission of TCP to three of them."""


def stream_from(connection: AsyncConnection, hosts: Collection[str]) -> SimStream | None:
    """Returns the stream of a connection on which a process of one of these hosts sends now; None of any other."""
    stream: Any = vars(connection)["_stream"]
    return stream if getattr(PROCESS.get(), "host", "") in hosts and isinstance(stream, SimStream) else None


class LateAnswers(MomentFaults):
    """Delays the answers of transaction coordinators to leaders."""

    def __init__(self, world: World, machines: Mapping[int, AnyMachine]) -> None:
        """`machines` are the brokers: clients that ask the same have connections of their own."""
        super().__init__(world, "late answers")
        self._hosts = {machine.host for machine in machines.values()}

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [after_each(AsyncConnection, "ask", self._asked)]

    def _asked(self, connection: AsyncConnection, request: object, *_: object, **__: object) -> None:
        if not self._is_on or not isinstance(request, AddPartitionsToTxnRequest):
            return
        stream = stream_from(connection, self._hosts)
        if stream is None or self._rng.random() >= CHANCE:
            return
        if self._world.strikes("late answer", stream.node.host):
            assert stream.peer is not None
            self._world.network.stall(stream.peer, self._rng.uniform(*LASTS_S))
