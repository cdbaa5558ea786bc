"""A run of a single broker and its clients: a phase with faults, then one without, in which everything must recover.

The seed draws who takes part, what may go wrong and how often. The safety phase demands that no answer is ever wrong;
the liveness phase that everybody gets on once nothing is broken any more; the end that the logs hold what was
acknowledged.
"""

from __future__ import annotations

import random
from asyncio import Task, sleep
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.broker.broker import Broker
from headrace.sim.checkers.bounds import Bounds
from headrace.sim.checkers.commits import Commits
from headrace.sim.checkers.history import History, Place
from headrace.sim.checkers.owners import Owners
from headrace.sim.checkers.replication import Replication
from headrace.sim.client import SimClient
from headrace.sim.faults import DAY_MS, KINDS, Faults
from headrace.sim.loop import LivelockError, StandstillError
from headrace.sim.machine import Machine
from headrace.sim.overlapped_syncs import PowerAfterOverlaps
from headrace.sim.workloads.crowd import Crowd
from headrace.sim.workloads.grouping import Member, is_settled
from headrace.sim.workloads.moving import Mover
from headrace.sim.workloads.topics import TopicMaker, make_topic
from headrace.sim.world import Objection, World

HOST: Final = "broker"
OTHER_PORT: Final = 9192
DIRECTORIES: Final = ("/data/a", "/data/b")
SETTLE_S: Final = 120.0
"""How long everybody may take to get on after the last fault."""
LOOK_S: Final = 0.5
SIMULATED_S_MAX: Final = 600.0
HAUNTED: Final = 0.3
"""How often members of groups go on as what they were before. Drawn apart from the options: other seeds are as they
were."""
OVERLAPPED: Final = 0.5
"""How often syncs that acknowledgements wait for are interrupted, whatever the world has drawn."""
STATIC: Final = 0.6
"""How many of such members are static."""

SETTINGS: Final[Mapping[str, str]] = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://broker:9092",
    "log.dirs": ",".join(DIRECTORIES),
    "num.partitions": "1",
    "log.roll.ms": "2000",
    "log.index.interval.bytes": "512",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "queued.max.request.bytes": "262144",
    # a clock that is set by a day expires a producer, as in Kafka
    "producer.id.expiration.ms": str(20 * DAY_MS),
    # clients go by their own clocks, and the broker's is set
    "log.message.timestamp.after.max.ms": str(10 * DAY_MS),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What a seed has drawn."""

    durable: bool
    """Acknowledgements wait for the disk, and the power may go; else processes are killed, and machines stay up."""
    kinds: tuple[str, ...]
    mean_s: float
    faults_s: float
    plain: int
    idempotent: int
    members: int
    topics_come_and_go: bool
    compacts: bool
    trims: bool
    small_pieces: bool
    cold_chance: float

    @classmethod
    def draw(cls, rng: random.Random) -> Options:
        """Any mixture: also of nothing at all."""
        durable = rng.random() < 0.6
        possible = [kind for kind in KINDS if durable or kind != "power"]
        return cls(
            durable=durable,
            kinds=tuple(kind for kind in possible if rng.random() < 0.45),
            mean_s=rng.uniform(0.5, 4.0),
            faults_s=rng.uniform(8.0, 20.0),
            plain=rng.randint(0, 2),
            idempotent=rng.randint(1, 2),
            members=rng.choice((0, 2, 3)),
            topics_come_and_go=rng.random() < 0.4,
            compacts=rng.random() < 0.5,
            trims=rng.random() < 0.5,
            small_pieces=rng.random() < 0.3,
            cold_chance=rng.choice((0.0, 0.02, 0.3)),
        )


LIGHT: Final = Options(
    durable=False,
    kinds=(),
    mean_s=1.0,
    faults_s=60.0,
    plain=1,
    idempotent=0,
    members=0,
    topics_come_and_go=False,
    compacts=False,
    trims=False,
    small_pieces=False,
    cold_chance=0.0,
)
"""One producer and two readers whom nothing disturbs: what the simulator itself costs shows here."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a run went."""

    seed: int
    digest: str
    simulated_s: float
    acknowledged: int
    commits: int
    faults: int
    starts: int
    objection: Objection | None
    transactions: int = 0
    """Those that were committed, as their producers have heard."""
    judged: int = 0
    """Transactions, also those that were aborted, or of which nobody heard, whose history was judged."""
    kraft_version: int = 0
    """That of all nodes in the end, where somebody raises it."""
    voter_changes: int = 0
    """Confirmed to an operator who has voters come and go."""


