"""What members of groups keep in memory has a bound, and one principal has half of it."""

from __future__ import annotations

import pytest
from groups.consumer.scripted import ConsumerGroups
from groups.scripted import Coordinator, Waiter

from headrace.groups import shard_state
from headrace.groups.classic.join import PROTOCOLS_MAX, join
from headrace.groups.consumer.heartbeat import what_is_wrong
from headrace.groups.group_client import GroupClient
from headrace.groups.subscription import MEMBER_NAMES_MAX
from headrace.groups.tally import RECOUNT_INTERVAL_MS, Tally
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
    classic.do(f"time {RECOUNT_INTERVAL_MS}")
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
    modern.do(f"time {RECOUNT_INTERVAL_MS}")
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
