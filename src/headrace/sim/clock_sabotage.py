"""Planted faults in the nodes' use of time: harmless while all clocks agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.controller.sessions import BrokerSessions
from headrace.sim.loop import PROCESS


def _by_the_brokers_clock(real: Callable[..., bool]) -> Callable[..., bool]:
    """A heartbeat came when its sender's clock says so."""

    def heard(self: BrokerSessions, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> bool:
        is_known = real(self, broker_id, broker_epoch, metadata_offset, now_ms)
        here: Any = PROCESS.get()
        for node in here.world.nodes() if is_known else ():
            if node.host == f"node{broker_id}":
                vars(self)["_sessions"][broker_id].contact_ms = int(node.clock.monotonic() * 1000)
        return is_known

    return heard


def clock_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "measures-sessions-by-the-brokers-clocks": [
            (BrokerSessions, "heard", _by_the_brokers_clock(BrokerSessions.heard))
        ]
    }
