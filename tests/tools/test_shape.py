"""The shape of the code: what the checks find, and that nothing new is there."""

from __future__ import annotations

import ast
import subprocess
import sys

from tools.shape import (
    CYCLES,
    LARGE_CONSTRUCTORS,
    ROOT,
    assertion_counts,
    cycles_of,
    foreign_fields,
    imports_of,
    large_constructors,
    rebound_methods,
    violations,
    writes_bounds,
)

KNOWN = {"headrace.a", "headrace.b", "headrace.c", "headrace.pack", "headrace.pack.d"}


def test_the_code_has_the_shape() -> None:
    """Another process parses it: CPython 3.11 counts the depth of what it parses for all threads together, and threads
    of brokers parse as well, when they format a traceback."""
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


def test_private_fields_of_others_are_found() -> None:
    found = foreign_fields(ast.parse("self._a, other.b = 1, 2\nself.other._c = 3\nother._d += 4"))
    assert found == ["line 2: self.other._c", "line 3: other._d"]


def test_methods_that_an_assignment_replaces_are_found() -> None:
    assert rebound_methods(ast.parse("class A:\n def f(self): pass\n def g(self): self.f = None")) == ["A.f"]


def test_who_changes_the_bounds_of_a_log_is_found() -> None:
    assert writes_bounds(ast.parse("self.bounds.end_offset = 1"))
    assert writes_bounds(ast.parse("log_bounds.end_offset += 1"))
    assert not writes_bounds(ast.parse("end = self.bounds.end_offset\nother.end_offset = 1"))


def test_each_rule_names_what_breaks_it() -> None:
    trees = {
        "headrace.a": ast.parse("def late():\n from headrace import b"),
        "headrace.b": ast.parse("import headrace.a"),
        "headrace.broker.handler": ast.parse("from headrace.broker.net.connection import Connection"),
        "headrace.broker.net.connection": ast.parse(""),
        "headrace.log.reader": ast.parse("other._x = 1\nself.bounds.end_offset = 2"),
        "headrace.log.state": ast.parse("class A:\n def f(self): self.f = 1\nself.bounds.end_offset = 2"),
    }
    found = "\n".join(violations(trees))
    for line in (
        "an import cycle: headrace.a, headrace.b",
        "headrace.broker.net.connection is imported by headrace.broker.handler; only headrace.broker.net.server",
        "headrace.log.reader, line 1: other._x: a private field",
        "headrace.log.state: an assignment replaces the method A.f",
        "the bounds of a log are assigned by headrace.log.reader, headrace.log.state",
        "headrace.raft.machine.Raft meets the rules, and is listed still",
    ):
        assert line in found


def test_assertions_are_counted_by_package() -> None:
    trees = {
        "headrace.raft.a": ast.parse("def f():\n assert 1\n def g():\n  assert 2\nassert 3"),
        "headrace.raft.b": ast.parse("async def f(): pass"),
        "headrace.log": ast.parse("x = 1"),
    }
    assert assertion_counts(trees) == {"headrace.raft": (3, 3)}
