"""What members of groups keep in memory has a bound, and one principal has half of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from groups.consumer.mixed import MixedGroups
from groups.consumer.scripted import ConsumerGroups
from groups.member_bytes import counted, kept
from groups.scripted import Coordinator, Waiter

from headrace.groups import shard_state
from headrace.groups.classic.group import Member as ClassicMember
from headrace.groups.classic.join import PROTOCOLS_MAX, join
from headrace.groups.consumer.heartbeat import what_is_wrong
from headrace.groups.consumer.records import Member
from headrace.groups.group_client import GroupClient
from headrace.groups.subscription import MEMBER_NAMES_MAX
from headrace.groups.tally import Tally
from headrace.groups.usage import MemberUsage, Usage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

LARGE = "m" * 600


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_state, "MEMBER_BYTES_MAX", 2_000)
    monkeypatch.setattr(shard_state, "PRINCIPAL_MEMBER_BYTES_MAX", 1_000)


def said(machine: Coordinator, command: str) -> str:
    return machine.do(command)[-1]


def test_a_join_that_brings_too_much_is_refused() -> None:
    classic = Coordinator()
    for name in ("a", "a"):  # the first time it is told its id
        classic.do(f"join g {name} metadata={LARGE}")
    assert "COORDINATOR_NOT_AVAILABLE" in said(classic, f"join h b metadata={LARGE}")
    assert "b" not in {name for group in classic.shard.state.groups.values() for name in group.members}
    assert "MEMBER_ID_REQUIRED" in said(classic, "join h c metadata=m"), "a small one fits"
    classic.do("principal User:v")
    assert "MEMBER_ID_REQUIRED" in said(classic, f"join i d metadata={LARGE}"), "another principal has a share too"


def test_one_that_is_in_joins_again() -> None:
    classic = Coordinator()
    classic.do("settings initial_rebalance_delay_ms=0")
    for _ in range(5):
        assert "COORDINATOR_NOT_AVAILABLE" not in "".join(classic.do(f"join g a metadata={LARGE}"))
    assert "COORDINATOR_NOT_AVAILABLE" in said(classic, f"join g a metadata={LARGE}{LARGE}"), "with more than it had"


def test_what_has_gone_is_counted_no_longer() -> None:
    classic = Coordinator()
    classic.do("settings initial_rebalance_delay_ms=0")
    for name in ("a", "a"):
        classic.do(f"join g {name} metadata={LARGE}")
    classic.do("leave g a")
    assert "MEMBER_ID_REQUIRED" in said(classic, f"join h b metadata={LARGE}")


def test_assignments_count() -> None:
    classic = Coordinator()
    classic.do("settings initial_rebalance_delay_ms=0")
    for name in ("a", "a"):
        classic.do(f"join g {name}")
    classic.do("time 0")
    member = classic.client("a").member_id
    assert "COORDINATOR_NOT_AVAILABLE" in said(classic, f"sync g a assign={member}:{LARGE}{LARGE}")
    assert "COORDINATOR_NOT_AVAILABLE" not in said(classic, f"sync g a assign={member}:{LARGE}")


def test_members_of_consumer_groups_count() -> None:
    modern = ConsumerGroups()
    modern.do("time 100000")
    modern.do(f"join g a topics={LARGE}")
    assert "COORDINATOR_NOT_AVAILABLE" in said(modern, f"join h b topics={LARGE}")
    assert "epoch=" in said(modern, "heartbeat g a"), "who is in stays in"
    modern.do("principal User:v")
    assert "epoch=" in said(modern, f"join h b topics={LARGE}")
    modern.do("principal User:w")
    assert "COORDINATOR_NOT_AVAILABLE" in said(modern, f"join i c topics={LARGE}{LARGE}")
    modern.do("leave h b")
    assert "epoch=" in said(modern, f"join i c topics={LARGE}")


def test_pending_ids_count() -> None:
    classic = Coordinator()
    answers = [said(classic, f"join g {LARGE}{index}") for index in range(4)]
    assert "MEMBER_ID_REQUIRED" in answers[0] and "COORDINATOR_NOT_AVAILABLE" in answers[-1]


def test_all_principals_together() -> None:
    tally = Tally(lambda: {"User:u": 900, "User:v": 900})
    assert tally.has_room("User:u", 100, 1_000, 2_000, 0)
    tally.add("User:u", 1_000)
    assert tally.has_room("User:u", 100, 1_000, 2_000, 0), "it was counted again"
    assert not tally.has_room("User:w", 300, 1_000, 2_000, 0)
    assert tally.has_room("User:w", 200, 1_000, 2_000, 0)


def test_many_protocols_are_refused() -> None:
    classic = Coordinator()
    protocols = [JoinGroupRequestProtocol(f"p{number}", b"") for number in range(PROTOCOLS_MAX + 1)]
    request = JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", protocols)
    out = join(classic.shard.state, request, GroupClient("a", "/h", 3), Waiter(classic.client("a"), "join"), 0)
    ((_, reply),) = out.released
    assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not classic.shard.state.groups


def test_a_member_names_no_more_topics_than_one_turn_looks_at() -> None:
    for count in (MEMBER_NAMES_MAX, MEMBER_NAMES_MAX + 1):
        names = [f"t{number}" for number in range(count)]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1, subscribed_topic_names=names,
            topic_partitions=[],
        )  # fmt: skip
        assert bool(what_is_wrong(request, 1)) == (count > MEMBER_NAMES_MAX)


def test_no_refusal_looks_at_other_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_state, "MEMBER_BYTES_MAX", 100_000)
    monkeypatch.setattr(shard_state, "PRINCIPAL_MEMBER_BYTES_MAX", 100_000)
    groups = MixedGroups()
    groups.do("topic t 1")
    for number in range(50):
        groups.do(f"join g a{number}")
        groups.do(f"classic-join h b{number}")
        groups.do(f"classic-join h b{number}")
    looked: list[object] = []

    def noted(real: Callable[[Any], int]) -> property:
        def size(self: object) -> int:
            looked.append(self)
            return real(self)

        return property(size)

    for member in (Member, ClassicMember):
        monkeypatch.setattr(member, "size", noted(vars(member)["size"].fget))
    for _ in range(3):
        assert "COORDINATOR_NOT_AVAILABLE" in said(groups, f"join g c topics={'t' * 100_000}")
        assert "COORDINATOR_NOT_AVAILABLE" in said(groups, f"classic-join h d metadata={'00' * 100_000}")
        groups.do("time 1000")
    assert len(looked) < 20


def test_what_a_lost_record_took_back_is_kept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A static member that is replaced, a group that is converted, members that leave: all of it is lost, or comes."""
    monkeypatch.setattr(shard_state, "PRINCIPAL_MEMBER_BYTES_MAX", 2_000)
    for end in ("committed", "fail NOT_ENOUGH_REPLICAS_AFTER_APPEND"):
        groups = MixedGroups()
        groups.do("topic t 2")
        groups.do("settings initial_rebalance_delay_ms=0")
        groups.do("join g a instance=i")
        groups.do("join g b topics=t,u")
        for _ in range(2):
            groups.do("classic-join g c")
        groups.do("leave g a --for-a-while instance=i")
        for commands in (["join g d instance=i topics=t,u,v"], ["leave g b", "leave g d instance=i"], ["join g e"]):
            groups.do("hold")
            for command in commands:
                groups.do(command)
                assert kept(groups.shard.state) == counted(groups.shard.state)
            groups.do(end)
            assert kept(groups.shard.state) == counted(groups.shard.state) != {}


def test_members_count_for_who_sent_them() -> None:
    usage = Usage()
    members = MemberUsage(usage)
    members.hold("g", "a", 10)
    members.sent_by("g", "b", "User:u")
    members.hold("g", "a", 20)
    members.hold("g", "b", 5)
    members.hold("g", "b", 7)
    members.hold("h", "c", 1, "User:v")
    assert [usage.held(each) for each in ("", "User:u", "User:v")] == [20, 7, 1]
    members.release("g", "b")
    members.release("g", "b")
    assert (usage.held("User:u"), usage.total) == (0, 21)
    members.reserve("User:u", 100)
    assert not members.has_room("User:u", 1, 100, 1_000) and members.has_room("User:v", 1, 100, 122)
    members.close()
    members.give_back("User:u", 100)
    assert usage.total == 0
