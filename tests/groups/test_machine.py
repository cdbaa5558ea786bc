"""Any order of events: what must hold of a shard after each of them, and that the log alone gives the same groups."""

from __future__ import annotations

from groups.member_bytes import counted, kept
from groups.scripted import Coordinator
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from peers.tried import tried

from headrace.broker.requests.pieces import at_once
from headrace.groups.classic.group import Group
from headrace.groups.classic.states import GroupState
from headrace.groups.records import decode
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup

GROUPS = st.sampled_from(["g", "h"])
CLIENTS = st.sampled_from(["a", "b", "c", "d"])
INSTANCES = {"c": "i1", "d": "i2"}
"""Two of the clients are static members."""


class GroupsInAnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = Coordinator(GroupSettings(max_size=3, offsets_retention_ms=300_000))
        self.generations: dict[str, int] = {}
        self.deleted: set[str] = set()

    def do(self, command: str) -> None:
        self.machine.do(command)

    def static(self, client: str) -> str:
        return f" instance={INSTANCES[client]}" if client in INSTANCES else ""

    @rule(group=GROUPS, client=CLIENTS, protocols=st.sampled_from(["range", "range,sticky", "sticky,range"]))
    def join(self, group: str, client: str, protocols: str) -> None:
        self.do(f"join {group} {client} protocols={protocols}{self.static(client)}")

    @rule(group=GROUPS, client=CLIENTS)
    def forget_who_i_am(self, group: str, client: str) -> None:
        self.machine.client(client).member_id = ""
        self.do(f"join {group} {client}{self.static(client)}")

    @rule(group=GROUPS, client=CLIENTS)
    def sync(self, group: str, client: str) -> None:
        state = self.machine.shard.state.groups.get(group)
        assigned = ",".join(f"{member}:{member}" for member in state.members) if state is not None else ""
        self.do(f"sync {group} {client} assign={assigned}{self.static(client)}")

    @rule(group=GROUPS, clients=st.sets(CLIENTS, min_size=1, max_size=3))
    def bring_together(self, group: str, clients: set[str]) -> None:
        """A generation that comes to its end, unless something stands in its way."""
        for client in sorted(clients):
            self.do(f"join {group} {client}{self.static(client)}")
            self.do(f"join {group} {client}{self.static(client)}")
        self.do("committed")
        for _ in range(70):
            state = self.machine.shard.state.groups.get(group)
            if state is None or state.state is not GroupState.PREPARING_REBALANCE:
                break
            self.do("time 1000")
        for client in sorted(clients):
            self.sync(group, client)

    @rule(group=GROUPS, client=CLIENTS)
    def heartbeat(self, group: str, client: str) -> None:
        self.do(f"heartbeat {group} {client}{self.static(client)}")

    @rule(group=GROUPS, client=CLIENTS)
    def leave(self, group: str, client: str) -> None:
        self.do(f"leave {group} {client}")

    @rule(group=GROUPS, client=CLIENTS, partition=st.integers(0, 2), position=st.integers(0, 99))
    def commit(self, group: str, client: str, partition: int, position: int) -> None:
        self.do(f"commit {group} {client} t-{partition}={position}{self.static(client)}")

    @rule(group=GROUPS, partition=st.integers(0, 2))
    def commit_to_an_empty_group(self, group: str, partition: int) -> None:
        self.do(f"commit {group} admin u-{partition}=1")

    @rule(group=GROUPS)
    def delete(self, group: str) -> None:
        self.do(f"delete {group}")

    @rule(by_ms=st.sampled_from([10, 3_000, 9_000, 60_000, 700_000]))
    def pass_time(self, by_ms: int) -> None:
        self.do(f"time {by_ms}")

    @rule()
    def hold(self) -> None:
        self.do("hold")

    @rule()
    def release(self) -> None:
        self.do("committed")

    @rule(error=st.sampled_from(["KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER"]))
    def lose(self, error: str) -> None:
        """What was appended and not committed is gone from the log, and from the groups."""
        self.do(f"fail {error}")
        self.generations = {group_id: group.generation for group_id, group in self.machine.shard.state.groups.items()}

    @rule()
    def move_to_another_broker(self) -> None:
        """Nothing but the log comes along, and it gives what was stable, and what was committed."""
        self.do("committed")
        before = self.machine.shard
        live = {group_id: durable(group) for group_id, group in before.state.groups.items()}
        offsets = {group_id: dict(table.latest) for group_id, table in before.state.offsets.latest.items()}
        self.do("reload")
        after = self.machine.shard
        for group_id, said in live.items():
            if said is not None:
                assert durable(after.state.groups[group_id]) == said
        assert set(after.state.groups) == set(live)
        assert {group_id: dict(table.latest) for group_id, table in after.state.offsets.latest.items()} == offsets
        self.generations = {group_id: group.generation for group_id, group in after.state.groups.items()}

    @invariant()
    def nobody_is_told_what_is_not_committed(self) -> None:
        """Another coordinator, that has the committed log alone, tells the same of what lies in the log."""
        machine = self.machine
        committed = GroupShard(GroupSettings(), lambda: "")
        for offset, (key, value) in enumerate(machine.log[: machine.high_watermark]):
            record = decode(key, value)
            assert record is not None
            committed.apply(record, offset)
        assert told(machine.shard) == told(committed)
        assert len(machine.log) == machine.runtime.written_offset

    @invariant()
    def groups_are_whole(self) -> None:
        state = self.machine.shard.state
        assert kept(state) == counted(state)
        for group_id, group in state.groups.items():
            check(group)
            for member in group.members.values():
                waits = member.join_waiter is not None or member.sync_waiter is not None
                assert waits or member.session_key in state.timers
            if group.state is GroupState.PREPARING_REBALANCE:
                assert ("join", group_id) in state.timers
            assert group.generation >= self.generations.get(group_id, 0) or group.generation == 0
        self.generations = {group_id: group.generation for group_id, group in state.groups.items()}
        assert set(state.classic.latest) <= set(state.groups)
        assert not any(table.is_empty for table in state.offsets.latest.values())
        if self.machine.high_watermark == len(self.machine.log):
            assert not len(state.timeline)
            assert state.offsets.committed_items() == list(state.offsets.latest.items())


