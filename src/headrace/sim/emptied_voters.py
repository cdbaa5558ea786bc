"""Steered faults: a voter returns with an empty metadata log or a new disk. Committed records survive, because it does
not vote before it has fetched all of them.

One controller at a time, at any time: with quorum-state, which holds its votes, without it, or on a new disk. Usually
with the worst timing: of the other two one lags, and the one that has everything is then unreachable.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headrace.broker.quorum.log.metadata_log import QUORUM_STATE_FILE
from headrace.broker.storage.storage_format import METADATA_DIRECTORY
from headrace.metadata.damage import INCOMPLETE_FILE, RECOVERY_POINT_FILE

if TYPE_CHECKING:
    from headrace.broker.controller_node import ControllerNode
    from headrace.sim.machine import Machine
    from headrace.sim.world import World

MEAN_S: Final = 3.0
LEADER_GOES: Final = 0.7
"""How often one of the others lags before, and the other one is not reached afterwards."""
LAGS_S: Final = (0.2, 1.5)
AWAY_S: Final = (2.0, 6.0)
"""Longer than an election."""
LOOK_S: Final = 0.05
LOG, LOG_AND_POINT, FOLDER, DISK = "log", "log and recovery point", "folder", "disk"
EXTENTS: Final = (LOG, LOG_AND_POINT, FOLDER, DISK)


class EmptiedVoters:
    """Brings voters back with an emptied metadata log."""

    def __init__(self, world: World, machines: Mapping[int, Machine[ControllerNode]]) -> None:
        self._world = world
        self._machines = machines
        self._hosts = [machine.host for machine in machines.values()]
        self._rng = world.rng("emptied voters")
        self.new_disks: set[int] = set()
        """The nodes whose operators have put in a new disk, and say so when they format it."""

    async def run(self) -> None:
        """One after the other; its task is cancelled when it is enough."""
        while True:
            await sleep(self._rng.expovariate(1 / MEAN_S))
            leader = next((node for node, each in self._running().items() if each.quorum.decides), None)
            if leader is None or not self._is_whole():
                continue
            emptied, lagging = self._rng.sample([node for node in self._machines if node != leader], 2)
            extent = self._rng.choice(EXTENTS)
            if self._world.strikes("emptied voter", self._machines[emptied].host, extent):
                await self._empty(extent, emptied, lagging, leader)

    def heal(self) -> None:
        """All machines start again. The network is healed by `Faults.heal`."""
        for machine in self._machines.values():
            machine.bring_back()

    async def _empty(self, extent: str, emptied: int, lagging: int, leader: int) -> None:
        is_worst = self._rng.random() < LEADER_GOES
        if is_worst:
            self._cut_off(lagging)
            await sleep(self._rng.uniform(*LAGS_S))
        machine = self._machines[emptied]
        machine.take_away()
        self._remove(extent, emptied)
        if is_worst:
            self._cut_off(leader)
            self._rejoin(lagging, leader)
        machine.bring_back()
        if is_worst:
            await sleep(self._rng.uniform(*AWAY_S))
            self._rejoin(lagging)
            self._rejoin(leader)

    def _remove(self, extent: str, node: int) -> None:
        machine = self._machines[node]
        (root,) = machine.directories
        folder = f"{root}/{METADATA_DIRECTORY}"
        with machine.disk.looked_at():
            if extent == DISK:
                machine.disk.empty()
                self.new_disks.add(node)
                return
            if extent == LOG_AND_POINT:
                machine.disk.remove_for_good(f"{root}/{RECOVERY_POINT_FILE}")
            for name in machine.disk.list(folder) if machine.disk.exists(folder) else ():
                if extent == FOLDER or name != QUORUM_STATE_FILE:
                    machine.disk.remove_for_good(f"{folder}/{name}")

    def _cut_off(self, node: int) -> None:
        self._world.network.cut_off(self._machines[node].host, self._hosts)

    def _rejoin(self, node: int, without: int | None = None) -> None:
        hosts = [machine.host for other, machine in self._machines.items() if other != without]
        self._world.network.rejoin(self._machines[node].host, hosts)

    def _running(self) -> dict[int, ControllerNode]:
        return {node: each.broker for node, each in self._machines.items() if each.broker is not None}

    def _is_whole(self) -> bool:
        """Whether no node lacks anything that it had, as an operator sees it by the notes on their disks."""
        for machine in self._machines.values():
            (root,) = machine.directories
            if machine.broker is None or machine.disk.exists(f"{root}/{INCOMPLETE_FILE}"):
                return False
        return not any(each.quorum.raft.is_incomplete for each in self._running().values())


__all__ = ["EmptiedVoters"]
