"""Checks the memory bounds: a broker's own budgets, during the run and after all clients have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.groups.shard_state import ASSIGNMENT_BYTES_MAX, MEMBER_BYTES_MAX

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.sim.world import World

FRAME_BYTES: Final = 1 << 20
"""What one holder may go beyond the budget of requests, in these runs: their largest frame."""


class Bounds:
    """Checks a broker's memory bounds."""

    def __init__(self, world: World) -> None:
        self._world = world

    def look(self, broker: Broker) -> None:
        """At any time: budgets are kept to, but for the one frame that may go beyond."""
        server = broker.server
        used, limit = server.requests_budget.used, server.requests_budget.limit
        self._world.demand(used <= limit + FRAME_BYTES, f"requests hold {used} bytes, {limit} are allowed")
        self._world.demand(used >= 0, f"requests hold {used} bytes")
        used = server.responses_budget.used
        self._world.demand(used >= 0, f"responses hold {used} bytes")
        for what, used, limit in (
            ("members", broker.groups.member_bytes_counted(), MEMBER_BYTES_MAX),
            ("assignments", broker.groups.assignment_bytes(), ASSIGNMENT_BYTES_MAX),
        ):
            self._world.demand(0 <= used <= limit, f"{what} of groups hold {used} bytes, {limit} are allowed")

    def look_at_rest(self, broker: Broker) -> None:
        """When no client is connected: everything was given back."""
        gauges = broker.metrics.statistics().gauges
        for name in ("connections.open", "requests.bytes_held", "responses.bytes_held", "fetch.waiting"):
            self._world.demand(gauges[name] == 0, f"{name} is {gauges[name]:.0f} when no client is connected")
