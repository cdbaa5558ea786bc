"""How the modules of `net` may import each other, imports for types and late ones included."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import headrace.broker
from headrace.broker import net

BROKER = Path(headrace.broker.__path__[0])
NET = Path(net.__path__[0])


def imported(path: Path) -> set[str]:
    """The modules that a file imports names from, anywhere in it."""
    tree = ast.parse(path.read_text())
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None}


def test_no_module_imports_one_that_imports_it() -> None:
    graph = {f"{net.__name__}.{path.stem}": imported(path) for path in NET.glob("*.py")}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert f"{net.__name__}.connection" in order


def test_only_the_server_knows_connections() -> None:
    """Handlers get the session of a client, and the short paths a port."""
    knows = {
        path.relative_to(BROKER) for path in BROKER.rglob("*.py") if f"{net.__name__}.connection" in imported(path)
    }
    assert knows == {Path("net/server.py")}
