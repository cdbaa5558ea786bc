"""How many regular expressions a group, and a principal in all its groups, may subscribe to."""

from __future__ import annotations

import pytest
from groups.consumer.scripted import ConsumerGroups

from headrace.groups.consumer import regexes
from headrace.groups.tally import RECOUNT_INTERVAL_MS, Tally


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> ConsumerGroups:
    monkeypatch.setattr(regexes, "GROUP_REGEXES_MAX", 2)
    monkeypatch.setattr(regexes, "PRINCIPAL_REGEXES_MAX", 3)
    made = ConsumerGroups()
    made.do("time 100000")
    made.do("topic orders 1")
    return made


def said(groups: ConsumerGroups, command: str) -> str:
    """The last line that answers a command."""
    return groups.do(command)[-1]


def test_a_group_has_so_many_expressions(groups: ConsumerGroups) -> None:
    groups.do("join g a regex=a.*")
    groups.do("join g b regex=b.*")
    assert "GROUP_MAX_SIZE_REACHED" in said(groups, "join g c regex=c.*")
    assert "epoch=" in said(groups, "join g c regex=a.*"), "one that the group has is none more"
    assert "GROUP_MAX_SIZE_REACHED" in said(groups, "heartbeat g a regex=d.*"), "c has the other one too"
    assert "GROUP_MAX_SIZE_REACHED" not in said(groups, "heartbeat g b regex=d.*"), "in the place of its own"
    groups.do("leave g b")
    groups.do("principal User:v")
    assert "GROUP_MAX_SIZE_REACHED" not in said(groups, "join g d regex=e.*")


def test_a_principal_has_so_many_in_all_groups(groups: ConsumerGroups) -> None:
    for index in range(3):
        groups.do(f"join g{index} m{index} regex=a{index}")
    assert "Groups of User:u" in said(groups, "join h n regex=b")
    groups.do("principal User:v")
    assert "GROUP_MAX_SIZE_REACHED" not in said(groups, "join h n regex=b")
    groups.do("principal User:u")
    groups.do("leave g0 m0")
    groups.do(f"time {RECOUNT_INTERVAL_MS}")
    assert "GROUP_MAX_SIZE_REACHED" not in said(groups, "join i o regex=c"), "what has gone is counted no longer"
    assert "GROUP_MAX_SIZE_REACHED" in said(groups, "join j p regex=d")


def test_a_tally_counts_again_at_most_once_a_second() -> None:
    held = {"User:u": 5}
    counts = []

    def recount() -> dict[str, int]:
        counts.append(dict(held))
        return held

    tally = Tally(recount)
    assert not tally.reaches("User:u", 1, 0) and not counts, "nobody came here with any of them"
    tally.add("User:u")
    assert tally.reaches("User:u", 1, 0) and tally.reaches("User:u", 5, 0) and len(counts) == 1
    held["User:u"] = 1
    assert tally.reaches("User:u", 2, RECOUNT_INTERVAL_MS - 1) and len(counts) == 1
    assert not tally.reaches("User:u", 2, RECOUNT_INTERVAL_MS) and len(counts) == 2
