"""Which replica a consumer is sent to: Kafka's RackAwareReplicaSelector, and what it is asked about."""

from __future__ import annotations

import pytest

from headrace.metadata.image import Partition
from headrace.replicas.nearest import nearest_replica
from headrace.replicas.partition import PartitionState

REPLICAS = (1, 2, 3, 4)
RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def led(isr: tuple[int, ...] = REPLICAS) -> PartitionState:
    """Node 1 leads 10 records; 2 has 8, 3 has 9, and 4 has all but the first five."""
    state = PartitionState(1)
    state.brokers_are(dict.fromkeys(REPLICAS, 1))
    state.become_leader(Partition(0, REPLICAS, (bytes(16),) * 4, isr, 1, 0, 0), 10, 0, 10)
    for node, end, start in ((2, 8, 0), (3, 9, 0), (4, 10, 5)):
        state.fetched(node, 1, end, 0, 1, log_start=start)
    return state


@pytest.mark.parametrize(
    ("rack", "offset", "named"),
    [
        ("a", 3, -1),  # the leader stands there
        ("nowhere", 3, -1),
        ("b", 3, 3),  # the one that has more
        ("b", 9, 3),
        ("b", 10, -1),  # nobody there has it
        ("c", 5, 4),
        ("c", 4, -1),  # it was deleted there
        ("b", 11, -1),
        ("b", -1, -1),
    ],
)
def test_the_one_in_the_rack_that_has_the_offset_and_most_of_all(rack: str, offset: int, named: int) -> None:
    assert nearest_replica(led(), offset, 0, rack, RACKS.get) == named


def test_whoever_is_not_in_sync_or_does_not_serve_is_not_named() -> None:
    assert nearest_replica(led((1, 2, 4)), 3, 0, "b", RACKS.get) == 2
    assert nearest_replica(led((1,)), 3, 0, "b", RACKS.get) == -1
    assert nearest_replica(led(), 3, 0, "b", {**RACKS, 3: None}.get) == 2


def test_of_two_alike_the_one_that_was_at_the_end_last_is_named() -> None:
    state = led()
    for at_ms, node in ((1000, 3), (2000, 2)):
        state.fetched(node, 1, 10, at_ms, 1, log_start=0)
    assert nearest_replica(state, 3, 0, "b", RACKS.get) == 2
    state.fetched(3, 1, 10, 2000, 1, log_start=0)
    assert nearest_replica(state, 3, 0, "b", RACKS.get) == 3
