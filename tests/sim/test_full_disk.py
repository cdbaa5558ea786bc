"""Controllers whose disks are full, under the simulator: they are as good as paused, and go on by themselves when there
is room again."""

from __future__ import annotations

from asyncio import gather, sleep
from collections.abc import Collection

import pytest

from headrace.sim.faults import PLENTY
from headrace.sim.quorum_run import NODES, Options, QuorumRun

CALM = Options(
    kinds=(),
    mean_s=1.0,
    faults_s=0.0,
    writers=2,
    small_pieces=False,
    snapshot_bytes=20_000_000,
    piece_bytes=1_000_000,
    cuts_winners_off=False,
    has_duels=False,
    swaps_leaders=False,
    fetch_bytes=1_000_000,
    empties_voters=False,
)
FULL_S = 10.0
"""Several times as long as an election takes."""


class FullDisks(QuorumRun):
    """Three controllers; the disks of some are full for a while. `victims` are "leader", "follower" or "all"."""

    def __init__(self, seed: int, victims: str) -> None:
        self.lines: list[str] = []
        super().__init__(seed, self.lines.append, CALM)
        self.victims = victims

    async def _main(self) -> None:
        world = self.world
        for machine in self.machines.values():
            machine.switch_on()
        tasks = [world.loop.create_task(writer.run()) for writer in self.writers]
        await sleep(3.0)
        chosen = self.chosen()
        for node in chosen:
            self.machines[node].disk.room_bytes = 0
        await sleep(FULL_S / 2)
        before = self._confirmed()
        await sleep(FULL_S / 2)
        went_on = [self._confirmed()[name] > value for name, value in before.items()]
        world.demand(any(went_on) is (self.victims != "all"), f"{self.victims} without room: {went_on}")
        for node in chosen:
            self.machines[node].disk.room_bytes = PLENTY
        await self._settle()
        for task in tasks:
            task.cancel()
        await gather(*tasks, return_exceptions=True)
        for machine in self.machines.values():
            await machine.switch_off()

    def chosen(self) -> Collection[int]:
        leader = next(node.node_id for node in self._up() if node.quorum.decides)
        if self.victims == "all":
            return NODES
        return [leader if self.victims == "leader" else next(node for node in NODES if node != leader)]

    def said(self, what: str) -> int:
        return sum(what in line for line in self.lines)


@pytest.mark.parametrize("victims", ["follower", "all", "leader"])
def test_it_goes_on_by_itself_when_there_is_room(victims: str) -> None:
    run = FullDisks(1, victims)
    result = run.run()
    assert result.objection is None
    assert result.starts == len(NODES), "nobody was started again"
    if victims == "follower":
        assert run.said("takes no part in the quorum until there is room") == 1
        assert run.said("metadata log can be written again") == 1
