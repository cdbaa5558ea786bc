"""Which replica a consumer reads from, where the one in its own rack is preferred (KIP-392). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.replicas.partition import UNKNOWN

if TYPE_CHECKING:
    from headrace.replicas.partition import PartitionState

RackOf = Callable[[int], str | None]
"""The rack of a broker that serves clients; None where it has none, or does not serve."""


def nearest_replica(state: PartitionState, offset: int, log_start: int, rack: str, rack_of: RackOf) -> int:
    """The follower that a consumer in `rack` is to read from at `offset`; -1 where it is to read from this leader.

    That is the case if the leader is in that rack too, or no follower there is in sync and has the offset. `log_start`
    is where the leader's log begins. Of several the one that has the most is named; of these the one that was at the
    leader's end last.
    """
    if not log_start <= offset <= state.log_end or rack_of(state.node_id) == rack:
        return UNKNOWN
    near = [
        (follower.log_end, follower.last_caught_up_ms, node_id)
        for node_id, follower in state.followers.items()
        if node_id in state.isr and follower.log_start <= offset <= follower.log_end and rack_of(node_id) == rack
    ]
    return max(near)[2] if near else UNKNOWN
