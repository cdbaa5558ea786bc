"""Three controllers of one metadata quorum, and writers that change settings through the leader: first with faults,
then without, until all agree.

Checked during the run: an epoch has one leader, which has everything confirmed before; the committed entry at an offset
is the same on every node, and no node reverts a commit. At the end: every writer gets confirmations again, and all
confirmed changes are on every node.
"""

from __future__ import annotations

import random
from asyncio import gather, sleep
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from headrace.broker.controller_node import ControllerNode
from headrace.broker.quorum import answers
from headrace.broker.quorum.codec import FETCH_BYTES_MAX
from headrace.broker.quorum.metadata_start import format_storage
from headrace.client.errors import ClientError
from headrace.config import BrokerConfig
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage, ResourceType
from headrace.raft.machine import Raft
from headrace.sim.after_snapshots import PowerAfterSnapshots
from headrace.sim.checkers.quorum import Quorum
from headrace.sim.client import SimClient
from headrace.sim.duels import Duels
from headrace.sim.emptied_voters import EmptiedVoters
from headrace.sim.faults import KINDS, Faults
from headrace.sim.leaders_swapped import LeadersSwapped
from headrace.sim.machine import Machine
from headrace.sim.moments import in_place
from headrace.sim.node import SimNode
from headrace.sim.run import Result, play
from headrace.sim.winners_cut_off import WinnersCutOff
from headrace.sim.world import World
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

NODES: Final = (1, 2, 3)
PORT: Final = 9093
DIRECTORY: Final = "/data/metadata"
CLUSTER: Final = "c2ltdWxhdGVkLXF1b3J1bQ"
SETTINGS: Final = ("log.retention.ms", "log.flush.interval.ms", "log.roll.ms")
"""One a writer. A value that was confirmed never goes back."""
FIRST_VALUE: Final = 10_000_000
SETTLE_S: Final = 30.0
"""How long the nodes may take to agree, and each writer to be confirmed once more, after the last fault."""
LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Options:
    """What a seed has drawn."""

    kinds: tuple[str, ...]
    mean_s: float
    faults_s: float
    writers: int
    small_pieces: bool
    snapshot_bytes: int
    """After how much of the log each node writes a snapshot; what lies before the last one but one then goes."""
    piece_bytes: int
    cuts_winners_off: bool
    has_duels: bool
    swaps_leaders: bool
    fetch_bytes: int
    """How much of the log one answer to a controller holds at most; 1 is one batch."""
    empties_voters: bool
    """Whether operators empty the metadata logs and disks of voters."""

    @classmethod
    def draw(cls, rng: random.Random) -> Options:
        """Any mixture."""
        drawn = cls(
            kinds=tuple(kind for kind in KINDS if rng.random() < 0.5),
            mean_s=rng.uniform(1.0, 8.0),
            faults_s=rng.uniform(10.0, 30.0),
            writers=rng.randint(1, len(SETTINGS)),
            small_pieces=rng.random() < 0.2,
            snapshot_bytes=rng.choice((300, 500, 2_000, 20_000_000)),
            piece_bytes=rng.choice((100, 400, 1_000_000)),
            cuts_winners_off=rng.random() < 0.3,
            has_duels=rng.random() < 0.25,
            swaps_leaders=rng.random() < 0.6,
            fetch_bytes=rng.choice((1, FETCH_BYTES_MAX)),
            empties_voters=rng.random() < 0.3,
        )
        # Swapped before it has replicated everything, a leader leaves entries of several epochs behind.
        return replace(drawn, fetch_bytes=1) if drawn.swaps_leaders else drawn


