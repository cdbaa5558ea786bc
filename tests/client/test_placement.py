"""Plans of replicas: spread over brokers and racks, and with as few moves as that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.metadata import TopicPartition
from headrace.client.placement import Placed, PlacementError, place


def placed(*partitions: Sequence[int]) -> dict[TopicPartition, Placed]:
    return {("t", index): Placed(tuple(each), tuple(each)) for index, each in enumerate(partitions)}


def racks_of(brokers: Mapping[int, str | None], replicas: Sequence[int]) -> Counter[str | None]:
    return Counter(brokers[each] for each in replicas)


NO_RACKS: dict[int, str | None] = {1: None, 2: None, 3: None, 4: None}


def test_what_is_right_stays() -> None:
    current = placed([1, 2], [2, 3], [3, 4], [4, 1])
    assert place(current, NO_RACKS, evenly=True) == {at: each.replicas for at, each in current.items()}


def test_a_new_broker_gets_its_share_and_no_more() -> None:
    current = placed([1, 2], [2, 1], [1, 2], [2, 1])
    then = place(current, {1: None, 2: None, 3: None, 4: None}, evenly=True)
    assert Counter(each for part in then.values() for each in part) == {1: 2, 2: 2, 3: 2, 4: 2}
    assert Counter(part[0] for part in then.values()) == {1: 1, 2: 1, 3: 1, 4: 1}


def test_the_last_partition_is_not_left_with_what_is_full() -> None:
    """Two that may stay fill brokers 1 and 2, and the third would have to go to one of these again."""
    then = place(placed([1, 2], [1, 2], [3, 2]), {1: None, 2: None, 3: None}, evenly=True)
    assert Counter(each for part in then.values() for each in part) == {1: 2, 2: 2, 3: 2}


def test_only_who_must_move_does() -> None:
    """A drained broker's replicas go, each to a place in its stead; all others stay where they are."""
    then = place(placed([1, 2], [2, 3], [3, 1]), {2: None, 3: None, 4: None}, evenly=False)
    assert then == {("t", 0): (4, 2), ("t", 1): (2, 3), ("t", 2): (3, 4)}


def test_of_brokers_that_are_as_good_the_emptiest() -> None:
    assert place(placed([1, 2]), {2: None, 3: None, 4: None}, evenly=False, load={3: 2, 4: 1}) == {("t", 0): (4, 2)}


def test_the_rack_with_fewest_gets_the_new_one() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "c"}
    assert place(placed([1, 3]), racks, replication_factor=3, evenly=False) == {("t", 0): (1, 3, 4)}


def test_who_is_not_in_sync_is_dropped_first() -> None:
    current = {("t", 0): Placed((1, 2, 3), (1, 3))}
    assert place(current, NO_RACKS, replication_factor=2, evenly=False) == {("t", 0): (1, 3)}
    same_rack = {1: "a", 2: "a", 3: "b"}
    assert place(placed([1, 2, 3]), same_rack, replication_factor=2, evenly=False) == {("t", 0): (1, 3)}


def test_a_closed_broker_keeps_what_it_has() -> None:
    current = placed([1, 2], [2, 3])
    then = place(current, {1: None, 2: None, 3: None, 4: None}, replication_factor=3, evenly=False, closed={4})
    assert then == {("t", 0): (1, 2, 3), ("t", 1): (2, 3, 1)}
    with pytest.raises(PlacementError, match="4 replicas need 4 brokers, and only 3 brokers can have one"):
        place(current, NO_RACKS, replication_factor=4, evenly=False, closed={4})


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=7),
    st.integers(1, 4),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_every_plan_is_spread(racks: list[str | None], factor: int, count: int, chance: object) -> None:
    """As many racks as there are, the same number in each as far as they are large enough, none twice."""
    brokers = dict(enumerate(racks, 1))
    factor = min(factor, len(brokers))
    everywhere = [*brokers, 101, 102, 103, 104]
    current = placed(*(chance.sample(everywhere, factor) for _ in range(count)))  # type: ignore[attr-defined]
    sizes = Counter(racks)
    then = place(current, brokers, evenly=True)
    if len(sizes) == 1:
        counts = Counter(each for replicas in then.values() for each in replicas)
        assert max(counts.values()) - min(counts[broker] for broker in brokers) <= 1
    for replicas in then.values():
        assert len(set(replicas)) == len(replicas) == factor and set(replicas) <= brokers.keys()
        held = racks_of(brokers, replicas)
        most = max(held.values())
        assert all(held[rack] >= min(most - 1, size) for rack, size in sizes.items())
    without = {at: (brokers.get(each.replicas[0]), each) for at, each in current.items()}
    for at, replicas in place(current, brokers, evenly=False).items():
        stayed = [each for each in without[at][1].replicas if each in brokers]
        assert set(stayed) <= set(replicas) and len(replicas) == factor
