"""A cluster of three or five brokers, with combined or separate controllers, and its clients: first with faults, then
without, until everything has settled.

Checked during the run: no acknowledged record changes or is duplicated; nothing that a reader saw changes; an epoch of
a partition or of the quorum has one leader; ISRs are subsets of the replicas; committed records were committed by
enough replicas, and every electable replica has them; applied metadata are on a majority of the voters; the end of a
partition never goes back for a client. At the end: all clients make progress, all replicas are in sync within two
minutes, everything that was acknowledged or read is there, no transaction is open, and the logs of all replicas are
equal. Their committed parts are equal at any time, for all topics.
"""

from __future__ import annotations

from asyncio import gather, sleep
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from headrace.broker.broker import Broker
from headrace.broker.controller_node import ControllerNode
from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.metadata_start import format_storage
from headrace.client.security import ConnectionSecurity
from headrace.config import BrokerConfig
from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.machine import Raft
from headrace.replicas.partition import Role
from headrace.security.credentials import Credentials
from headrace.sim.after_snapshots import PowerAfterSnapshots
from headrace.sim.checkers.bounds import Bounds
from headrace.sim.checkers.commits import Commits
from headrace.sim.checkers.history import History, Place
from headrace.sim.checkers.levels import Levels
from headrace.sim.checkers.logs import Logs
from headrace.sim.checkers.owners import Owners
from headrace.sim.checkers.quorum import Quorum
from headrace.sim.checkers.replication import Replication
from headrace.sim.checkers.rights import Rights
from headrace.sim.checkers.sessions import Sessions
from headrace.sim.client import SimClient
from headrace.sim.cluster_client import ClusterClient
from headrace.sim.cluster_faults import LOSSY_LINK, ONE_LOSES, REFUSES, ClusterFaults
from headrace.sim.cluster_options import SNAPSHOT_BYTES_RARE, Options
from headrace.sim.coordinator_faults import CoordinatorFaults
from headrace.sim.faults import Faults
from headrace.sim.late_answers import LateAnswers
from headrace.sim.late_markers import LateMarkers
from headrace.sim.lost_answers import LostAnswers
from headrace.sim.machine import AnyMachine, Machine
from headrace.sim.moments import Listener, MomentFaults
from headrace.sim.node import SimNode
from headrace.sim.raise_faults import RaiseFaults
from headrace.sim.run import SETTINGS, Result, play
from headrace.sim.workloads.administering import Administrator
from headrace.sim.workloads.crowd import Crowd
from headrace.sim.workloads.grouping import Member, is_settled
from headrace.sim.workloads.guarding import DENIED, DENIED_PORT, GUARDED_SETTINGS, DeniedProducer, Guard
from headrace.sim.workloads.guarding import NAME as GUARDED
from headrace.sim.workloads.isolation import TOPIC, Transactions
from headrace.sim.workloads.producing import TIMEOUTS_MS
from headrace.sim.workloads.raising import VersionRaiser
from headrace.sim.workloads.reborn import Reborn
from headrace.sim.workloads.topics import TopicMaker, make_topic
from headrace.sim.workloads.voting import VoterOperator
from headrace.sim.workloads.watching import Watcher
from headrace.sim.world import World

CONTROLLER_PORT: Final = 9093
CONTROLLERS: Final = (101, 102, 103)
"""The nodes that vote, where they are no brokers."""
NODES_PORT: Final = 9095
"""Where nodes speak TLS with one another."""
DIRECTORIES: Final = ("/data/a",)
CLUSTER: Final = "c2ltdWxhdGVkLWNsdXN0ZXI"

LAG_S: Final = 30.0
"""How far behind a broker's metadata may be that is cut off from the controllers."""

LOOK_S: Final = 0.2
SHORT_LAG_MS: Final = "1000"
"""A leader's patience with its followers that is shorter than the controllers' with it: nothing but the in-sync set
that it has asked for holds it back for a follower that has fallen silent."""
SETTLE_S: Final = 120.0
"""How long after the last fault everybody may take to get on, with all replicas in sync: several times what a Produce
request waits for at a leader that is cut off and does not know it."""
WATCHED_KEYS: Final = 3
"""Of the partitions that transactions append to."""
GROUPS: Final = (1, 2, 3)
"""That commit as one."""
RAISED_AT_LAST: Final = 0.5
"""How often kraft.version is raised when all is calm, if it was not before."""
ASKED_BEFORE: Final = 0.7
"""Of the time with faults: by then the operator who raises kraft.version has begun to ask."""

CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    **SETTINGS,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.wait.max.ms": "300",
}


def host_of(node_id: int) -> str:
    return f"node{node_id}"


def voter_of(node_id: int) -> Voter:
    """What the voter set says of a node at first."""
    endpoint = VoterEndpoint("CONTROLLER", host_of(node_id), CONTROLLER_PORT)
    return Voter(node_id, bytes([node_id]) * 16, (endpoint,))


class ClusterRun:
    """See the module. `apart`: the controllers are nodes of their own. `dynamic`: an operator changes who votes.
    `raised`: one raises kraft.version, and then changes who votes. `transactional`: its clients are transactional
    ones. `grouped`: of these, some commit as groups. `guarded`: an authorizer decides, and rights change.
    `encrypted`: the nodes speak TLS with one another."""

    directories: Sequence[str] = DIRECTORIES
    """Of each broker."""
    interrupts = False

    def __init__(
        self,
        seed: int,
        say: Callable[[str], None] | None = None,
        options: Options | None = None,
        *,
        apart: bool = False,
        dynamic: bool = False,
        raised: bool = False,
        transactional: bool = False,
        grouped: bool = False,
        guarded: bool = False,
        encrypted: bool = False,
    ) -> None:
        self.world = World(seed, say, interrupts=self.interrupts)
        draw = Options.draw_transactional if transactional else Options.draw
        self.options = options or draw(self.world.rng("options"))
        self._groups = self.world.rng("groups").choice(GROUPS) if grouped else 0
        if grouped:
            self.options = replace(self.options, transactors=2, copiers=2)
        self.rights = Rights(self.world, f"User:{DENIED}", GUARDED, self._up, LOOK_S) if guarded else None
        self.nodes, self._is_encrypted = range(1, self.options.nodes + 1), encrypted
        self._loses_disks = apart and self.options.is_emptied and ONE_LOSES in self.options.cluster_kinds
        self.hosts = [host_of(node) for node in self.nodes]
        self.voters = CONTROLLERS if apart else self.nodes
        self.first_voters = [voter_of(node) for node in self.voters] if dynamic else []
        self.controllers = {node: self._controller(node) for node in (CONTROLLERS if apart else ())}
        self.machines = {node: self._machine(node) for node in self.nodes}
        self.everybody: dict[int, AnyMachine] = {**self.machines, **self.controllers}
        self.history = History(self.world)
        self.commits, self.owners = Commits(self.world), Owners(self.world, lambda: self.quorum.newest)
        self.bounds = Bounds(self.world)
        self._clients: dict[str, ClusterClient] = {}
        self._members: list[Member] = []
        self._administrator: ClusterClient | None = None
        self._operators: list[VoterOperator] = []
        self._is_raised = raised
        self._places: list[Place] = [("log", 0), ("log", 1), ("log", 2)]
        self.crowd = Crowd(self.world, self.history, self._places, self._client)
        self.transactions = Transactions(self.world, self._client, self.options.keys, self.options.pause_s)
        self.quorum = Quorum(self.world, self._voting)
        self.replication = Replication(self.world, self._up, lambda: self.quorum.newest)
        self.logs = Logs(self.world, self._up, lambda node: self.machines[node].disk)
        self.faults = [self._faults_of(node, machine) for node, machine in self.everybody.items()]
        self.cluster_faults = ClusterFaults(
            self.world,
            self.everybody,
            self.options.cluster_kinds + self._more_kinds(),
            self.options.mean_s,
            in_sync=lambda: not self._out_of_sync(),
            leading=self._leading,
            may_be_emptied=list(self.machines.values()) if self._loses_disks else [],
        )
        self.lost_answers = LostAnswers(self.world, self.everybody)
        self.after_snapshots = PowerAfterSnapshots(self.world, self.everybody.values())
        loses = ONE_LOSES in self.options.cluster_kinds
        self.coordinator_faults = CoordinatorFaults(self.world, self.machines, may_die=not loses)
        self.levels = Levels(self.world, self._quorum_of_each)
        voting = {node: self.everybody[node] for node in self.voters}
        self.raise_faults = RaiseFaults(self.world, voting, may_die=not loses, power="power" in self.options.kinds)
        self._moments: list[tuple[MomentFaults, bool]] = [
            (self.lost_answers, self.options.answers_are_lost),
            (LateAnswers(self.world, self.machines), self.options.verdicts_are_late),
            (LateMarkers(self.world, self.machines), transactional),
            (self.after_snapshots, "power" in self.options.kinds),
            (self.coordinator_faults, self.options.coordinators_fail),
            (self.raise_faults, raised),
        ]
        """Each, and whether this seed has it."""
        self._level = 0

    def _more_kinds(self) -> tuple[str, ...]:
        """Drawn apart from the options, so that other seeds are as they were."""
        refuses = self.world.rng("refusals").random() < 0.25
        return ((LOSSY_LINK,) if self.options.links_are_lossy else ()) + ((REFUSES,) if refuses else ())

    def _faults_of(self, node_id: int, machine: AnyMachine) -> Faults:
        def clients() -> list[str]:
            return [*self._others(node_id), *sorted(self._clients)]

        return Faults(self.world, machine, clients, self.options.kinds, self.options.mean_s, f"faults {node_id}")

    def _others(self, node_id: int) -> list[str]:
        return [host_of(node) for node in (*self.nodes, *self.controllers) if node != node_id]

    def _quorum(self, node_id: int) -> dict[str, str]:
        addresses = {node: f"{host_of(node)}:{CONTROLLER_PORT}" for node in self.voters}
        if self.first_voters:
            quorum = {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
        else:
            quorum = {"controller.quorum.voters": ",".join(f"{node}@{at}" for node, at in addresses.items())}
        settings = {**CLUSTER_SETTINGS, "node.id": str(node_id), **quorum}
        settings["log.dirs"] = ",".join(self.directories if node_id in self.nodes else DIRECTORIES)
        settings["metadata.log.max.record.bytes.between.snapshots"] = str(self.options.snapshot_bytes)
        if self.options.snapshot_bytes < SNAPSHOT_BYTES_RARE:
            settings["metadata.max.retention.bytes"] = "1"
        if self.options.answers_are_lost:
            settings["replica.lag.time.max.ms"] = SHORT_LAG_MS
        if self.rights is not None:
            settings |= GUARDED_SETTINGS
        if self._is_encrypted:
            from headrace.sim.encryption import ENCRYPTED_SETTINGS, stores_of

            settings |= ENCRYPTED_SETTINGS | stores_of(host_of(node_id))
        return settings

    def _controller(self, node_id: int) -> Machine[ControllerNode]:
        host = host_of(node_id)
        roles = {"process.roles": "controller", "listeners": f"CONTROLLER://{host}:{CONTROLLER_PORT}"}

        def make(config: BrokerConfig, node: SimNode) -> ControllerNode:
            format_storage(node, config, CLUSTER, voters=self.first_voters)
            return ControllerNode(config, node)

        return Machine(self.world, host, DIRECTORIES, self._quorum(node_id) | roles, make)

    def _machine(self, node_id: int) -> Machine[Broker]:
        host = host_of(node_id)
        settings = self._quorum(node_id) | {"listeners": f"PLAINTEXT://{host}:9092"}
        if node_id in self.voters:
            settings["listeners"] += f",CONTROLLER://{host}:{CONTROLLER_PORT}"
        else:
            settings["process.roles"] = "broker"
        if self.rights is not None:
            settings["listeners"] += f",STRANGERS://{host}:{DENIED_PORT}"
        if self._is_encrypted:
            settings["listeners"] += f",NODES://{host}:{NODES_PORT}"
        if self.options.durable:
            settings["acks.flush"] = "before-reply"

        def make(config: BrokerConfig, node: SimNode) -> Broker:
            self._format(config, node)
            return Broker(config, node)

        return Machine(self.world, host, self.directories, settings, make)

    def _format(self, config: BrokerConfig, node: SimNode) -> None:
        format_storage(node, config, CLUSTER, voters=self.first_voters)

    def run(self) -> Result:
        """Runs to the end, or to the first objection. Raises what broke the simulator itself."""
        world = self.world
        world.trace.note("options", self.options)
        with ExitStack() as hearing:
            for each in self._listeners():
                hearing.enter_context(each.listening())
            play(world, self._main(), self._look, LOOK_S, "the brokers and their clients")
        return Result(
            world.seed,
            world.trace.digest,
            world.loop.time(),
            self.history.acknowledged_count,
            self.commits.acknowledged_count,
            world.faults,
            sum(machine.starts for machine in self.everybody.values()),
            world.objection,
            self.transactions.committed,
            self.transactions.judged,
            self._level,
            sum(operator.confirmed for operator in self._operators),
        )

    def _listeners(self) -> list[Listener]:
        return [self.quorum, self.replication, self.levels, Sessions(self.world), *(each for each, _ in self._moments)]

    # --- the checker

    def _up(self) -> list[Broker]:
        return [machine.broker for machine in self.machines.values() if machine.broker is not None]

    def _leading(self) -> list[Machine[Broker]]:
        """The machines of those that lead a partition, as far as they know."""
        led = {
            broker.node_id
            for broker in self._up()
            if any(each.state.role is Role.LEADER for each in broker.replicas.by_name.values())
        }
        return [machine for node, machine in self.machines.items() if node in led]

    def _look(self) -> None:
        for broker in self._up():
            self.bounds.look(broker)
        self.replication.look()
        self.logs.look()
        if self._is_raised:
            self.levels.look()
        if self.rights is not None:
            self.rights.look()

    def _quorum_of_each(self) -> dict[int, QuorumDriver]:
        running = {node: machine.broker for node, machine in self.everybody.items()}
        return {node: each.quorum for node, each in running.items() if each is not None}

    def _voting(self) -> dict[int, Raft | None]:
        running = {node: self.everybody[node].broker for node in self.voters}
        return {node: None if each is None else each.quorum.raft for node, each in running.items()}

    # --- the phases

    async def _main(self) -> None:
        world, options = self.world, self.options
        world.network.small_pieces = options.small_pieces
        for machine in self.everybody.values():
            machine.switch_on()
        for machine in self.machines.values():
            await machine.ready()
        await make_topic(self._client("admin"), "log", 3, {}, replicas=3)
        for place in self._places:
            self.history.track(place)
        if options.transactors:
            await make_topic(self._client("admin"), TOPIC, options.keys, {}, replicas=3)
        self._start_clients()
        nemeses: list[Faults | ClusterFaults] = [*self.faults, self.cluster_faults]
        faults = [world.loop.create_task(nemesis.run()) for nemesis in nemeses]
        for each, is_wanted in self._moments:
            if is_wanted:
                each.begin()
        await sleep(options.faults_s)
        for each, _ in self._moments:
            each.end()
        for task in faults:
            task.cancel()
        for nemesis in nemeses:
            nemesis.heal()
        for machine in self.everybody.values():
            # An operator who has repaired a disk starts the node again. Others start or stop in peace: a node that is
            # killed before it is registered is no longer eligible (KIP-966), and the last one in sync may have lost its
            # power.
            if not machine.disks_are_sound:
                machine.kill()
        for machine in self.everybody.values():
            await machine.ready()
            machine.disks_are_sound = True
        await self._end_operators()
        self.transactions.slow_down()
        world.trace.note("calm")
        world.calm_since = world.loop.time()
        await self._settle()
        if options.calm_trouble and world.objection is None:
            await self._trouble()
            await self._settle()
        if self._is_raised and self.world.rng("raised at last").random() < RAISED_AT_LAST:
            await self._raise_at_last()
        await self.crowd.look_at_answers()
        await self._end()

    def _client(self, kind: str) -> ClusterClient:
        name = f"{kind}-{len(self._clients) + 1}"
        client = self._clients[name] = ClusterClient(self.world, name, self.hosts)
        return client

    def _start_clients(self) -> None:
        options = self.options
        # what one replica alone has acknowledged, a fault may take
        self.crowd.start(plain=options.plain, idempotent=options.idempotent, acks=(-1,), timeouts_ms=TIMEOUTS_MS)
        for _ in range(options.members):
            member = Member(self._client("member"), self.commits, self.owners, "group", self._places)
            self._members.append(member)
            member.client.owner.spawn(member.run())
        if options.topics_come_and_go:
            # the only replica does not come back from a disk that is gone
            maker = TopicMaker(self._client("maker"), lag_s=LAG_S, replicas=3 if self._loses_disks else 1)
            maker.client.owner.spawn(maker.run())
        if options.is_reborn:
            reborn = Reborn(self._client("reborn"))
            reborn.client.owner.spawn(reborn.run())
        if options.is_administered:
            self._administrator = self._client("administrator")
            self._administrator.owner.spawn(Administrator(self._administrator, self._places, self.nodes).run())
        if self.first_voters:
            operator = self._operator_of(self._client("voting"), {voter.id: voter for voter in self.first_voters})
            operator.client.owner.spawn(operator.run())
        if self._is_raised:
            raiser = self._raiser_of(self._client("raiser"))
            raiser.client.owner.spawn(self._raise(raiser, options.faults_s * ASKED_BEFORE))
        keys = self.transactions.keys[:WATCHED_KEYS] if options.transactors else []
        Watcher(self._client("watcher"), [*self._places, *keys]).start()
        if options.transactors:
            self.transactions.start(options.transactors, options.copiers)
            partitions = int(CLUSTER_SETTINGS["transaction.state.log.num.partitions"])
            self.transactions.start_groups(self._groups, partitions)
        if self.rights is not None:
            security = ConnectionSecurity(credentials=Credentials("PLAIN", DENIED, DENIED))
            denied = ClusterClient(self.world, DENIED, self.hosts, DENIED_PORT, security)
            self._clients[DENIED] = denied
            denied.owner.spawn(DeniedProducer(denied, self.rights).run())
            guard = Guard(self._client("guard"), f"User:{DENIED}")
            guard.client.owner.spawn(guard.run())

    def _operator_of(self, client: SimClient, nodes: Mapping[int, Voter]) -> VoterOperator:
        operator = VoterOperator(client, nodes)
        self._operators.append(operator)
        return operator

    def _raiser_of(self, client: ClusterClient) -> VersionRaiser:
        raiser = VersionRaiser(client)
        self.levels.hear(raiser)
        return raiser

    async def _raise(self, raiser: VersionRaiser, within_s: float) -> None:
        """An operator who hears that kraft.version is raised goes on to change who votes."""
        operator = self._operator_of(raiser.client, {})
        await raiser.run(within_s)
        if raiser.confirmed:
            await operator.learn(self.voters)
            await operator.run()

    async def _end_operators(self) -> None:
        """Operators change the cluster no longer, and every node votes again."""
        changing = {each.client for each in self._operators}
        if self._administrator is not None:
            changing.add(self._administrator)
        for client in [each for each in self._clients.values() if each in changing]:
            client.die()
            del self._clients[client.host]
        if self._operators and (nodes := self._operators[-1].nodes):
            restoring = self._operator_of(self._client("voting"), nodes)
            await self._settle_task(restoring.client, restoring.restore(), "not every node votes again")

    async def _raise_at_last(self) -> None:
        """Where nothing is broken, who asks gets kraft.version 1, and may change who votes: what failed before is
        in nobody's way."""
        raiser = self._raiser_of(self._client("raiser"))
        await self._settle_task(raiser.client, raiser.insist(), "kraft.version is not raised")
        operator = self._operator_of(raiser.client, {})

        async def replace_one() -> None:
            await operator.learn(self.voters)
            await operator.replace_one()

        await self._settle_task(operator.client, replace_one(), "no voter can leave and come back")
        await self._settle()

    async def _settle_task(self, client: SimClient, work: Coroutine[Any, Any, None], late: str) -> None:
        """Work that takes no longer than a cluster needs to get on; `late` is what is so where it does."""
        task = client.owner.spawn(work)
        until = self.world.loop.time() + SETTLE_S
        while not task.done() and self.world.objection is None:
            if self.world.loop.time() > until:
                self.world.object(f"{SETTLE_S:.0f} s after the last fault {late}")
            await sleep(LOOK_S)

    async def _wait_for(self, late: Callable[[], list[str]], when: str, patience_s: float = SETTLE_S) -> None:
        """Waits until `late` names nothing; an objection says `when` that is too late."""
        until = self.world.loop.time() + patience_s
        while (found := late()) and self.world.objection is None:
            if self.world.loop.time() > until:
                self.world.object(f"{when}: {'; '.join(found)}")
            await sleep(LOOK_S)

    async def _trouble(self) -> None:
        one, other = self.world.rng("trouble").sample(list(self.everybody.values()), 2)
        if self.options.calm_trouble == "one goes":
            one.take_away()
            await self._settle(is_whole=False)
            one.bring_back()
            await one.ready()
            return
        self.world.calm_since = None
        self.world.network.partition(one.host, other.host)
        await self._settle(is_whole=False)
        self.world.network.reconnect(one.host, other.host)
        self.world.calm_since = self.world.loop.time()

    async def _settle(self, *, is_whole: bool = True) -> None:
        """Everybody gets on within SETTLE_S.

        Where the cluster `is_whole`, every replica is in sync, and the group settles: a broker that hears of no
        controller goes on as its coordinator, and clients find it, as in Kafka.
        """
        until = self.world.loop.time() + SETTLE_S
        expected = [self.crowd.expectation()]
        if self.world.calm_since is not None:
            # a coordinator that does not reach a leader ends no transaction there, as in Kafka
            expected.append(self.transactions.expectation())
        observer = self._client("observer")
        while self.world.objection is None:
            late = [text for each in expected for text in each()]
            late += self._out_of_sync() if is_whole else []
            late += self.levels.differences() if is_whole and self._is_raised else []
            if is_whole and self._members and not await is_settled(observer, "group", self._members):
                late.append("the group does not settle")
            if not late:
                return
            if self.world.loop.time() > until:
                self.world.object(f"{SETTLE_S:.0f} s after the last fault: {'; '.join(late)}")
            await sleep(LOOK_S)

    async def _settle_levels(self) -> None:
        """What a start took from the disk is what was there before."""
        until = self.world.loop.time() + SETTLE_S
        while late := self.levels.differences():
            if self.world.loop.time() > until:
                self.world.object(f"{SETTLE_S:.0f} s after the last start: {'; '.join(late)}")
                return
            await sleep(LOOK_S)
        self._level = self.levels.level()

    def _out_of_sync(self) -> list[str]:
        """Partitions of which a replica is out of sync, as every node knows."""
        found: list[str] = []
        for broker in self._up():
            for topic in broker.image.topics:
                for partition in topic.partitions:
                    is_whole = set(partition.isr) == set(partition.replicas) and partition.leader >= 0
                    if not is_whole or partition.adding or partition.removing:
                        found.append(f"{topic.name}-{partition.index} on {broker.node_id}: {partition}")
        return found

    async def _end(self) -> None:
        for client in self._clients.values():
            client.die()
        self._clients.clear()
        await sleep(5.0)
        await self.crowd.read_all("before")
        await self.transactions.judge()
        self.logs.look_at_all()
        self.logs.look_for_open()
        await gather(*[machine.stop() for machine in self.machines.values()])
        for machine in self.machines.values():
            await machine.ready()
        await self.crowd.read_all("after")
        if self._is_raised:
            await self._settle_levels()
        for machine in self.everybody.values():
            await machine.switch_off()


def run_cluster_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster."""
    return ClusterRun(seed, say).run()


def run_apart_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster whose controllers are nodes of their own."""
    return ClusterRun(seed, say, apart=True).run()


def run_dynamic_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster whose voters come and go."""
    return ClusterRun(seed, say, dynamic=True).run()


def run_raised_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster whose kraft.version is raised; every second one has controllers that are nodes of their
    own."""
    return ClusterRun(seed, say, apart=seed % 2 == 0, raised=True).run()


def run_transactions_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster whose clients are transactional ones."""
    return ClusterRun(seed, say, transactional=True).run()


def run_grouped_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster of whose transactions some end as groups."""
    return ClusterRun(seed, say, transactional=True, grouped=True).run()


def run_guarded_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster with an authorizer, whose rights change all the time."""
    return ClusterRun(seed, say, guarded=True).run()


def run_encrypted_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster whose nodes speak TLS with one another; the controllers are nodes of their own in every
    second one."""
    return ClusterRun(seed, say, apart=seed % 2 == 0, encrypted=True).run()
