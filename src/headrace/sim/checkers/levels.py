"""Checks that a raise of kraft.version is final: once it is confirmed to the client, or committed on any node, every
leader has it; and at the end all nodes have the same voters and level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.raft.machine import Raft
from headrace.sim.moments import after_each

if TYPE_CHECKING:
    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.sim.workloads.raising import VersionRaiser
    from headrace.sim.world import World


class Levels:
    """Checks that a raised kraft.version stays raised."""

    def __init__(self, world: World, running: Callable[[], Mapping[int, QuorumDriver]]) -> None:
        """`running` has what each node that runs knows of the quorum, voters and observers."""
        self._world = world
        self._running = running
        self._raisers: list[VersionRaiser] = []
        self._is_committed = False

    def hear(self, raiser: VersionRaiser) -> None:
        """Somebody asks for it from now on."""
        self._raisers.append(raiser)

    @property
    def is_final(self) -> bool:
        """Whether it must stay at 1."""
        return self._is_committed or any(each.confirmed for each in self._raisers)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hears of every election inside the block."""
        with after_each(Raft, "become_leader", self._elected):
            yield

    def look(self) -> None:
        """At any time."""
        for driver in self._running().values():
            sets, committed = driver.raft.sets, driver.raft.high_watermark
            self._is_committed |= committed > 0 and sets.at(committed).kraft_version > 0

    def _elected(self, raft: Raft, *_: object) -> None:
        self.look()
        text = f"node {raft.me.id} leads epoch {raft.epoch} at kraft.version 0, which was raised before"
        self._world.demand(raft.kraft_version > 0 or not self.is_final, text)

    def differences(self) -> list[str]:
        """What nodes that run do not agree on, at rest; and what they should have and do not."""
        found: dict[int, tuple[int, tuple[str, ...]]] = {}
        for node, driver in sorted(self._running().items()):
            newest = driver.sets.newest
            found[node] = newest.kraft_version, tuple(f"{key.id}/{key.directory_id.hex()}" for key in newest.keys)
        late = [f"the nodes' voters differ: {found}"] if len(set(found.values())) > 1 else []
        if self.is_final:
            late += [f"node {node} is at kraft.version {level}" for node, (level, _) in found.items() if level != 1]
        return late

    def level(self) -> int:
        """Of all nodes, where they do not differ."""
        return max((driver.kraft_version for driver in self._running().values()), default=0)
