"""Placement: what holds of it whatever chance says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.placement import Placer
from headrace.metadata.image import Broker, ClusterImage

RACKS = st.sampled_from([None, "a", "b", "c"])
STATES = st.sampled_from(["up", "up", "up", "fenced", "stopping", "closed"])
DIRECTORY = bytes([7]) * 16


def broker(broker_id: int, rack: str | None, state: str) -> Broker:
    return Broker(
        id=broker_id,
        epoch=broker_id,
        incarnation_id=bytes(16),
        endpoints=(),
        features=(),
        rack=rack,
        fenced=state == "fenced",
        in_controlled_shutdown=state == "stopping",
        directories=(DIRECTORY,),
        cordoned_directories=(DIRECTORY,) if state == "closed" else (),
    )


@given(st.lists(st.tuples(RACKS, STATES), min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 20), st.data())
def test_replicas_are_spread(
    nodes: list[tuple[str | None, str]], factor: int, first_index: int, data: st.DataObject
) -> None:
    states = {number: state for number, (_, state) in enumerate(nodes, 1)}
    racks = {number: rack for number, (rack, _) in enumerate(nodes, 1)}
    image = ClusterImage(brokers={number: broker(number, racks[number], states[number]) for number in states})
    usable = [number for number in states if states[number] in ("up", "fenced")]
    up = [number for number in usable if states[number] == "up"]
    chance = data.draw(st.randoms(use_true_random=False))
    placed = Placer(image, chance.randrange).place(first_index, 12, factor)
    if not up or factor > len(usable):
        assert isinstance(placed, str)
        return
    assert not isinstance(placed, str)
    every = list(placed)
    assert len(every) == 12
    for replicas in every:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(usable)
        assert replicas[0] in up
        # In as many racks as there are.
        assert len({racks[r] for r in replicas}) == min(factor, len({racks[r] for r in usable}))
        # A fenced one only where its rack has no other that is up.
        for fenced in set(replicas) - set(up):
            assert all(r in replicas for r in up if racks[r] == racks[fenced])


@given(st.integers(1, 6), st.data())
def test_leaders_are_even_among_brokers_of_one_rack(count: int, data: st.DataObject) -> None:
    image = ClusterImage(brokers={number: broker(number, None, "up") for number in range(1, count + 1)})
    chance = data.draw(st.randoms(use_true_random=False))
    placed = Placer(image, chance.randrange).place(0, 3 * count, min(3, count))
    assert not isinstance(placed, str)
    leaders = [replicas[0] for replicas in placed]
    assert all(leaders.count(number) == 3 for number in range(1, count + 1))
