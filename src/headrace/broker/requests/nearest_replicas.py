"""Sends consumers that name their rack to a replica there, if `replica.selector.class` is set (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.replicas.nearest import nearest_replica

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.partitions.replica import Replica
    from headrace.broker.requests.services import Services


Nearest: TypeAlias = "Callable[[Replica, int], int]"
"""A function of a replica led here and an offset: the id of the follower nearer to the client, or -1 if there is
none."""


def nearest_of(broker: Services, rack: str, listener: str) -> Nearest | None:
    """Returns the function that finds nearer replicas for a consumer in `rack` ("" if it has none) on a listener. None
    if consumers read from leaders."""
    if not rack or not broker.config.replica_selector_class:
        return None

    def rack_of(node_id: int) -> str | None:
        known = broker.image.brokers.get(node_id)
        serves = known is not None and not known.fenced and known.endpoint(listener) is not None
        return known.rack if known is not None and serves else None

    def nearest(replica: Replica, offset: int) -> int:
        return nearest_replica(replica.state, offset, replica.log.log_start_offset, rack, rack_of)

    return nearest
