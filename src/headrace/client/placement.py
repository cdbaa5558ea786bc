"""Which brokers get which replicas: a plan that moves as few as it can, as a pure function.

A partition's replicas are spread over all racks, evenly, as Kafka places those of a new topic. Replicas that may stay
do; brokers that are asked to share a topic evenly get as many replicas as the next one, and as many leaders. A broker
without a rack counts for a rack that has no name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass

from headrace.client.metadata import TopicPartition


class PlacementError(Exception):
    """The brokers given cannot hold the replicas; `str()` of it says why in one line."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A partition as it is now: its replicas, the preferred leader first, and those in sync."""

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


def place(
    current: Mapping[TopicPartition, Placed],
    brokers: Mapping[int, str | None],
    *,
    replication_factor: int | None = None,
    evenly: bool,
    load: Mapping[int, int] | None = None,
    closed: Container[int] = (),
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas on these brokers (id to rack) for every partition, the preferred leader first.

    `evenly`: each topic is spread over all of them; else only what must move does. `load` are replicas that a broker
    holds besides, and decides between brokers that are as good. Those `closed` keep what they have and get nothing new.
    Raises `PlacementError`.
    """
    plan = _Plan(brokers, Counter(load or {}), closed)
    placed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in dict.fromkeys(name for name, _ in sorted(current)):
        of_topic = {at: each for at, each in sorted(current.items()) if at[0] == topic}
        placed.update(plan.topic(of_topic, replication_factor, evenly))
    return placed


class _Plan:
    """The brokers, and how much each has by now."""

    def __init__(self, brokers: Mapping[int, str | None], load: Counter[int], closed: Container[int]) -> None:
        self._racks = dict(brokers)
        self._open = [broker for broker in brokers if broker not in closed]
        self._rack_sizes = Counter(brokers.values())
        self._load = load

    def topic(
        self, current: Mapping[TopicPartition, Placed], factor: int | None, evenly: bool
    ) -> dict[TopicPartition, tuple[int, ...]]:
        factors = {at: factor or len(each.replicas) for at, each in current.items()}
        most = -(-sum(factors.values()) // len(self._racks)) if evenly else sum(factors.values())
        held: Counter[int] = Counter()
        kept = {at: self._keep(each, factors[at], most, held, evenly) for at, each in current.items()}
        placed = {at: self._fill(current[at], kept[at], factors[at], held) for at in current}
        if evenly:
            while self._even_out(placed, held):
                pass
            placed = self._share_leaders(placed)
        self._load.update(held)
        return placed

    def _keep(self, each: Placed, factor: int, most: int, held: Counter[int], evenly: bool) -> set[int]:
        """The replicas that stay: those in sync first, and such as spread over the racks where some must go."""
        kept: set[int] = set()
        waiting = [r for r in each.replicas if r in self._racks and held[r] < most]
        while waiting and len(kept) < factor:
            racks = Counter(self._racks[r] for r in kept)
            best = min(waiting, key=lambda r: (r not in each.in_sync, racks[self._racks[r]]))
            waiting.remove(best)
            if not evenly or self._has_room(self._racks[best], racks, factor):
                kept.add(best)
        held.update(kept)
        return kept

    def _has_room(self, rack: str | None, racks: Counter[str | None], factor: int) -> bool:
        """Whether one more replica in this rack leaves the racks as even as they can be."""
        # Every rack that is large enough has so many, and the remainder goes to racks one by one.
        level = max(n for n in range(factor + 1) if self._at_most(n) <= factor)
        above = sum(1 for count in racks.values() if count > level)
        return racks[rack] < level or (racks[rack] == level and above < factor - self._at_most(level))

    def _at_most(self, count: int) -> int:
        """How many replicas the racks hold together, with so many in each or as many as it has brokers."""
        return sum(min(count, size) for size in self._rack_sizes.values())

    def _fill(self, each: Placed, kept: set[int], factor: int, held: Counter[int]) -> tuple[int, ...]:
        """A new replica takes the place of one that goes, so that as many lead as before; more come behind."""
        chosen = set(kept)
        new: list[int] = []
        while len(chosen) < factor:
            racks = Counter(self._racks[r] for r in chosen)
            rest = [b for b in self._open if b not in chosen]
            if not rest:
                there = "1 broker" if len(chosen) == 1 else f"{len(chosen)} brokers"
                raise PlacementError(f"{factor} replicas need {factor} brokers, and only {there} can have one")
            best = min(rest, key=lambda b: (racks[self._racks[b]], held[b], held[b] + self._load[b], b))
            chosen.add(best)
            held[best] += 1
            new.append(best)
        places = [r if r in kept else new.pop(0) if new else None for r in each.replicas]
        return (*(r for r in places if r is not None), *new)

    def _even_out(self, placed: dict[TopicPartition, tuple[int, ...]], held: Counter[int]) -> bool:
        """Gives a replica of a broker that has too many to one that has two fewer; False where none may go there."""
        by_load = sorted(self._open, key=lambda b: (held[b], b))
        for heavy in sorted(self._racks, key=lambda b: (-held[b], b)):
            for light in by_load:
                if held[heavy] - held[light] < 2:
                    break
                for at, replicas in placed.items():
                    if heavy in replicas and light not in replicas and self._may_swap(replicas, heavy, light):
                        placed[at] = tuple(light if r == heavy else r for r in replicas)
                        held[heavy] -= 1
                        held[light] += 1
                        return True
        return False

    def _may_swap(self, replicas: tuple[int, ...], gone: int, new: int) -> bool:
        """Whether the racks stay as even if another broker replaces one."""
        racks = Counter(self._racks[r] for r in replicas if r != gone)
        return self._racks[gone] == self._racks[new] or self._has_room(self._racks[new], racks, len(replicas))

    def _share_leaders(self, placed: dict[TopicPartition, tuple[int, ...]]) -> dict[TopicPartition, tuple[int, ...]]:
        """The same replicas, so ordered that every broker is about as often the first of them as the next one."""
        most = -(-len(placed) // len(self._racks))
        leading: Counter[int] = Counter()
        shared: dict[TopicPartition, tuple[int, ...]] = {}
        waiting: list[TopicPartition] = []
        for at, replicas in placed.items():
            if leading[replicas[0]] < most:
                leading[replicas[0]] += 1
                shared[at] = replicas
            else:
                waiting.append(at)
        for at in waiting:
            replicas = placed[at]
            first = min(replicas, key=lambda r: leading[r])
            leading[first] += 1
            shared[at] = (first, *(r for r in replicas if r != first))
        return dict(sorted(shared.items()))
