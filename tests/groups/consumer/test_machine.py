"""Any order of events: no partition is read by two members, every group comes to rest, and little moves."""

from __future__ import annotations

import sys

from groups.consumer.scripted import ConsumerGroups
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peers.tried import tried

from headrace.broker.requests.pieces import at_once
from headrace.groups.consumer.group import ConsumerGroup, PartitionId
from headrace.groups.consumer.records import ConsumerRecord, Kind, MemberState
from headrace.groups.modern.epochs import GroupEpoch
from headrace.groups.records import decode
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.machine.timed_steps import in_one_turn
from headrace.wire.messages.k69_consumer_group_describe import DescribedGroup

CLIENTS = st.sampled_from(["a", "b", "c", "d"])
INSTANCES = {"c": " instance=i1", "d": " instance=i2"}
"""Two of the clients are static members."""
TOPICS = st.sampled_from(["t", "u", "t,u", "t,v", ""])
ROUNDS = 12
"""Heartbeats of everybody in which a group that nothing disturbs comes to rest."""


def group_of(machine: ConsumerGroups) -> ConsumerGroup | None:
    group = machine.shard.state.modern.latest.get("g")
    assert group is None or isinstance(group, ConsumerGroup)
    return group


def described(shard: GroupShard) -> DescribedGroup:
    return at_once(shard.describing_consumer_group("g"))


def flat(partitions: dict[bytes, list[int]]) -> set[PartitionId]:
    return {(topic, partition) for topic, all_ in partitions.items() for partition in all_}


