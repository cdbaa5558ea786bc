"""Coordinators whose logs are temporarily in a bad state while they are created or loaded.

One broker, one group and one transactional id. At a step of the creation or the load of the coordinators' logs (counted
in disk operations) a temporary fault begins: the disk is full, no file descriptor is free, or the log cannot be read.
Checked: coordination is back within BACK_S after the fault, with everything that was confirmed before.

In `HeldLogRun`, three brokers: a worker holds the followers' logs, as in a long truncation, while their leader dies.
"""

from __future__ import annotations

import errno
from asyncio import sleep
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.broker import Broker
from headrace.broker.coordinators import coordinator
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.client.errors import ClientError
from headrace.sim.client import OF_GROUPS, OF_TRANSACTIONS
from headrace.sim.cluster_client import ClusterClient
from headrace.sim.cluster_options import Options
from headrace.sim.cluster_run import ClusterRun
from headrace.sim.faults import PLENTY
from headrace.sim.machine import Machine
from headrace.sim.moments import in_place
from headrace.sim.run import DIRECTORIES, HOST, LOOK_S, SETTINGS, Result, play
from headrace.sim.workloads.topics import make_topic
from headrace.sim.world import World
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.sharding import partition_of

if TYPE_CHECKING:
    import random

    from headrace.broker.partitions.replica import Replica