def told(shard: GroupShard) -> object:
    """What others are told of a shard's log: groups, offsets, and the members of a stable group."""
    offsets = {}
    for group_id, _ in shard.state.classic.committed_items():
        found = at_once(shard.fetching(OffsetFetchRequestGroup(group_id=group_id, topics=None), require_stable=True))
        offsets[group_id] = [
            (topic.name, p.partition_index, p.committed_offset) for topic in found.topics for p in topic.partitions
        ]
    listed = [group.group_id for group in shard.list_groups((), ())]
    generations = {group_id: stored.generation for group_id, stored in shard.state.classic.committed_items()}
    return sorted(listed), offsets, generations


def check(group: Group) -> None:
    """What holds of a group at all times."""
    members = list(group.members.values())
    assert (group.leader in group.members) if members else group.leader is None
    assert group.joined_count == sum(member.join_waiter is not None for member in members)
    assert group.static_members == {m.instance_id: m.id for m in members if m.instance_id is not None}
    assert all(member.id == member_id for member_id, member in group.members.items())
    assert not group.pending_joins & set(group.members)
    assert group.pending_syncs <= set(group.members)
    for name, count in group.support.items():
        assert count == sum(name in member.protocols for member in members)
    if group.state is GroupState.EMPTY:
        assert not members
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        assert members
        assert all(group.protocol in member.protocols for member in members)
        assert all(member.join_waiter is None or member.instance_id is not None for member in members)
    if group.state is not GroupState.COMPLETING_REBALANCE:
        assert all(member.sync_waiter is None for member in members)


def durable(group: Group) -> object:
    """What a restart must keep of a group: the generation of a stable one, nothing of one that is on the move."""
    if group.state is GroupState.STABLE:
        members = {m.id: (m.instance_id, m.assignment, m.session_timeout_ms) for m in group.members.values()}
        return (group.state, group.generation, group.protocol, group.leader, group.protocol_type, members)
    if group.state is GroupState.EMPTY:
        return (group.state, group.generation)
    return None


TestGroupsInAnyOrder = GroupsInAnyOrder.TestCase
TestGroupsInAnyOrder.settings = settings(max_examples=tried(60), stateful_step_count=30, deadline=None)


def test_a_failed_append_leaves_no_offset() -> None:
    machine = Coordinator()
    machine.do("commit g a t-0=1")
    machine.do("hold")
    machine.do("commit g a t-0=2")
    machine.do(f"fail {ErrorCode.KAFKA_STORAGE_ERROR.name}")
    assert machine.do("fetch g") == ["t-0 = 1"]
