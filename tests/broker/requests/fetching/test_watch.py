"""A watch completes when enough bytes came, or when anything else changed, and not before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from env.turns_by_hand import TurnsByHand

from headrace.broker.requests.fetching.watch import Watch


class Watched:
    """As much of a replica as is watched."""

    def __init__(self) -> None:
        self.fetch_waiters: dict[Any, None] = {}


class World:
    """Two replicas, and a watch on them."""

    def __init__(self) -> None:
        self.turns = TurnsByHand()
        self.first = cast(Any, Watched())
        self.second = cast(Any, Watched())
        reader = SimpleNamespace(waiters=lambda replica: replica.fetch_waiters)
        self.resting = cast(Any, SimpleNamespace(waiting={}))
        self.watch = Watch(self.turns.completions(), cast(Any, reader), self.resting)
        self.looked = 0
        self.watch.add(self.first)
        self.watch.add_session()

    def wait(self, bytes_wanted: int) -> None:
        self.watch.enough(bytes_wanted).deliver_to(self.look)

    def look(self, _: None) -> None:
        self.looked += 1

    def moved(self, *byte_counts: int) -> int:
        for each in byte_counts:
            self.watch.moved(self.first, each)
        self.turns.run()
        return self.looked


def test_it_completes_once_when_enough_bytes_came() -> None:
    world = World()
    world.wait(100)
    assert world.moved(60) == 0
    assert world.moved(40, 40) == 1
    assert world.moved(200) == 1, "nobody waits"


def test_any_other_change_completes_it() -> None:
    world = World()
    world.wait(100)
    assert world.moved(0) == 1
    assert world.watch.has_enough(100) and world.watch.has_moved


def test_bytes_count_from_the_last_reading_on() -> None:
    world = World()
    world.moved(90)
    assert world.watch.has_moved and not world.watch.has_enough(100)
    world.watch.restart()
    assert not world.watch.has_moved
    world.wait(100)
    assert world.moved(90) == 0
    assert world.moved(10) == 1


def test_a_partition_that_no_longer_rests_is_watched() -> None:
    world = World()
    world.wait(10)
    world.watch.woke(world.second, 10)
    world.turns.run()
    assert world.looked == 1 and world.second.fetch_waiters == {world.watch: None}


def test_a_closed_watch_is_registered_nowhere() -> None:
    world = World()
    world.wait(10)
    world.watch.close()
    assert not world.first.fetch_waiters and not world.resting.waiting
    assert world.moved(10) == 0