class Writer:
    """Raises one setting, step by step, through whichever controller takes it."""

    def __init__(self, world: World, number: int) -> None:
        self.setting = SETTINGS[number]
        self.confirmed = 0
        self.confirmations = 0
        self._next = FIRST_VALUE
        self._rng = world.rng(f"writer {number}")
        self._clients = [SimClient(world, f"writer-{number}-{node}", host_of(node), PORT) for node in NODES]
        self._at = 0

    async def run(self) -> None:
        """Until its task is cancelled."""
        while True:
            await self._write(self._next)
            self._next += 1
            await sleep(self._rng.uniform(0.0, 0.3))

    async def _write(self, value: int) -> None:
        resource = AlterConfigsResource(
            resource_type=ResourceType.BROKER,
            resource_name="",
            configs=[AlterableConfig(name=self.setting, value=str(value))],
        )
        while True:
            client = self._clients[self._at]
            try:
                response = await client.ask(
                    IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
                )
                error = response.responses[0].error_code
            except ClientError:
                error = ErrorCode.NETWORK_EXCEPTION
            if error == ErrorCode.NONE:
                self.confirmed = value
                self.confirmations += 1
                return
            self._at = (self._at + 1) % len(self._clients)
            await client.rest()


def host_of(node_id: int) -> str:
    return f"node{node_id}"


