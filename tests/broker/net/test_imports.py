"""Who may import the connection, imports for types and late ones included."""

from __future__ import annotations

import ast
from pathlib import Path

import headrace.broker
from headrace.broker import net

BROKER = Path(headrace.broker.__path__[0])


def imported(path: Path) -> set[str]:
    """The modules that a file imports names from, anywhere in it."""
    tree = ast.parse(path.read_text())
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None}


def test_only_the_server_knows_connections() -> None:
    """Handlers get the session of a client, and the short paths a port."""
    knows = {
        path.relative_to(BROKER) for path in BROKER.rglob("*.py") if f"{net.__name__}.connection" in imported(path)
    }
    assert knows == {Path("net/server.py")}
