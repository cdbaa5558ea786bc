"""What groups have committed and how far they are behind, with a series each up to a bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.broker.telemetry.families import Family
from headrace.broker.telemetry.group_numbers import OFFSETS_AT_ONCE, Committed, GroupNumbers

ENDS = {("a", 0): 100, ("a", 1): 50, ("b", 0): 7}


def numbers(committed: list[Committed], offsets_max: int = 100) -> GroupNumbers:
    def go_through() -> Iterator[Committed]:
        yield from committed

    return GroupNumbers(go_through, lambda topic, index: ENDS.get((topic, index)), offsets_max)


def values(of: GroupNumbers) -> dict[str, dict[tuple[str, ...], float]]:
    families = [each for each in of.families() if isinstance(each, Family)]
    return {
        each.name.removeprefix("kafka_consumergroup_"): {
            tuple(labels.values()): value for _, labels, value in each.samples
        }
        for each in families
    }


def test_where_groups_are_and_what_they_have_not_read() -> None:
    found = values(
        numbers(
            [
                ("g", [(("a", 0), 90), (("a", 1), 50), (("b", 0), 0)]),
                ("h", [(("a", 0), 120), (("elsewhere", 3), 5)]),
                ("nothing", []),
            ]
        )
    )
    assert found["current_offset"] == {
        ("g", "a", "0"): 90,
        ("g", "a", "1"): 50,
        ("g", "b", "0"): 0,
        ("h", "a", "0"): 120,
        ("h", "elsewhere", "3"): 5,
    }
    assert found["lag"] == {("g", "a", "0"): 10, ("g", "a", "1"): 0, ("g", "b", "0"): 7, ("h", "a", "0"): 0}
    assert found["lag_sum"] == {("g", "a"): 10, ("g", "b"): 7, ("h", "a"): 0}
    assert found["headrace_group_offsets_without_series"] == {(): 0}


def test_beyond_the_bound_the_topics_alone_have_a_lag() -> None:
    found = values(numbers([("g", [(("a", 0), 90), (("a", 1), 10)]), ("h", [(("b", 0), 1)])], offsets_max=1))
    assert found["current_offset"] == {("g", "a", "0"): 90} and found["lag"] == {("g", "a", "0"): 10}
    assert found["lag_sum"] == {("g", "a"): 50}
    assert found["headrace_group_offsets_without_series"] == {(): 2}


def test_others_have_their_turn() -> None:
    many: list[Any] = [(f"g{number}", [(("a", 0), 1)]) for number in range(OFFSETS_AT_ONCE * 3)]
    assert sum(family is None for family in numbers(many).families()) == 3
    one: list[Any] = [("g", [(("a", index), 1) for index in range(OFFSETS_AT_ONCE * 3)])]
    assert sum(family is None for family in numbers(one).families()) == 3