class QuorumRun:
    """A run of three controllers of one metadata quorum."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None, options: Options | None = None) -> None:
        self.world = World(seed, say)
        self.options = options or Options.draw(self.world.rng("options"))
        self.machines = {node: self._machine(node) for node in NODES}
        self.writers = [Writer(self.world, number) for number in range(self.options.writers)]
        self.faults = [
            Faults(
                self.world,
                self.machines[node],
                lambda node=node: [host_of(other) for other in NODES if other != node],  # type: ignore[misc]
                self.options.kinds,
                self.options.mean_s * len(NODES),
                f"faults {node}",
            )
            for node in NODES
        ]
        self.after_snapshots = PowerAfterSnapshots(self.world, self.machines.values())
        self.cut_off = WinnersCutOff(self.world, self.machines)
        self.duels = Duels(self.world, self.machines)
        self.swaps = LeadersSwapped(self.world, self.machines)
        self.emptied = EmptiedVoters(self.world, self.machines)
        self.quorum = Quorum(self.world, self._voting)
        self._followed: set[ControllerNode] = set()
        self._seen: dict[int, tuple[int, tuple[str, ...]]] = {}

    def _machine(self, node_id: int) -> Machine[ControllerNode]:
        settings = {
            "node.id": str(node_id),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{host_of(node_id)}:{PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{node}@{host_of(node)}:{PORT}" for node in NODES),
            "log.dirs": DIRECTORY,
            "metadata.log.max.record.bytes.between.snapshots": str(self.options.snapshot_bytes),
            "metadata.max.retention.bytes": "1",
            "controller.quorum.fetch.snapshot.max.bytes": str(self.options.piece_bytes),
        }

        def make(config: BrokerConfig, node: SimNode) -> ControllerNode:
            format_storage(node, config, CLUSTER, replaces=node_id in self.emptied.new_disks)
            return ControllerNode(config, node)

        return Machine(self.world, host_of(node_id), [DIRECTORY], settings, make)

    def run(self) -> Result:
        """Runs to the end, or to the first objection. Raises what broke the simulator itself."""
        world = self.world
        world.trace.note("options", self.options)
        with ExitStack() as heard:
            heard.enter_context(in_place(answers, "FETCH_BYTES_MAX", self.options.fetch_bytes))
            for each in (self.quorum, self.after_snapshots, self.cut_off, self.duels, self.swaps):
                heard.enter_context(each.listening())
            play(world, self._main(), self._look, LOOK_S, "the controllers")
        return Result(
            world.seed,
            world.trace.digest,
            world.loop.time(),
            sum(writer.confirmations for writer in self.writers),
            max(self._seen, default=0),
            world.faults,
            sum(machine.starts for machine in self.machines.values()),
            world.objection,
        )

    # --- the checker

    def _up(self) -> list[ControllerNode]:
        return [machine.broker for machine in self.machines.values() if machine.broker is not None]

    def _voting(self) -> dict[int, Raft | None]:
        running = {node: machine.broker for node, machine in self.machines.items()}
        return {node: None if each is None else each.quorum.raft for node, each in running.items()}

    def _look(self) -> None:
        for node in self._up():
            if node not in self._followed:
                self._follow(node)
        newest = self.quorum.newest_epoch
        for node in self._up():
            if node.quorum.decides and node.quorum.epoch == newest:
                # What its predecessors confirmed was committed, so it has it; what it confirmed itself, too.
                missing = self._missing(node, self._confirmed())
                self.world.demand(not missing, f"the leader of epoch {newest} lacks {missing}, which was confirmed")

    def _confirmed(self) -> dict[str, int]:
        return {writer.setting: writer.confirmed for writer in self.writers}

    def _follow(self, node: ControllerNode) -> None:
        self._followed.add(node)
        known = node.image.offset

        def changed(_: ClusterImage, new: ClusterImage, __: ImageDelta) -> None:
            nonlocal known
            self.world.demand(new.offset > known, f"node {node.node_id} goes back from {known} to {new.offset}")
            known = new.offset
            values = tuple(new.configs.cluster_overrides().get(name, "") for name in SETTINGS)
            first = self._seen.setdefault(new.offset, (new.epoch, values))
            self.world.demand(
                first == (new.epoch, values),
                f"node {node.node_id} has {(new.epoch, values)} at offset {new.offset}, another had {first}",
            )

        node.quorum.on_image(changed)

    # --- the phases

    async def _main(self) -> None:
        world = self.world
        world.network.small_pieces = self.options.small_pieces
        for machine in self.machines.values():
            machine.switch_on()
        tasks = [world.loop.create_task(writer.run()) for writer in self.writers]
        faults = [world.loop.create_task(each.run()) for each in self.faults]
        if self.options.empties_voters:
            faults.append(world.loop.create_task(self.emptied.run()))
        if "power" in self.options.kinds:
            self.after_snapshots.begin()
        if self.options.cuts_winners_off:
            self.cut_off.begin()
        if self.options.has_duels:
            self.duels.begin()
        if self.options.swaps_leaders:
            self.swaps.begin()
        await sleep(self.options.faults_s)
        self.after_snapshots.end()
        self.cut_off.end()
        self.duels.end()
        self.swaps.end()
        for task in faults:
            task.cancel()
        self.emptied.heal()
        for each in self.faults:
            each.heal()
        for machine in self.machines.values():
            # After the repair of its disk the node starts again.
            if not machine.disks_are_sound:
                machine.kill()
                await machine.ready()
                machine.disks_are_sound = True
        for machine in self.machines.values():
            await machine.ready()
        world.trace.note("calm")
        world.calm_since = world.loop.time()
        await self._settle()
        for task in tasks:
            task.cancel()
        await gather(*tasks, return_exceptions=True)
        for machine in self.machines.values():
            await machine.switch_off()

    async def _settle(self) -> None:
        """Every writer is confirmed again, and then all nodes come to know the same."""
        world = self.world
        before = [writer.confirmations for writer in self.writers]
        until = world.loop.time() + SETTLE_S
        while any(writer.confirmations < 2 + count for writer, count in zip(self.writers, before, strict=True)):
            await sleep(LOOK_S)
            if world.loop.time() > until:
                world.object(f"writers are not confirmed again within {SETTLE_S:.0f} s")
                return
        promised = self._confirmed()
        until = world.loop.time() + SETTLE_S
        while missing := [text for node in self._up() for text in self._missing(node, promised)]:
            await sleep(LOOK_S)
            if world.loop.time() > until:
                world.object(f"not there after {SETTLE_S:.0f} s: {missing}")
                return

    def _missing(self, node: ControllerNode, promised: dict[str, int]) -> list[str]:
        stored = node.image.configs.cluster_overrides()
        return [
            f"{name}={value} on node {node.node_id}"
            for name, value in promised.items()
            if int(stored.get(name, 0)) < value
        ]


def run_quorum_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of three controllers."""
    return QuorumRun(seed, say).run()
