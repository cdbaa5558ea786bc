"""Members of both protocols in any order of events: no partition is read by two, whatever the group is, and it comes to
rest; and what a load finds is what was decided.

Classic clients are eager here: from its JoinGroup to the answer to its SyncGroup such a client reads nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from groups.consumer.mixed import MixedGroups
from groups.consumer.test_machine import flat, tables
from groups.member_bytes import counted, kept
from groups.scripted import Waiter, topic_id
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peers.tried import tried

from headrace.groups.classic.states import GroupState
from headrace.groups.consumer.group import ConsumerGroup, PartitionId
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k11_join_group import JoinGroupResponse
from headrace.wire.messages.k12_heartbeat import HeartbeatResponse
from headrace.wire.messages.k14_sync_group import SyncGroupResponse

CLASSIC = ("a", "b")
NEWER = ("c", "d")
INSTANCES = {"b": " instance=i1", "d": " instance=i1"}
"""One static member, which comes now with the one protocol and now with the other."""
PARTITIONS = 4
ROUNDS = 24


class Clients(MixedGroups):
    """Classic clients that do what comes next; see `step`."""

    def __init__(self) -> None:
        super().__init__()
        self.stands = dict.fromkeys(CLASSIC, "out")
        """out, joins (its JoinGroup waits), joined, syncs (its SyncGroup waits), stable, or rejoins."""
        self.leads: dict[str, list[str]] = {}
        """For a leader, the member ids of its generation."""
        self.reads: dict[str, set[PartitionId]] = {}

    def answer(self, waiter: Waiter, response: Any) -> None:
        super().answer(waiter, response)
        name = waiter.client.name
        if isinstance(response, ErrorCode):
            if name in CLASSIC:
                self.stands[name] = "rejoins"
        elif isinstance(response, (JoinGroupResponse, SyncGroupResponse, HeartbeatResponse)):
            self._classic_answer(name, response)
        elif response.error_code:
            waiter.client.generation, self.reads[name] = 0, set()

    def _classic_answer(self, name: str, response: Any) -> None:
        error = ErrorCode(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.stands[name] = "rejoins"
        elif error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self.stands[name] = "rejoins"
            if error is ErrorCode.ILLEGAL_GENERATION:
                self.reads[name] = set()
        elif error is not ErrorCode.NONE:
            self.stands[name], self.clients[name].member_id, self.reads[name] = "out", "", set()
        elif isinstance(response, JoinGroupResponse):
            self.stands[name] = "joined"
            self.leads[name] = [each.member_id for each in response.members]
        elif isinstance(response, SyncGroupResponse):
            self.stands[name] = "stable"
            self.reads[name] = flat(self.has[name])

    def step(self, name: str) -> None:
        """What a client of the classic protocol does next."""
        stands, static = self.stands[name], INSTANCES.get(name, "")
        if stands in ("out", "rejoins"):
            self.stands[name], self.reads[name] = "joins", set()
            self.do(f"classic-join g {name}{static} rebalance=20000")
        elif stands == "joined":
            self.stands[name] = "syncs"
            named = {self.clients[each].member_id: each for each in self.clients}
            led = [named[each] for each in self.leads[name] if each in named]
            shares = [
                f"{each}={','.join(f't-{p}' for p in range(at, PARTITIONS, len(led)))}" for at, each in enumerate(led)
            ]
            self.do(f"classic-sync g {name}{static} {' '.join(shares)}")
        elif stands == "stable":
            self.do(f"classic-heartbeat g {name}{static}")


class ConversionsInAnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = Clients()
        self.machine.do("settings initial_rebalance_delay_ms=100")
        self.machine.do("time 1000")
        self.machine.do(f"topic t {PARTITIONS}")

    # --- clients -----------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(CLASSIC))
    def classic_step(self, name: str) -> None:
        self.machine.step(name)

    @rule(name=st.sampled_from(CLASSIC))
    def classic_leave(self, name: str) -> None:
        if self.machine.stands[name] in ("stable", "rejoins", "joined"):
            self.machine.stands[name], self.machine.reads[name] = "out", set()
            self.machine.do(f"classic-leave g {name}{INSTANCES.get(name, '')}")
            self.machine.client(name).member_id = ""

    @rule(name=st.sampled_from(NEWER))
    def join(self, name: str) -> None:
        self.machine.client(name).generation = 0
        self.machine.reads[name] = set()
        self.machine.do(f"join g {name} rebalance=20000{INSTANCES.get(name, '')}")

    @rule(name=st.sampled_from(NEWER))
    def heartbeat(self, name: str) -> None:
        if self.machine.client(name).generation > 0:
            self.machine.reads[name] = flat(self.machine.has.get(name, {}))
            how = "full" if name in self.machine.doubts else "done"
            self.machine.doubts.discard(name)
            self.machine.do(f"heartbeat g {name} --{how}{INSTANCES.get(name, '')}")

    @rule(name=st.sampled_from(NEWER), for_a_while=st.booleans())
    def leave(self, name: str, for_a_while: bool) -> None:
        if self.machine.client(name).generation > 0:
            self.machine.reads[name] = set()
            self.machine.client(name).generation = -1
            static = INSTANCES.get(name, "")
            self.machine.do(f"leave g {name}{' --for-a-while' * (for_a_while and static != '')}{static}")

    # --- the world ---------------------------------------------------------------------------------------------------

    @rule(by_ms=st.sampled_from([100, 1_000, 9_000, 21_000, 46_000]))
    def pass_time(self, by_ms: int) -> None:
        self.machine.do(f"time {by_ms}")

    @rule()
    def hold(self) -> None:
        self.machine.do("hold")

    @rule()
    def release(self) -> None:
        self.machine.do("committed")

    @rule()
    def lose(self) -> None:
        self.machine.do("fail NOT_ENOUGH_REPLICAS")

    @rule(times=st.integers(1, 2))
    def refuse(self, times: int) -> None:
        """The log takes nothing for a while."""
        self.machine.do("refuse NOT_LEADER_OR_FOLLOWER")
        for name in (*CLASSIC, *NEWER)[: 2 * times]:
            if name in CLASSIC:
                self.classic_step(name)
            else:
                self.join(name)
        self.machine.do("refuse NONE")

    @precondition(lambda self: not self.machine.holding)
    @rule()
    def reload(self) -> None:
        before = self.machine.shard.state.modern.latest.get("g")
        said = tables(before) if isinstance(before, ConsumerGroup) else None
        self.machine.do("unload")
        self.machine.do("reload")
        after = self.machine.shard.state.modern.latest.get("g")
        assert (tables(after) if isinstance(after, ConsumerGroup) else None) == said

    @rule()
    def come_to_rest(self) -> None:
        self.machine.do("committed")
        self.machine.do("time 46000")
        for _ in range(ROUNDS):
            self.machine.do("time 1000")
            for name in CLASSIC:
                self.machine.step(name)
            for name in NEWER:
                self.heartbeat(name)
        assert set(self.machine.stands.values()) == {"stable"}, self.machine.stands
        state = self.machine.shard.state
        assert sum("g" in each for each in (state.groups, state.modern.latest)) == 1
        if "g" in state.groups:
            assert state.groups["g"].state is GroupState.STABLE
        read = sorted(partition for reads in self.machine.reads.values() for partition in reads)
        assert read == [(topic_id("t"), partition) for partition in range(PARTITIONS)]

    # --- what holds at all times -------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_read_twice(self) -> None:
        """Whoever is out and has not heard of it does not count: its session ended, and so it stopped."""
        state = self.machine.shard.state
        group = state.modern.latest.get("g")
        members = set(group.members.latest) if isinstance(group, ConsumerGroup) else set()
        if "g" in state.groups:
            members = set(state.groups["g"].members)
        seen: dict[PartitionId, str] = {}
        for name, reads in sorted(self.machine.reads.items()):
            if self.machine.client(name).member_id in members:
                for partition in reads:
                    assert seen.setdefault(partition, name) == name, (partition, seen[partition], name)

    @invariant()
    def what_members_keep_is_known(self) -> None:
        assert kept(self.machine.shard.state) == counted(self.machine.shard.state)

    @invariant()
    def a_group_is_one_or_the_other(self) -> None:
        state = self.machine.shard.state
        modern = state.modern.latest.get("g")
        if isinstance(modern, ConsumerGroup) and modern.has_members:
            assert "g" not in state.classic.latest
            for member_id, member in modern.members.latest.items():
                assert ("consumer-session", "g", member_id) in state.timers, member_id
                assert (member.classic is not None) == (member_id not in NEWER)
            assert modern.classic_count == sum(each.classic is not None for each in modern.members.latest.values())
            for name, count in modern.classic_protocols.latest.items():
                assert name is None or count == modern.classic_count


TestConversionsInAnyOrder = ConversionsInAnyOrder.TestCase
TestConversionsInAnyOrder.settings = settings(max_examples=tried(60), stateful_step_count=40, deadline=None)


def test_a_classic_member_replaces_one_that_has_no_target_yet() -> None:
    """A target of the classic member that was left in the log kept the consumer group there, beside the classic one."""
    clients = Clients()
    clients.do("time 1000")
    clients.do(f"topic t {PARTITIONS}")
    clients.do("join g c rebalance=20000")
    clients.do("join g d rebalance=20000 instance=i1")  # within the interval between two targets
    clients.do("leave g c")
    clients.step("b")
    state = clients.shard.state
    assert "g" in state.groups and "g" not in state.modern.latest
    clients.do("join g c rebalance=20000")
    assert "g" in state.modern.latest and "g" not in state.classic.latest


def test_a_member_is_given_nothing_that_a_classic_one_has_not_given_up() -> None:
    """The only member of the newer protocol leaves and comes back before the classic ones have joined again."""
    machine = ConversionsInAnyOrder()
    machine.come_to_rest()
    for step in (machine.join, partial(machine.leave, for_a_while=False), machine.join, machine.heartbeat):
        step(name="c")
        machine.nothing_is_read_twice()
    assert flat(machine.machine.has["c"]) == set()
    machine.come_to_rest()
