"""`headrace group`: offsets copied from another group."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def two_groups(run: Any, topic: str) -> tuple[str, str]:
    """Returns a group that has read topics A and B to their ends, and one that has read the beginning of B alone."""
    both, second = f"{topic}-both", f"{topic}-second"
    for name in (f"{topic}-a", f"{topic}-b"):
        run("topic", "create", name, "-p", "1")
        run("produce", name, stdin="1\n2\n3\n")
    run("consume", f"{topic}-a", f"{topic}-b", "-g", both)
    run("consume", f"{topic}-b", "-g", second, "-n", "1")
    return both, second


def committed(run_json: Any, group: str) -> dict[str, int]:
    """Returns the committed offset in partition 0 of each topic."""
    return {each["topic"]: each["committed"] for each in run_json("group", "describe", group)[0]["partitions"]}


def test_a_reset_copies_the_offsets_of_another_group(
    run: Any, run_json: Any, topic: str, two_groups: tuple[str, str]
) -> None:
    both, second = two_groups
    assert "nothing has changed yet" in run("group", "reset", both, "--to-group", second).stderr
    assert committed(run_json, both) == {f"{topic}-a": 3, f"{topic}-b": 3}
    done = run_json("group", "reset", both, "--to-group", second, "--execute")
    assert done["partitions"] == [{"topic": f"{topic}-b", "partition": 0, "from": 3, "to": 1}]
    assert committed(run_json, both) == {f"{topic}-a": 3, f"{topic}-b": 1}


def test_a_new_group_begins_where_another_is(run: Any, run_json: Any, topic: str, two_groups: tuple[str, str]) -> None:
    both, _ = two_groups
    run("group", "reset", f"{topic}-new", "--to-group", both, "--topic", f"{topic}-a", "--execute")
    assert committed(run_json, f"{topic}-new") == {f"{topic}-a": 3}


def test_a_group_without_offsets_gives_none(run: Any, topic: str, two_groups: tuple[str, str]) -> None:
    both, second = two_groups
    refused = run("group", "reset", both, "--to-group", f"{topic}-none", "--execute", code=4).stderr
    assert refused == f"headrace: group {topic}-none has no committed offsets\n"
    refused = run("group", "reset", both, "--to-group", second, "--topic", f"{topic}-a", code=4).stderr
    assert refused == f"headrace: group {second} has no committed offsets in these topics\n"
    assert "--to-group" in run("group", "reset", both, "--to-group", second, "--to-latest", code=2).stderr
