"""APPEND and SUBTRACT of long lists: each value is looked up, and not compared with all others."""

from __future__ import annotations

import pytest

from headrace.controller.configs import _with, _without

MANY = 3000


class Value(str):
    """A value that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Value.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("step", [_with, _without])
def test_comparisons(step: object) -> None:
    Value.compared = 0
    assert callable(step)
    step([Value(n) for n in range(MANY)], [Value(n // 2) for n in range(MANY)])
    assert Value.compared <= 4 * MANY


def test_what_is_appended() -> None:
    assert _with(["a", "b", "a"], ["b", "c", "c", "d"]) == ["a", "b", "a", "c", "d"]


def test_what_is_subtracted() -> None:
    assert _without(["a", "b", "a", "c", "a"], ["a", "x", "a"]) == ["b", "c", "a"]
