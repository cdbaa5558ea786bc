"""Checks replication: an epoch of a partition has one leader, ISRs are subsets of the replicas and include eligible
brokers only (KIP-841), committed records are on enough replicas, and every electable replica has all of them, also
after a truncation. The high watermark of a leader never goes back in its epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from headrace.broker.partitions.replica import Replica
from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.uncommitted import Uncommitted
from headrace.log.log import Log
from headrace.replicas.partition import PartitionState, Role
from headrace.sim.moments import after_each, before_each

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.quorum.uncommitted import Change
    from headrace.metadata.image import ClusterImage, Partition, Topic
    from headrace.sim.world import World


class Replication:
    """Checks the promises of replication."""

    def __init__(
        self, world: World, brokers: Callable[[], Sequence[Broker]], newest: Callable[[], ClusterImage | None]
    ) -> None:
        """`brokers` are those that run, `newest` is the newest image that any node has applied."""
        self._world = world
        self._brokers = brokers
        self._newest = newest
        self.loose: frozenset[str] = frozenset()
        """Topics of which leaders may lack what was committed."""
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._marks: dict[tuple[bytes, int, int], int] = {}
        """High watermarks of leaders, by topic id, index and leader epoch."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hears inside the block of everyone who begins to lead, of everything that is committed, and of who may be
        elected."""
        with ExitStack() as taps:
            taps.enter_context(after_each(Replica, "become_leader", self._leads))
            taps.enter_context(after_each(PartitionState, "_commit", self._committed))
            taps.enter_context(after_each(Log, "truncate_to", self._cut))
            taps.enter_context(after_each(QuorumDriver, "_publish", self._applied))
            taps.enter_context(before_each(Uncommitted, "push", self._decided))
            yield

    def look(self) -> None:
        """At any time."""
        for broker in self._brokers():
            for replica in list(broker.replicas.by_name.values()):
                if replica.state.role is Role.LEADER:
                    self._leads(replica)
                    self._goes_on(replica)
        self._look_at_all()

    def _leads(self, replica: Replica, *_: object) -> None:
        """An epoch of a partition has one leader, for however short a time."""
        state = replica.state
        key = (replica.topic_id, replica.index, state.leader_epoch)
        first = self._leaders.setdefault(key, state.node_id)
        text = f"epoch {state.leader_epoch} of {replica.topic}-{replica.index} has two leaders"
        self._world.demand(first == state.node_id, f"{text}: {first} and {state.node_id}")
        self._world.demand(set(state.isr) <= set(state.replicas), f"{replica.key}: {state.isr} is in sync")

    def _goes_on(self, replica: Replica) -> None:
        """What a leader has called committed stays so in its epoch."""
        state = replica.state
        key = (replica.topic_id, replica.index, state.leader_epoch)
        before, now = self._marks.get(key, 0), state.high_watermark
        text = (
            f"{replica.topic}-{replica.index} was committed to {before} in epoch {state.leader_epoch}, and is to {now}"
        )
        self._world.demand(now >= before, text)
        self._marks[key] = max(before, now)

    def _cut(self, log: Log, *_: object, **__: object) -> None:
        """A replica that may lead was not cut below what is committed, however soon it has that again."""
        image = self._newest()
        name, index = log.topic_partition
        topic = None if image is None else image.topics.by_name(name)
        if topic is None or name in self.loose or index >= len(topic.partitions):
            return
        held = {broker.node_id: broker.replicas.held((name, index)) for broker in self._brokers()}
        here = {node: each for node, each in held.items() if each is not None and each.topic_id == topic.id}
        committed = max((each.state.high_watermark for each in here.values()), default=0)
        partition = topic.partitions[index]
        for node in (*partition.isr, *partition.eligible_leaders):
            if node in here and here[node].log is log and log.end_offset < committed:
                text = f"{name}-{index} is committed to {committed}, and was cut to {log.end_offset} on {node}"
                self._world.object(f"{text}, which may lead: {partition}")

    def _look_at_all(self) -> None:
        image = self._newest()
        if image is not None:
            for topic in image.topics:
                for partition in topic.partitions:
                    self._look_at(topic, partition)

    def _applied(self, _: QuorumDriver, change: Change) -> None:
        if change.after is self._newest():
            self._look_at_all()

    def _decided(self, _: Uncommitted, __: int, change: Change | None, *___: object) -> None:
        """Who comes into an in-sync set may be elected from then on: it is neither fenced nor about to leave."""
        if change is None:
            return
        brokers = change.after.brokers
        for delta in change.delta.topics.values():
            if delta.new is None:
                continue
            before = delta.old.partitions if delta.old is not None else ()
            for index in delta.changed:
                partition = delta.new.partitions[index]
                members = before[index].isr if index < len(before) else ()
                for node in set(partition.isr) - set(members):
                    if brokers[node].fenced or brokers[node].in_controlled_shutdown:
                        text = f"{delta.name}-{index} takes node {node} in, which is fenced or about to leave"
                        self._world.object(f"{text}: {partition}")

    def _look_at(self, topic: Topic, partition: Partition) -> None:
        """Every electable replica has all that is committed, whichever replica knows that it is: as in the TLA+ model
        (KIP-966).
        """
        if topic.name in self.loose:
            return
        key = (topic.name, partition.index)
        held = {broker.node_id: broker.replicas.held(key) for broker in self._brokers()}
        here = {node: each for node, each in held.items() if each is not None and each.topic_id == topic.id}
        committed = max((each.state.high_watermark for each in here.values()), default=0)
        for node in (*partition.isr, *partition.eligible_leaders):
            if node in here and not here[node].is_being_cut and (end := here[node].log.end_offset) < committed:
                text = f"{topic.name}-{partition.index} is committed to {committed}, and ends at {end} on {node}"
                self._world.object(f"{text}, which may lead: {partition}")

    def _committed(self, state: PartitionState, *_: Any) -> None:
        replica = self._led(state)
        if replica is None:
            return
        self._goes_on(replica)
        wanted = min(replica.log.config.min_insync_replicas, len(state.replicas))
        if len(state.isr) < wanted:
            text = f"{replica.topic}-{replica.index} is committed to {state.high_watermark} by {state.isr}"
            self._world.object(f"{text}: {wanted} have to be in sync")
        image = self._newest()
        topic = None if image is None else image.topics.by_id(replica.topic_id)
        if topic is not None:
            self._look_at(topic, topic.partitions[replica.index])

    def _led(self, state: PartitionState) -> Replica | None:
        """The replica that a leader's state is of; None for a follower, and for a broker that does not run."""
        if state.role is not Role.LEADER:
            return None
        broker = next((each for each in self._brokers() if each.node_id == state.node_id), None)
        if broker is None:
            return None
        return next((each for each in list(broker.replicas.by_name.values()) if each.state is state), None)
