"""What is kept of assignments, and of the topics that regular expressions mean, has a bound of its own: a group that
has reached it keeps its targets, and goes on when there is room."""

from __future__ import annotations

import pytest
from groups.consumer.scripted import ConsumerGroups

from headrace.groups import shard_state
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.records import PARTITION_BYTES, TOPIC_BYTES
from headrace.groups.consumer.regexes import LOOK_INTERVAL_MS
from headrace.groups.tally import RECOUNT_INTERVAL_MS

PARTITIONS = 4
ROOM = PARTITIONS * PARTITION_BYTES


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> ConsumerGroups:
    monkeypatch.setattr(shard_state, "ASSIGNMENT_BYTES_MAX", 2 * ROOM)
    monkeypatch.setattr(shard_state, "PRINCIPAL_ASSIGNMENT_BYTES_MAX", ROOM)
    made = ConsumerGroups()
    made.do("time 100000")
    made.do(f"topic t {PARTITIONS}")
    return made


def said(groups: ConsumerGroups, command: str) -> str:
    """The last line that answers a command."""
    return groups.do(command)[-1]


def held(groups: ConsumerGroups) -> int:
    state = groups.shard.state
    made = [each.assignment_bytes for each in state.modern.latest.values() if isinstance(each, ConsumerGroup)]
    assert sum(made) == state.assignment_bytes.latest.get(None, 0)
    return sum(made)


def assigned(groups: ConsumerGroups, group: str) -> int:
    """How many partitions the targets of a group have."""
    there = groups.shard.state.modern.latest[group]
    assert isinstance(there, ConsumerGroup)
    return sum(len(each) for target in there.targets.latest.values() for each in target.values())


def test_members_get_no_more_than_there_is_room_for(groups: ConsumerGroups) -> None:
    groups.do("join g a")
    assert (assigned(groups, "g"), held(groups)) == (PARTITIONS, ROOM)
    assert "epoch=" in said(groups, "join h b"), "it is in, and waits"
    assert (assigned(groups, "h"), held(groups)) == (0, ROOM)
    groups.do("principal User:v")
    groups.do("join i c")
    assert (assigned(groups, "i"), held(groups)) == (PARTITIONS, 2 * ROOM), "another principal has a share too"
    groups.do("principal User:w")
    groups.do("join j d")
    assert assigned(groups, "j") == 0, "all principals together"
    groups.do("principal User:u")
    groups.do("leave g a")
    groups.do(f"time {RECOUNT_INTERVAL_MS}")
    groups.do("heartbeat h b")
    assert (assigned(groups, "h"), held(groups)) == (PARTITIONS, 2 * ROOM)


def test_a_group_that_is_in_stays_as_it_is_when_its_topic_grows(groups: ConsumerGroups) -> None:
    groups.do("join g a")
    groups.do(f"topic t {2 * PARTITIONS}")
    assert "epoch=" in said(groups, "heartbeat g a")
    assert (assigned(groups, "g"), held(groups)) == (PARTITIONS, ROOM)


def test_members_that_share_what_there_is_take_no_more(groups: ConsumerGroups) -> None:
    for name in "abc":
        groups.do(f"time {RECOUNT_INTERVAL_MS}")
        groups.do(f"join g {name}")
        assert (assigned(groups, "g"), held(groups)) == (PARTITIONS, ROOM)
    for name in "abc":
        groups.do(f"leave g {name}")
    assert held(groups) == 0


def test_what_expressions_mean_counts(groups: ConsumerGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_state, "PRINCIPAL_ASSIGNMENT_BYTES_MAX", 3 * TOPIC_BYTES)
    monkeypatch.setattr(shard_state, "ASSIGNMENT_BYTES_MAX", 3 * TOPIC_BYTES)
    for name in ("x1", "x2", "x3", "x4"):
        groups.do(f"topic {name} 1")
    groups.do("join g a regex=x[12]")
    assert held(groups) == 2 * TOPIC_BYTES
    groups.do("join h b regex=x.")
    assert held(groups) == 2 * TOPIC_BYTES
    groups.do("leave g a")
    assert held(groups) == 0
    groups.do("topic x4 0")
    groups.do(f"time {LOOK_INTERVAL_MS}")
    groups.do("heartbeat h b")
    assert held(groups) == 3 * TOPIC_BYTES
