"""A cluster and the consumers of one group: members join, leave, die and return, while the coordinator moves.

They use the protocol of KIP-848 and, in most seeds, the classic one too, in changing proportions, so that the group is
converted while it has members, if the policy allows it. Classic members rebalance eagerly or cooperatively. Some
members are static; some subscribe by regular expressions, or change their topics.

Checked during the run: see `checkers.shares`. At rest, every partition is owned by exactly one live member, no member
is being reconciled, and every member commits.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from headrace.groups.shard import GroupShard
from headrace.sim.checkers.group_records import GroupRecords
from headrace.sim.checkers.shares import Shares
from headrace.sim.cluster_client import ClusterClient
from headrace.sim.cluster_options import Options
from headrace.sim.cluster_run import LOOK_S, ClusterRun
from headrace.sim.coordinator_faults import CoordinatorFaults
from headrace.sim.moments import Listener, after_each
from headrace.sim.run import Result
from headrace.sim.workloads.classic_consuming import ClassicConsumer
from headrace.sim.workloads.consuming import LEAVES_FOR_A_WHILE, Consumer, Group
from headrace.sim.workloads.cooperative_consuming import CooperativeConsumer
from headrace.sim.workloads.modern_consuming import ModernConsumer
from headrace.sim.workloads.topics import make_topic
from headrace.sim.world import World

GROUP: Final = "consumers"
TOPIC: Final = "shared"
PARTITIONS: Final = {TOPIC: 7, "log": 3}
MEMBERS_LEAST: Final = 2
MEMBERS_MOST: Final = 5
CHANGES_S: Final = (0.1, 1.2)
"""Between two members that come or go."""
GOES_ON_S: Final = 8.0
"""How long members come and go after the last fault."""
CONVERTS: Final = 0.8
EVEN: Final = 0.5
COOPERATES: Final = 0.4
"""How often members of the classic protocol rebalance cooperatively: all of a group, or none."""
CLASSIC: Final = (0.0, EVEN, 1.0)
TURNS: Final = 0.4
"""How often, between two members that come or go, others come from then on."""
STATIC: Final = 0.4
"""How many members are static."""
GOES: Final = ("leaves", "dies")
GOES_IF_STATIC: Final = ("leaves", "dies", "leaves for a while", "stays away", "has a rival")
REST_S: Final = 40.0
"""How long the group may take to come to rest: several times a session and a rebalance timeout."""
POLICIES: Final = ("bidirectional",) * 6 + ("upgrade", "downgrade", "disabled")
"""With the last two some consumers cannot join until those of the other protocol are out."""
UPGRADES: Final = ("bidirectional", "upgrade")
DOWNGRADES: Final = ("bidirectional", "downgrade")
RESTLESS: Final = 0.3
"""How often members change what they subscribe to."""
BY_REGEX: Final = (0.0, 0.0, 0.5)
"""How many members of the newer protocol subscribe by a regular expression."""
SETTINGS: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "100",
}


class GroupCoordinatorFaults(CoordinatorFaults):
    """Coordinators of groups that fail just when they have decided something."""

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [after_each(GroupShard, each, self._met) for each in ("consumer_heartbeat", "join", "sync", "commit")]


class ConsumersRun(ClusterRun):
    """A run of the consumers of one group."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        rng = World(seed).rng("options")
        drawn = replace(
            Options.draw(rng),
            plain=0,
            idempotent=0,
            members=0,
            topics_come_and_go=False,
            is_reborn=False,
            transactors=0,
            copiers=0,
            faults_s=rng.uniform(5.0, 15.0),
            coordinators_fail=rng.random() < 0.7,
        )
        super().__init__(seed, say, drawn)
        self._names: dict[bytes, str] = {}
        self._records = GroupRecords(self._up)
        self.shares = Shares(self.world, self._records, lambda: self._names)
        self.group = Group(GROUP, TOPIC, PARTITIONS, self.commits, self.shares)
        self.group.is_restless = self.world.rng("restless").random() < RESTLESS
        self._policy = self._drawn_policy()
        self.group.is_mixed = self._policy != "disabled"
        cooperates = self.world.rng("cooperative").random() < COOPERATES
        self._classic_kind = CooperativeConsumer if cooperates else ClassicConsumer
        self._regexes = self.world.rng("regular expressions")
        self._by_regex = self._regexes.choice(BY_REGEX)
        self.consumers: list[Consumer] = []
        self._rivals: list[Consumer] = []
        """Those whose instance ids newer processes have too."""
        self._rng = self.world.rng("consumers")
        self._count = 0
        self._is_directed = True
        """Whether consumers come and go."""
        self._converts = self._rng.random() < CONVERTS
        """Whether members of the classic protocol take part."""
        self._classic = self._rng.choice(CLASSIC) if self._converts else 0.0
        """How many of those that join speak the classic protocol."""
        self._moments = [
            (each, is_wanted) for each, is_wanted in self._moments if each in (self.lost_answers, self.after_snapshots)
        ]
        loses = "one loses" in self.options.cluster_kinds
        faults = GroupCoordinatorFaults(self.world, self.machines, may_die=not loses)
        self._moments.append((faults, self.options.coordinators_fail))

    def _quorum(self, node_id: int) -> dict[str, str]:
        return {**super()._quorum(node_id), **SETTINGS, "group.consumer.migration.policy": self._drawn_policy()}

    def _drawn_policy(self) -> str:
        return self.world.rng("migration policy").choice(POLICIES)

    def _listeners(self) -> list[Listener]:
        return [*super()._listeners(), self._records]

    def _look(self) -> None:
        super()._look()
        self.shares.look()

    # --- who takes part

    def _start_clients(self) -> None:
        super()._start_clients()
        director = self._client("director")
        director.owner.spawn(self._direct(director))

    async def _direct(self, director: ClusterClient) -> None:
        """Makes the topic; from then on, consumers come and go until all has been calm for a while."""
        await make_topic(director, TOPIC, PARTITIONS[TOPIC], {}, replicas=3)
        while not self._knows_topics():
            await director.rest()
        for _ in range(MEMBERS_LEAST):
            self._join_another()
        while True:
            await sleep(self._rng.uniform(*CHANGES_S))
            self._end_rivals()
            if self._converts and self._rng.random() < TURNS:
                self._classic = self._rng.choice(CLASSIC)
            calm_since = self.world.calm_since
            if calm_since is not None and self.world.loop.time() > calm_since + GOES_ON_S:
                break
            if self._rng.randint(MEMBERS_LEAST, MEMBERS_MOST) > len(self.consumers):
                self._join_another()
            else:
                self._go(self._pick())
        if self._policy not in UPGRADES:
            self._keep_one_protocol()
        self._is_directed = self.group.is_restless = False

    def _keep_one_protocol(self) -> None:
        """Those of the other one leave: it depends on who was first whether both get in."""
        self._classic = float(self._converts and self._rng.random() < EVEN)
        for each in list(self.consumers):
            if isinstance(each, ClassicConsumer) != bool(self._classic):
                self.consumers.remove(each)
                each.leave()
        if not self.consumers:
            self._join_another()

    def _knows_topics(self) -> bool:
        for broker in self._up():
            self._names |= {topic.id: topic.name for topic in broker.image.topics}
        return PARTITIONS.keys() <= set(self._names.values())

    def _join(self, instance: str | None = None) -> None:
        self._count += 1
        name = f"consumer-{self._count}"
        client = self._clients[name] = ClusterClient(self.world, name, self.hosts)
        consumer: Consumer
        if self._rng.random() < self._classic:
            consumer = self._classic_kind(client, self.group, instance)
        else:
            by_regex = self._regexes.random() < self._by_regex
            consumer = ModernConsumer(
                client, self.group, self._names, f"member-{self._count}", instance, by_regex=by_regex
            )
        self.consumers.append(consumer)
        client.owner.spawn(consumer.run())

    def _join_another(self) -> None:
        """One that has nothing to do with those before it."""
        is_static = self._rng.random() < STATIC
        self._join(f"instance-{self._count}" if is_static else None)

    def _pick(self) -> Consumer:
        """Which one goes next: as often as not, one of the protocol that fewer of those have that come."""
        waning = [each for each in self.consumers if isinstance(each, ClassicConsumer) == (self._classic < EVEN)]
        picked = self._rng.choice(waning or self.consumers if self._rng.random() < EVEN else self.consumers)
        self.consumers.remove(picked)
        return picked

    def _go(self, consumer: Consumer) -> None:
        """A member goes, and if it is static, another process may come with its instance id: after it, or before."""
        how = self._rng.choice(GOES if consumer.instance is None else GOES_IF_STATIC)
        if how == "leaves":
            consumer.leave()
        elif how == "dies":
            consumer.die()
        elif how in ("leaves for a while", "stays away"):
            consumer.leave(LEAVES_FOR_A_WHILE)
        else:
            self._rivals.append(consumer)
        if how not in ("leaves", "stays away") and consumer.instance is not None:
            self._join(consumer.instance)

    def _end_rivals(self) -> None:
        """Of two processes with one instance id, the older one dies."""
        for each in self._rivals:
            each.die()
        self._rivals.clear()

    # --- at rest

    async def _settle(self, *, is_whole: bool = True) -> None:
        await super()._settle(is_whole=is_whole)
        until = self.world.loop.time() + REST_S
        confirmed: dict[Consumer, int] = {}
        while is_whole and self.world.objection is None and (late := self._late(confirmed)):
            if self.world.loop.time() > until:
                self.world.object(f"{REST_S:.0f} s after the cluster is whole: {'; '.join(late)}")
            await sleep(LOOK_S)

    def _late(self, confirmed: dict[Consumer, int]) -> list[str]:
        """What keeps the group from rest; `confirmed` notes how much each member had committed when first seen."""
        if self._is_directed:
            return ["consumers come and go"]
        live = [each for each in self.consumers if not each.is_over]
        late = self.shares.late(GROUP, [each.member_id for each in live])
        owned = sorted(place for each in live for place in each.owned)
        topics = sorted({topic for each in live for topic in each.topics})
        if owned != [(topic, index) for topic in topics for index in range(PARTITIONS[topic])]:
            late.append(f"{owned} are owned")
        for each in live:
            if not each.is_at_rest:
                late.append(f"{each.member_id} is at epoch {each.epoch} with {sorted(each.owned)}")
            if each.confirmed == confirmed.setdefault(each, each.confirmed) and each.owned:
                late.append(f"{each.member_id} commits nothing")
        return late

    async def _end(self) -> None:
        for each in self.consumers:
            self.shares.ended(GROUP, each.member_id)
        await super()._end()
        self.shares.look_at_rest()
        upgrades, downgrades = self.shares.upgrades, self.shares.downgrades
        self.world.demand(self._policy in UPGRADES or not upgrades, f"{upgrades} upgrades with {self._policy}")
        self.world.demand(self._policy in DOWNGRADES or not downgrades, f"{downgrades} downgrades with {self._policy}")


def run_consumers_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of the consumers of a group."""
    return ConsumersRun(seed, say).run()
