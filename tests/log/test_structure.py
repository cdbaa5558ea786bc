"""How the package is cut: its modules import each other in one direction, and no object assigns another's fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace.log

PACKAGE = "headrace.log"
FOLDER = Path(headrace.log.__file__).parent


def modules() -> dict[str, ast.Module]:
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.py"))}


def imports_of(tree: ast.Module) -> Iterator[str]:
    """The modules of the package that a module imports: at load time, lazily, or for the type checker alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.removeprefix(f"{PACKAGE}.") for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module.removeprefix(f"{PACKAGE}.")


def cycles_in(graph: dict[str, set[str]]) -> list[str]:
    """What is left of a graph once modules that import none of the others are taken away, one after the other."""
    left = {name: {each for each in imported if each in graph} for name, imported in graph.items()}
    while ends := {name for name, imported in left.items() if not imported}:
        left = {name: imported - ends for name, imported in left.items() if name not in ends}
    return sorted(left)


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: set(imports_of(tree)) for name, tree in modules().items()}
    assert "state" in graph["writer"] and "log" in graph["log_set"]
    assert cycles_in(graph) == []
    graph["state"].add("log")
    assert {"log", "state", "writer", "reader"} <= set(cycles_in(graph))


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
