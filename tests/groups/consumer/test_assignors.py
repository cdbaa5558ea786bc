"""How much work the assignors do for many members: what members share is worked out once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.groups.consumer import heterogeneous
from headrace.groups.consumer.assignors import Assignment, Subscriber, assign_ranges, assign_uniformly

TOPICS = [number.to_bytes(16, "big") for number in range(30)]
COUNTS = dict.fromkeys(TOPICS, 70)


def subscribers(count: int, own_topics: int = 0) -> list[Subscriber]:
    """All read every topic but the last `own_topics`, of which each reads one."""
    shared = TOPICS[: len(TOPICS) - own_topics]
    own = [[topic] for topic in TOPICS[len(shared) :]] or [[]]
    reads = [frozenset(shared + own[number % len(own)]) for number in range(count)]
    return [Subscriber(f"m{number:03}", None, topics) for number, topics in enumerate(reads)]


def going_on(members: list[Subscriber], assigned: Assignment) -> list[Subscriber]:
    return [replace(member, has=assigned[member.id]) for member in members]


def sizes(assigned: Assignment) -> list[int]:
    return [sum(map(len, partitions.values())) for partitions in assigned.values()]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many readers stood in each row that was made."""
    made: list[int] = []
    real = heterogeneous._Row

    def row(readers: list[int], loads: list[int]) -> Any:
        made.append(len(readers))
        return real(readers, loads)

    monkeypatch.setattr(heterogeneous, "_Row", row)
    return made


@pytest.mark.parametrize("count", [7, 70, 200])
def test_topics_with_as_many_partitions_are_cut_once(count: int) -> None:
    assigned = assign_ranges(subscribers(count), COUNTS)
    every = [partitions for each in assigned.values() for partitions in each.values()]
    assert sum(map(len, every)) == len(TOPICS) * 70
    assert len({id(partitions) for partitions in every}) == min(count, 70)
    assert list(assigned) == [f"m{number:03}" for number in range(count)], "who gets nothing is there too"


def test_a_group_that_is_balanced_is_not_sorted_again(rows: list[int]) -> None:
    members = subscribers(200, own_topics=5)
    assigned = assign_uniformly(members, COUNTS)
    assert max(sizes(assigned)) - min(sizes(assigned)) <= 1
    assert len(rows) == len(TOPICS), "once for what nobody had"
    rows.clear()
    assert assign_uniformly(going_on(members, assigned), COUNTS) == assigned
    assert rows == []


def test_a_member_that_joins_moves_only_what_it_gets(rows: list[int]) -> None:
    members = subscribers(200, own_topics=5)
    before = assign_uniformly(members, COUNTS)
    rows.clear()
    joins = Subscriber("n", None, frozenset(TOPICS[:10]))
    after = assign_uniformly([*going_on(members, before), joins], COUNTS)
    moved = sum(len(partitions - after[member].get(topic, frozenset()))
                for member, each in before.items() for topic, partitions in each.items())  # fmt: skip
    assert moved == sum(map(len, after["n"].values())) == min(sizes(after)) == 10
    assert 0 < len(rows) <= 10, "the topics out of which something moves"
