"""The choice of the replica that a consumer reads from, if one in its own rack is preferred (KIP-392). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.replicas.partition import UNKNOWN

if TYPE_CHECKING:
    from headrace.replicas.partition import PartitionState

RackOf = Callable[[int], str | None]
"""The rack of an active broker; None if it has none or is not active."""


def nearest_replica(state: PartitionState, offset: int, log_start: int, rack: str, rack_of: RackOf) -> int:
    """Returns the follower that a consumer in `rack` should read from at `offset`; -1 if it should read from this
    leader.

    The result is -1 if the leader is in that rack too, or if no in-sync follower in that rack has the offset.
    `log_start` is the leader's log start offset. Among several followers the one with the highest log end is chosen,
    and among equals the one that caught up last.
    """
    if not log_start <= offset <= state.log_end or rack_of(state.node_id) == rack:
        return UNKNOWN
    near = [
        (follower.log_end, follower.last_caught_up_ms, node_id)
        for node_id, follower in state.followers.items()
        if node_id in state.isr and follower.log_start <= offset <= follower.log_end and rack_of(node_id) == rack
    ]
    return max(near)[2] if near else UNKNOWN