def play(world: World, main: Coroutine[Any, Any, None], look: Callable[[], None], every_s: float, who: str) -> None:
    """Runs to the end of `main`, or to the first objection; `look` sees what must hold at any time. Raises what broke
    the simulator itself."""
    task = world.loop.create_task(main)
    try:
        world.loop.run_until_complete(_watch(world, task, look, every_s))
    except (StandstillError, LivelockError) as error:
        world.object(f"{who} make no progress: {error}", error)
    finally:
        world.end()


async def _watch(world: World, main: Task[None], look: Callable[[], None], every_s: float) -> None:
    while not main.done():
        await sleep(every_s)
        if world.loop.failure is not None:
            raise world.loop.failure
        if world.objection is not None:
            main.cancel()
            return
        if world.loop.time() > SIMULATED_S_MAX:
            world.object(f"the run has not ended after {SIMULATED_S_MAX:.0f} s")
        look()
    if not main.cancelled() and (error := main.exception()) is not None:
        raise error


class Run:
    """A run of one broker."""

    def __init__(
        self,
        seed: int,
        say: Callable[[str], None] | None = None,
        options: Options | None = None,
        *,
        moving: bool = False,
    ) -> None:
        """`options` in the place of those that the seed draws. `moving`: replicas move between the log directories, and
        the work of workers is interrupted."""
        self._moving = moving
        self.world = World(seed, say)
        self.options = options or Options.draw(self.world.rng("options"))
        settings = dict(SETTINGS)
        if self.options.durable:
            settings["acks.flush"] = "before-reply"
        interrupts = moving or (self.options.durable and self.world.rng("overlaps").random() < OVERLAPPED)
        self.machine = Machine(self.world, HOST, DIRECTORIES, settings, Broker, interrupts=interrupts)
        self.overlaps = PowerAfterOverlaps(self.world, [self.machine])
        self.history = History(self.world)
        self.commits = Commits(self.world)
        self.owners = Owners(self.world, lambda: None if self.machine.broker is None else self.machine.broker.image)
        self.bounds = Bounds(self.world)
        self.replication = Replication(
            self.world,
            lambda: [] if self.machine.broker is None else [self.machine.broker],
            lambda: None if self.machine.broker is None else self.machine.broker.image,
        )
        self._clients: dict[str, SimClient] = {}
        self._members: list[Member] = []
        self._places: list[Place] = []
        self.crowd = Crowd(self.world, self.history, self._places, self._client)
        self._group_places: list[Place] = []
        self._is_haunted = self.world.rng("haunted").random() < HAUNTED
        self._named = 0
        self.faults = Faults(
            self.world, self.machine, lambda: sorted(self._clients), self.options.kinds, self.options.mean_s
        )

    def run(self) -> Result:
        """Runs to the end, or to the first objection. Raises what broke the simulator itself."""
        world = self.world
        world.trace.note("options", self.options)
        with self.overlaps.listening(), self.replication.listening():
            play(world, self._main(), self._look, LOOK_S, "the broker and its clients")
        return Result(
            world.seed,
            world.trace.digest,
            world.loop.time(),
            self.history.acknowledged_count,
            self.commits.acknowledged_count,
            world.faults,
            self.machine.starts,
            world.objection,
        )

    def _look(self) -> None:
        if self.machine.broker is not None:
            self.bounds.look(self.machine.broker)
            self.replication.look()
            if self.machine.disks_are_sound:
                offline = sorted(self.machine.broker.replicas.offline)
                self.world.demand(not offline, f"{offline} are offline on sound disks")

    # --- the phases

    async def _main(self) -> None:
        world, options = self.world, self.options
        world.network.small_pieces = options.small_pieces
        world.network.cold_chance = options.cold_chance
        self.machine.switch_on()
        await self.machine.ready()
        await self._make_topics()
        self._start_clients()
        faults = world.loop.create_task(self.faults.run())
        deaths = world.loop.create_task(self._members_die())
        if "power" in options.kinds:
            self.overlaps.begin()
        await sleep(options.faults_s)
        self.overlaps.end()
        for task in (faults, deaths):
            task.cancel()
        self.faults.heal()
        await self._restart_after_disk_errors()
        await self.machine.ready()
        world.trace.note("calm")
        world.calm_since = world.loop.time()
        await self._settle()
        await self.crowd.look_at_answers()
        await self._end()

    async def _restart_after_disk_errors(self) -> None:
        """A directory that failed stays failed until a restart: who has repaired the disk starts the broker again."""
        if not self.machine.disks_are_sound:
            self.machine.kill()
            await self.machine.ready()
        self.machine.disks_are_sound = True

    async def _make_topics(self) -> None:
        options = self.options
        client = self._client("admin")
        shapes: list[tuple[str, int, dict[str, str], bool, bool]] = [("log", 2, {}, False, False)]
        if options.compacts:
            configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.05"}
            shapes.append(("compacted", 1, configs, True, False))
        if options.trims:
            shapes.append(("trimmed", 1, {"retention.bytes": "20000"}, False, True))
        for name, partitions, configs, compacted, trimmed in shapes:
            await make_topic(client, name, partitions, configs)
            for index in range(partitions):
                self.history.track((name, index), compacted=compacted, trimmed=trimmed)
                self._places.append((name, index))
        self._group_places = [("log", 0), ("log", 1)] + [(f"made-up-{i}", 0) for i in range(2)]

    def _client(self, kind: str) -> SimClient:
        self._named += 1
        name = f"{kind}-{self._named}"
        client = self._clients[name] = SimClient(self.world, name, HOST)
        return client

    def _start(self, client: SimClient, work: Coroutine[Any, Any, None]) -> None:
        client.owner.spawn(work)

    def _start_clients(self) -> None:
        options = self.options
        self.crowd.start(plain=options.plain, idempotent=options.idempotent)
        for _ in range(options.members):
            self._join()
        if options.topics_come_and_go:
            maker = TopicMaker(self._client("maker"))
            self._start(maker.client, maker.run())
        if self._moving:
            places = [*self._places, *[("__consumer_offsets", index) for index in range(2)]]
            mover = Mover(self._client("mover"), places, DIRECTORIES)
            self._start(mover.client, mover.run())

    def _join(self) -> None:
        client = self._client("member")
        haunted = self.world.rng(f"haunted {client.host}") if self._is_haunted else None
        is_static = haunted is not None and haunted.random() < STATIC
        instance = f"instance-{client.host}" if is_static else None
        member = Member(client, self.commits, self.owners, "group", self._group_places, instance, haunted)
        self._members.append(member)
        self._start(member.client, member.run())

    async def _members_die(self) -> None:
        rng = self.world.rng("deaths")
        while self._members:
            await sleep(rng.uniform(3.0, 12.0))
            member = self._members.pop(rng.randrange(len(self._members)))
            self._clients.pop(member.client.host)
            member.die()
            self._join()

    async def _settle(self) -> None:
        """Everybody gets on within SETTLE_S."""
        until = self.world.loop.time() + SETTLE_S
        expected = self.crowd.expectation()
        observer = self._client("observer")
        while self.world.objection is None:
            late = expected()
            if self._members and not await is_settled(observer, "group", self._members):
                late.append("the group does not settle")
            if not late:
                return
            if self.world.loop.time() > until:
                self.world.object(f"{SETTLE_S:.0f} s after the last fault: {'; '.join(late)}")
            await sleep(LOOK_S)

    async def _end(self) -> None:
        for client in self._clients.values():
            client.die()
        self._clients.clear()
        await sleep(5.0)
        broker = await self.machine.ready()
        self.bounds.look_at_rest(broker)
        await self.machine.start_second({"listeners": f"PLAINTEXT://{HOST}:{OTHER_PORT}"})
        await self.crowd.read_all("before")
        await self.machine.stop()
        await self.machine.ready()
        await self.crowd.read_all("after")
        await self.machine.switch_off()


def run_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """Runs one seed; `say` gets the trace, line by line."""
    return Run(seed, say).run()


def run_light_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """Runs one seed in which nothing is drawn, and nothing goes wrong."""
    return Run(seed, say, LIGHT).run()


def run_moving_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """Runs one seed in which replicas move between the log directories, and work of workers is interrupted."""
    return Run(seed, say, moving=True).run()