LASTS_S: Final = 3.0
"""How long the bad state lasts."""
BACK_S: Final = 2.0
"""How long after it coordination may take to be back."""
HELD_S: Final = 6.0
"""How long the logs of followers are held: longer than it takes to elect one of them."""
ASKED_EVERY_S: Final = 0.02
STEPS_MAX: Final = 100
"""Beyond the operations of any load of these runs."""
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
LOGS: Final = tuple(f"/{topic}-" for topic in INTERNAL_TOPICS)
STATES: Final = ("full disk", "no descriptors", "unreadable")
MOMENTS: Final = ("made", "stopped", "killed")
"""Of a load: the logs are made, or loaded after a clean stop or a kill."""
PARTITIONS: Final = 2
"""Of each of these topics."""
GROUP: Final = "group"
TRANSACTIONAL: Final = "transactional"
TOPIC: Final = "log"
METADATA: Final = "m" * 4_000
ROUNDS: Final = 50
"""Of commits before a restart: they make a log of several pieces."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is bad, in which load, and from which of its operations on."""

    state: str
    moment: str
    step: int

    @classmethod
    def draw(cls, rng: random.Random) -> Trouble:
        """Any."""
        return cls(rng.choice(STATES), rng.choice(MOMENTS), rng.randrange(STEPS_MAX // 2))


class Asker:
    """Commits offsets and initializes a producer, through the current coordinators."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._committed = 0
        self._identity = (-1, -1)

    async def ask(self) -> str:
        """Asks for everything once. Returns what is refused now, or "" where all is served; objects where something
        that was confirmed is gone."""
        try:
            return await self._ask()
        except ClientError as error:
            return f"no answer: {error}"

    async def _ask(self) -> str:
        client = self._client
        if not await client.find(OF_GROUPS, GROUP, refresh=True):
            return "no coordinator of the group"
        fetched = await client.ask(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]), OffsetFetchResponse, 9
        )
        if error := fetched.groups[0].error_code:
            return f"offsets cannot be fetched: {ErrorCode(error).name}"
        found = [part.committed_offset for topic in fetched.groups[0].topics for part in topic.partitions]
        client.world.demand((found or [0])[0] >= self._committed, f"{self._committed} was confirmed, found: {found}")
        position = self._committed + 1
        topics = [OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, position, -1, METADATA)])]
        committed = await client.ask(OffsetCommitRequest(group_id=GROUP, topics=topics), OffsetCommitResponse, 8)
        if error := committed.topics[0].partitions[0].error_code:
            return f"offsets cannot be committed: {ErrorCode(error).name}"
        self._committed = position
        return await self._initialize()

    async def _initialize(self) -> str:
        client = self._client
        if not await client.find(OF_TRANSACTIONS, TRANSACTIONAL, refresh=True):
            return "no coordinator of the transactional id"
        made = await client.ask(InitProducerIdRequest(TRANSACTIONAL, 60_000), InitProducerIdResponse, 4)
        if made.error_code:
            return f"no producer id: {ErrorCode(made.error_code).name}"
        identity = (made.producer_id, made.producer_epoch)
        client.world.demand(identity > self._identity, f"{identity} comes after {self._identity}")
        self._identity = identity
        return ""

    async def until_served(self, within_s: float, since: str) -> None:
        """Asks until all is served; objects where that takes longer."""
        world = self._client.world
        until = world.loop.time() + within_s
        while refused := await self.ask():
            if world.loop.time() > until:
                world.object(f"{within_s:.0f} s {since}: {refused}")
                return
            await sleep(ASKED_EVERY_S)


class LoadRun:
    """A run of one coordinator log that is in a bad state when it is loaded.

    `met`: whether the load came as far as the step at which the state was to begin.
    """

    def __init__(self, seed: int, say: Callable[[str], None] | None = None, trouble: Trouble | None = None) -> None:
        """`trouble` in the place of what the seed draws."""
        self.world = World(seed, say)
        self.trouble = trouble or Trouble.draw(self.world.rng("trouble"))
        settings = {**SETTINGS, "log.dirs": DIRECTORIES[0], "transaction.state.log.num.partitions": str(PARTITIONS)}
        self.machine = Machine(self.world, HOST, DIRECTORIES[:1], settings, Broker)
        self._client = ClusterClient(self.world, "asker", [HOST])
        self.asker = Asker(self._client)
        self.met = False
        self._steps = 0
        self._passes_at = 0.0
        self._is_armed = self._is_on = self._is_loading = False

    def run(self) -> Result:
        """Runs to the end, or to the first objection. Raises what broke the simulator itself."""
        world = self.world
        world.trace.note("trouble", self.trouble)
        with self._hears_of_loads():
            play(world, self._main(), lambda: None, LOOK_S, "the broker and its client")
        digest, starts = world.trace.digest, self.machine.starts
        return Result(world.seed, digest, world.loop.time(), 0, 0, int(self.met), starts, world.objection)

    @contextmanager
    def _hears_of_loads(self) -> Iterator[None]:
        real = vars(coordinator)["read_piece"]

        def read_piece(*given: Any) -> Any:
            self._is_loading = True
            try:
                return real(*given)
            finally:
                self._is_loading = False

        with in_place(coordinator, "read_piece", read_piece):
            yield

    async def _main(self) -> None:
        machine, moment = self.machine, self.trouble.moment
        machine.switch_on()
        await machine.ready()
        await make_topic(self._client, TOPIC, 1, {})
        machine.disk.fail = self._look
        if moment == "made":
            self._is_armed = True
            await self._ask_through_it()
        else:
            for _ in range(ROUNDS):
                await self.asker.until_served(30.0, "after the start")
            machine.disks_are_sound = False
            if moment == "stopped":
                await machine.stop()
                self._is_armed = True
            else:
                self._is_armed = True
                machine.kill()
            await self._ask_through_it()
        await machine.switch_off()

    async def _ask_through_it(self) -> None:
        """Asks while the state lasts, and after it. A load that ends before its step never meets it."""
        loop = self.world.loop
        self.machine.disks_are_sound = False
        while not self.met or loop.time() < self._passes_at:
            if not await self.asker.ask() and not self.met:
                break
            await sleep(ASKED_EVERY_S)
        self._end()
        await self.asker.until_served(BACK_S, f"after {self.trouble} has passed")

    # --- the bad state

    def _look(self, operation: str, path: str) -> OSError | None:
        """See SimDisk.fail."""
        now = self.world.loop.time()
        if self._is_on and now >= self._passes_at:
            self._end()
        if self._is_armed and not self.met and any(each in path for each in LOGS):
            self._steps += self._is_loading or self.trouble.state != "unreadable"
            if self._steps > self.trouble.step:
                self._begin(now)
        return self._error(operation, path) if self._is_on else None

    def _begin(self, now: float) -> None:
        if self.world.strikes(str(self.trouble)):
            self.met = self._is_on = True
            self._passes_at = now + LASTS_S
            if self.trouble.state == "full disk":
                self.machine.disk.room_bytes = 0

    def _end(self) -> None:
        self._is_on = self._is_armed = False
        self.machine.disk.room_bytes = PLENTY

    def _error(self, operation: str, path: str) -> OSError | None:
        state = self.trouble.state
        if state == "no descriptors" and operation in ("open", "list"):
            return OSError(errno.EMFILE, "too many open files", path)
        if state == "unreadable" and operation == "read" and self._is_loading:
            return OSError(errno.EIO, "input/output error", path)
        return None


class HeldLogRun(ClusterRun):
    """A run in which the logs of coordinators are unavailable for a while."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        drawn = Options.draw(World(seed).rng("options"))
        super().__init__(seed, say, replace(drawn, nodes=3, small_pieces=False, links_are_lossy=False))
        self._asking = ClusterClient(self.world, "asker", self.hosts)
        self.asker = Asker(self._asking)

    async def _main(self) -> None:
        for machine in self.machines.values():
            machine.switch_on()
        for machine in self.machines.values():
            await machine.ready()
        await make_topic(self._asking, TOPIC, 1, {}, replicas=3)
        for _ in range(3):
            await self.asker.until_served(30.0, "after the start")
        await sleep(LOOK_S)
        self._hold()
        victim = self._coordinating()
        victim.take_away()
        until = self.world.loop.time() + HELD_S
        while self.world.loop.time() < until:
            await self.asker.ask()
            await sleep(ASKED_EVERY_S)
        await self.asker.until_served(BACK_S, "after the logs are not held any longer")
        victim.bring_back()
        await victim.ready()
        for machine in self.machines.values():
            await machine.switch_off()

    def _coordinating(self) -> Machine[Broker]:
        """The machine of the group's coordinator, or of the transactional id's."""
        topic, key = self.world.rng("victim").choice(tuple(zip(INTERNAL_TOPICS, (GROUP, TRANSACTIONAL), strict=True)))
        known = self._up()[0].image.topics.partition(topic, partition_of(key, PARTITIONS))
        assert known is not None
        return self.machines[known.leader]

    def _hold(self) -> None:
        """A worker of every follower has its log of the coordinators' in hand."""
        for machine in self.machines.values():
            broker, node = machine.broker, machine.node
            assert broker is not None and node is not None
            held = [broker.replicas.held((topic, index)) for topic in INTERNAL_TOPICS for index in range(PARTITIONS)]
            for each in held:
                if each is not None and each.error:
                    node.call(broker.requests_owner.spawn, self._hold_one(broker, each))

    async def _hold_one(self, broker: Broker, replica: Replica) -> None:
        replica.is_written_aside = True
        await sleep(HELD_S)
        replica.is_written_aside = False
        vars(ReplicaManager)["_released"](broker.replicas, replica)


def run_load_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a coordinator whose log is in a bad state for a while; in every fifth one a log is held."""
    return HeldLogRun(seed, say).run() if seed % 5 == 0 else LoadRun(seed, say).run()
