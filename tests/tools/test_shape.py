"""The shape of the code: what the checks find, and that nothing new is there."""

from __future__ import annotations

import ast
import subprocess
import sys

from tools.shape import CYCLES, LARGE_CONSTRUCTORS, ROOT, cycles_of, imports_of, large_constructors

KNOWN = {"headrace.a", "headrace.b", "headrace.c", "headrace.pack", "headrace.pack.d"}


def test_the_code_has_the_shape() -> None:
    command = [sys.executable, str(ROOT / "tools" / "shape.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert all(CYCLES.values()) and all(LARGE_CONSTRUCTORS.values()), "each exception has a reason"


def test_imports_count_wherever_they_are() -> None:
    source = """
from typing import TYPE_CHECKING
import headrace.a
if TYPE_CHECKING:
    from headrace.b import B
def late():
    from headrace import c
    from .d import D
"""
    found = imports_of("headrace.pack", True, ast.parse(source), KNOWN)
    assert found == {"headrace.a", "headrace.b", "headrace.c", "headrace.pack.d"}


def test_cycles_are_found_whatever_their_length() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"}, "f": {"d"}}
    assert set(cycles_of(graph)) == {frozenset("abc"), frozenset("de")}
    graph["c"] = set()
    assert cycles_of(graph) == [frozenset("de")]


def test_constructors_that_take_too_much() -> None:
    many = ", ".join(f"p{n}: int" for n in range(9))
    source = f"""
class Many:
    def __init__(self, {many}) -> None: ...
class Calls:
    def __init__(
        self, a: Callable[[], int], b: "Callable[[], int]", c: Callable[[], None] | None, *, d: Callable
    ) -> None: ...
class Few:
    def __init__(self, a: Callable[[], int], b: int) -> None: ...
    def other(self, {many}) -> None: ...
"""
    found = dict(large_constructors("m", ast.parse(source)))
    assert set(found) == {"m.Many"}
    source = source.replace("d: Callable\n", "d: Callable[[int], int]\n")
    assert set(dict(large_constructors("m", ast.parse(source)))) == {"m.Many", "m.Calls"}
