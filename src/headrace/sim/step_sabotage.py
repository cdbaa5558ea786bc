"""Planted faults in work beside the event loop: harmless as long as nothing else runs between two steps of a worker, or
before its result is delivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.partitions.flusher import Flusher
from headrace.env.workers import Raised
from headrace.log.flushing import Flushing

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.log.log import Log

Real = Callable[..., Any]


def _call_all_synced(real: Real) -> Real:
    """What has come while the rest was synced is safe with it."""

    def flush(self: Flushing, up_to: int | None = None) -> int:
        before = self.flushed_offset
        real(self, up_to)
        if self.flushed_offset > before:
            self.flushed_offset = self.state.bounds.end_offset
        return self.flushed_offset

    return flush


def _take_all_for_synced(real: Real) -> Real:
    """What has come until a worker's outcome is delivered is as safe as what the worker has synced."""

    def synced(self: Flusher, replica: Replica, log: Log, reached: int | Raised) -> None:
        real(self, replica, log, reached if isinstance(reached, Raised) else log.end_offset)

    return synced


def step_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "calls-synced-what-comes-meanwhile": [(Flushing, "flush", _call_all_synced(Flushing.flush))],
        "calls-synced-what-comes-until-it-hears": [
            (Flusher, "_synced", _take_all_for_synced(vars(Flusher)["_synced"]))
        ],
    }
