"""How the package is cut: no object assigns another's fields."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import headrace.log

FOLDER = Path(headrace.log.__file__).parent


PARSE = """
import ast, pathlib, pickle, sys
trees = {path.stem: ast.parse(path.read_text("utf-8")) for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py"))}
sys.stdout.buffer.write(pickle.dumps(trees))
"""


@cache
def modules() -> dict[str, ast.Module]:
    """The trees of the package, parsed by another process: CPython 3.11 counts the depth of what it parses for all
    threads together, and threads of brokers parse as well, when they format a traceback."""
    command = [sys.executable, "-c", PARSE, str(FOLDER)]
    trees: dict[str, ast.Module] = pickle.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return trees


def foreign_fields(tree: ast.AST) -> list[str]:
    """The assignments to private fields of other objects."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        if node.attr.startswith("_") and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]


def test_no_object_assigns_the_private_fields_of_another() -> None:
    assert foreign_fields(ast.parse("self._a, other.b = 1, 2\nself.other._c = 3\nother._d += 4"))
    assert {name: found for name, tree in modules().items() if (found := foreign_fields(tree))} == {}


def methods_of(owner: ast.ClassDef) -> set[str]:
    return {each.name for each in owner.body if isinstance(each, ast.FunctionDef) and not each.decorator_list}


def rebound_methods(tree: ast.AST) -> list[str]:
    """The methods of classes that an assignment in the same class replaces."""
    return [
        f"{owner.name}.{node.attr}"
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef)
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if node.attr
        in {each.name for each in owner.body if isinstance(each, ast.FunctionDef) and not each.decorator_list}
    ]


def test_no_method_is_replaced_by_an_assignment() -> None:
    assert rebound_methods(ast.parse("class A:\n def f(self): pass\n def g(self): self.f = None")) == ["A.f"]
    assert {name: found for name, tree in modules().items() if (found := rebound_methods(tree))} == {}


def test_only_the_state_of_a_log_changes_its_bounds() -> None:
    bounds = {"end_offset", "log_start_offset", "local_log_start_offset"}
    writers = {
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in bounds
        if ast.unparse(node.value).endswith("bounds")
    }
    assert writers == {"state"}