class ConsumersInAnyOrder(RuleBasedStateMachine):
    """`reads` is what a client really has: it follows what it is told when it gets to it (`heartbeat_done`)."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = ConsumerGroups()
        self.machine.do("time 1000")
        self.machine.do("topic t 3")
        self.machine.do("topic u 2")
        self.reads: dict[str, set[PartitionId]] = {}

    def do(self, command: str) -> None:
        self.machine.do(command)
        for name, client in self.machine.clients.items():
            if client.generation <= 0:
                self.reads[name] = set()  # it heard that it is out, or left

    def static(self, client: str) -> str:
        return INSTANCES.get(client, "")

    # --- clients -----------------------------------------------------------------------------------------------------

    @rule(client=CLIENTS, topics=TOPICS, assignor=st.sampled_from(["", " assignor=range"]))
    def join(self, client: str, topics: str, assignor: str) -> None:
        """Somebody who joins has nothing."""
        self.machine.client(client).generation = 0
        self.do(f"join g {client} topics={topics} rebalance=20000{assignor}{self.static(client)}")

    @rule(client=CLIENTS)
    def heartbeat(self, client: str) -> None:
        if self.machine.client(client).generation > 0:
            self.do(f"heartbeat g {client}{self.static(client)}")

    @rule(client=CLIENTS)
    def heartbeat_done(self, client: str) -> None:
        """It revokes what it shall not have, then tells so, and reads what it was told."""
        if self.machine.client(client).generation > 0:
            told = flat(self.machine.has.get(client, {}))
            self.reads[client] = told
            how = "full" if client in self.machine.doubts else "done"
            self.machine.doubts.discard(client)
            self.do(f"heartbeat g {client} --{how}{self.static(client)}")

    @rule(client=CLIENTS)
    def heartbeat_whose_answer_is_lost(self, client: str) -> None:
        known = self.machine.client(client)
        if known.generation > 0:
            epoch, has = known.generation, self.machine.has.get(client, {})
            self.do(f"heartbeat g {client} --done{self.static(client)}")
            if known.generation > 0:
                known.generation, self.machine.has[client] = epoch, has
                self.machine.doubts.add(client)

    @rule(client=CLIENTS, topics=TOPICS)
    def subscribe(self, client: str, topics: str) -> None:
        if self.machine.client(client).generation > 0:
            self.do(f"heartbeat g {client} topics={topics}{self.static(client)}")

    @rule(client=CLIENTS, for_a_while=st.booleans())
    def leave(self, client: str, for_a_while: bool) -> None:
        if self.machine.client(client).generation > 0:
            self.reads[client] = set()
            self.machine.client(client).generation = -1
            self.do(f"leave g {client}{' --for-a-while' * for_a_while}{self.static(client)}")

    # --- the world ---------------------------------------------------------------------------------------------------

    @rule(topic=st.sampled_from(["t", "u", "v"]), count=st.integers(0, 5), anew=st.sampled_from(["", " id=other"]))
    def change_topic(self, topic: str, count: int, anew: str) -> None:
        before = self.machine.topics.get(topic)
        if before is None or count == 0 or count >= before.partition_count:
            self.do(f"topic {topic} {count}{anew and anew + topic}")

    @rule(by_ms=st.sampled_from([100, 1_000, 19_000, 46_000]))
    def pass_time(self, by_ms: int) -> None:
        self.do(f"time {by_ms}")

    @rule()
    def hold(self) -> None:
        self.do("hold")

    @rule()
    def release(self) -> None:
        self.do("committed")

    @rule()
    def lose(self) -> None:
        self.do("fail NOT_ENOUGH_REPLICAS")

    @precondition(lambda self: not self.machine.holding)
    @rule()
    def reload(self) -> None:
        before = group_of(self.machine)
        said = None if before is None else tables(before)
        self.do("committed")
        self.do("reload")
        after = group_of(self.machine)
        assert (None if after is None else tables(after)) == said

    @rule()
    def come_to_rest(self) -> None:
        """Nothing disturbs the group: everybody gets what it shall have, and everything is read."""
        self.do("committed")
        for _ in range(ROUNDS):
            self.do("time 1000")
            for client in list(self.machine.clients):
                self.heartbeat_done(client)
        group = group_of(self.machine)
        if group is None:
            return
        state = self.machine.shard.state
        away = [member_id for member_id in group.members.latest if group.current(member_id).epoch <= 0]
        silent = [m for m in group.members.latest if self.machine.client(m).generation <= 0]
        if away or silent or not group.members.latest:
            return
        assert group.committed_state == "Stable", self.machine.do("describe g")
        shall_be_read = {
            (info.id, partition)
            for name in group.topics()
            if (info := state.topics.by_name.get(name)) is not None
            for partition in range(info.partition_count)
        }
        are_read = [partition for member_id in group.members.latest for partition in self.reads[member_id]]
        assert sorted(are_read) == sorted(shall_be_read)

    # --- what holds at all times -------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_read_twice(self) -> None:
        """Whoever was fenced and has not heard of it does not count: its session ended, and so it stopped."""
        group = group_of(self.machine)
        if group is None:
            return
        seen: dict[PartitionId, str] = {}
        for member_id in group.members.latest:
            for partition in self.reads.get(member_id, ()):
                assert seen.setdefault(partition, member_id) == member_id, (partition, seen[partition], member_id)

    @invariant()
    def a_group_is_whole(self) -> None:
        group = group_of(self.machine)
        if group is None:
            return
        check(group)
        for member_id in group.members.latest:
            assert ("consumer-session", "g", member_id) in self.machine.shard.state.timers
            if group.current(member_id).state is MemberState.UNREVOKED and group.current(member_id).epoch > 0:
                assert ("consumer-rebalance", "g", member_id) in self.machine.shard.state.timers

    @invariant()
    def nobody_is_told_what_is_not_committed(self) -> None:
        """Another coordinator, that has the committed log alone, tells the same of what lies in the log."""
        machine = self.machine
        committed = GroupShard(GroupSettings(), lambda: "")
        committed.know_topics(machine.shard.state.topics)
        for offset, (key, value) in enumerate(machine.log[: machine.high_watermark]):
            record = decode(key, value)
            assert record is not None
            committed.apply(record, offset)
        assert described(machine.shard) == described(committed)
        assert machine.shard.list_groups((), ()) == committed.list_groups((), ())


def tables(group: ConsumerGroup) -> object:
    """Everything that a group keeps, and what follows from it."""
    kept = (group.epochs, group.members, group.target_epochs, group.targets, group.currents, group.regexes)
    follows = (group.holders, group.instances, group.readers, group.regex_readers, group.votes)
    return [dict(table.latest) for table in (*kept, *follows)]


def check(group: ConsumerGroup) -> None:
    """What is counted from the records is what they say."""
    members = group.members.latest
    assert group.instances.latest == {m.instance_id: key for key, m in members.items() if m.instance_id is not None}
    readers: dict[str, int] = {}
    for member in members.values():
        for topic in member.topics:
            readers[topic] = readers.get(topic, 0) + 1
    assert group.readers.latest == readers
    holders: dict[PartitionId, str] = {}
    for member_id, current in group.currents.latest.items():
        for held in (current.assigned, current.revoking):
            for partition in flat({topic: list(epochs) for topic, epochs in held.items()}):
                assert holders.setdefault(partition, member_id) == member_id
    assert group.holders.latest == holders
    assert set(group.currents.latest) <= set(members) and set(group.targets.latest) <= set(members)
    assert group.target_epoch.epoch <= group.epoch.epoch
    for member_id in members:
        assert group.current(member_id).epoch <= group.target_epoch.epoch


TestConsumersInAnyOrder = ConsumersInAnyOrder.TestCase
TestConsumersInAnyOrder.settings = settings(max_examples=tried(60), stateful_step_count=30, deadline=None)


# --- what moves ------------------------------------------------------------------------------------------------------


def at_rest(partitions: int, members: list[str]) -> ConsumerGroups:
    machine = ConsumerGroups()
    machine.do("time 1000")
    machine.do(f"topic t {partitions}")
    for member in members:
        machine.do(f"join g {member}")
        machine.do("time 1000")
    rest(machine, members)
    return machine


def rest(machine: ConsumerGroups, members: list[str]) -> None:
    for _ in range(ROUNDS):
        for member in members:
            machine.do(f"heartbeat g {member} --done")
        machine.do("time 1000")
    assert described(machine.shard).group_state == "Stable"


@settings(max_examples=tried(40), deadline=None)
@given(st.integers(1, 20), st.integers(2, 6), st.data())
def test_when_one_leaves_the_others_keep_what_they_have(partitions: int, count: int, data: st.DataObject) -> None:
    members = [f"m{each}" for each in range(count)]
    machine = at_rest(partitions, members)
    before = {member: flat(machine.has[member]) for member in members}
    assert max(map(len, before.values())) - min(map(len, before.values())) <= 1
    gone = data.draw(st.sampled_from(members))
    machine.do(f"leave g {gone}")
    members.remove(gone)
    rest(machine, members)
    for member in members:
        assert before[member] <= flat(machine.has[member])


@settings(max_examples=tried(40), deadline=None)
@given(st.integers(1, 20), st.integers(1, 5))
def test_when_one_joins_the_others_get_nothing_new(partitions: int, count: int) -> None:
    members = [f"m{each}" for each in range(count)]
    machine = at_rest(partitions, members)
    before = {member: flat(machine.has[member]) for member in members}
    machine.do("join g new")
    machine.do("time 1000")
    rest(machine, [*members, "new"])
    for member in members:
        assert flat(machine.has[member]) <= before[member]
    assert len(flat(machine.has["new"])) == partitions // (count + 1)


def calls_of_a_heartbeat(count: int) -> int:
    """How many functions a heartbeat that changes nothing calls, in a group of so many members."""
    members = [f"m{each}" for each in range(count)]
    machine = at_rest(count, ["m0"])
    for member in members[1:]:
        machine.do(f"join g {member}")
    rest(machine, members)
    written, calls = len(machine.log), 0

    def count_calls(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count_calls)
    try:
        machine.do("heartbeat g m0")
    finally:
        sys.setprofile(None)
    assert len(machine.log) == written
    return calls


def test_a_heartbeat_that_changes_nothing_costs_the_same_in_any_group_and_writes_nothing() -> None:
    assert calls_of_a_heartbeat(60) == calls_of_a_heartbeat(3)


def test_every_cut_of_a_rebalance_can_be_loaded_and_comes_to_rest() -> None:
    """The coordinator moves after any batch of a rebalance, and nobody reads what another one does."""
    steps = ["join g a", "time 2000", "join g b", "heartbeat g a", "heartbeat g a --done", "heartbeat g b --done"]
    steps += ["time 2000", "join g c", "heartbeat g a", "heartbeat g b", "heartbeat g a --done", "heartbeat g b --done"]
    for cut in range(1, len(steps) + 1):
        machine = ConsumerGroups()
        machine.do("time 1000")
        machine.do("topic t 5")
        for step in steps[:cut]:
            machine.do(step)
        machine.do("reload")
        members: list[str] = sorted(machine.has)
        machine.do("time 2000")
        rest(machine, members)
        read = [partition for member in members for partition in flat(machine.has[member])]
        assert len(read) == len(set(read)) == 5


def test_records_of_an_unknown_kind_of_state_are_taken_on_from_nothing_alone() -> None:
    machine = at_rest(2, ["a"])
    group = group_of(machine)
    assert group is not None
    key, value = next((k, v) for k, v in reversed(machine.log) if k[:2] == b"\x00\x08")
    assert value is not None
    machine.log.append((key, value[:10] + b"\x09" + value[11:]))
    machine.do("reload")
    record = decode(*machine.log[-1])
    assert isinstance(record, ConsumerRecord)
    assert "FENCED_MEMBER_EPOCH" in machine.do("heartbeat g a --done")[-1]
    assert machine.do("join g a")[-1] == "a joins: epoch=2 has [t-0 t-1]"


def test_who_is_fenced_before_topics_are_told_leaves_their_hash_as_it_was() -> None:
    machine = at_rest(2, ["a"])
    group = group_of(machine)
    assert group is not None and group.epoch.metadata_hash != 0
    before = group.epoch
    shard = GroupShard(GroupSettings(), lambda: "")
    for offset, (key, value) in enumerate(machine.log):
        record = decode(key, value)
        assert record is not None
        shard.apply(record, offset)
    in_one_turn(shard.starting(0), 0)
    out = shard.due(45_000)
    assert out is not None
    assert out.records[-1] == ConsumerRecord("g", Kind.EPOCH, "", GroupEpoch(before.epoch + 1, before.metadata_hash))
