"""Sends consumers that say in which rack they stand to a replica there, where the settings want it (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.partitions.replica import Replica
from headrace.replicas.nearest import nearest_replica

if TYPE_CHECKING:
    from headrace.broker.requests.fetching import Nearest
    from headrace.broker.requests.services import Services


def nearest_of(broker: Services, rack: str, listener: str) -> Nearest | None:
    """Who names the replica for a consumer that stands in `rack` ("": it does not say) and came over a listener; None
    where consumers read from leaders."""
    if not rack or not broker.config.replica_selector_class:
        return None

    def rack_of(node_id: int) -> str | None:
        known = broker.image.brokers.get(node_id)
        serves = known is not None and not known.fenced and known.endpoint(listener) is not None
        return known.rack if known is not None and serves else None

    def nearest(replica: Replica, offset: int) -> int:
        return nearest_replica(replica.state, offset, replica.log.log_start_offset, rack, rack_of)

    return nearest
