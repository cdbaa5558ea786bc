"""One principal does not take all the room for groups: the last tenth is for those that have few."""

from __future__ import annotations

import pytest
from groups.consumer.scripted import ConsumerGroups

from headrace.groups.settings import GroupSettings
from headrace.groups.shard_state import GroupShardState
from headrace.groups.tally import RECOUNT_INTERVAL_MS

ROOM = 20


@pytest.fixture
def groups() -> ConsumerGroups:
    machine = ConsumerGroups()
    machine.do(f"settings groups_max={ROOM}")
    machine.do("time 100000")
    return machine


def joins(machine: ConsumerGroups, group: str) -> bool:
    return "COORDINATOR_NOT_AVAILABLE" not in machine.do(f"join {group} {group}-m")[-1]


def test_the_last_of_it_is_for_those_who_have_few(groups: ConsumerGroups) -> None:
    assert [joins(groups, f"u{number}") for number in range(ROOM)] == [True] * 18 + [False] * 2
    groups.do("principal User:v")
    assert [joins(groups, f"v{number}") for number in range(2)] == [True, False]
    groups.do("principal User:w")
    assert joins(groups, "w") and not joins(groups, "w2")
    groups.do("principal User:x")
    assert not joins(groups, "x"), "there is no room at all"


def test_what_has_gone_is_counted_no_longer() -> None:
    settings = GroupSettings(groups_max=10)
    state = GroupShardState(settings, lambda: "id", lambda: 9)
    state.group_made("g", "User:u")
    assert state.has_room_for_group("User:u", 0), "it is not there by now"
    state.group_made("h", "User:u")
    assert not state.has_room_for_group("User:u", RECOUNT_INTERVAL_MS - 1)
    assert state.has_room_for_group("User:u", RECOUNT_INTERVAL_MS)


def test_member_ids_that_nobody_uses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.groups.classic.join.PENDING_MEMBERS_MAX", 2)
    machine = ConsumerGroups()
    for name, answer in (("a", "MEMBER_ID_REQUIRED"), ("b", "MEMBER_ID_REQUIRED"), ("c", "GROUP_MAX_SIZE_REACHED")):
        assert answer in machine.do(f"classic-join g {name}")[-1]
