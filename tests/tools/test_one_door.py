"""Nothing on the broker's side reaches the world but through `env/`: no loop, task, thread, lock, clock or chance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace

SOURCES = Path(headrace.__file__).parent
SIDE = (
    *("broker", "config", "controller", "groups", "log", "machine"),
    *("metadata", "raft", "replicas", "security", "wire"),
)
MODULES = frozenset({"os", "random", "select", "socket", "threading", "time"})
CALLS = frozenset(
    {"create_task", "ensure_future", "get_event_loop", "get_running_loop", "new_event_loop", "run_until_complete"}
)

HANDLERS = ("broker/telemetry/", "broker/self_topics.py", "broker/serve.py")
"""Made for Python's logging: its levels, a handler that publishes its lines, and the process around a broker."""


def reaches_out(tree: ast.Module) -> Iterator[str]:
    for_types = [each for each in ast.walk(tree) if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.dump(each.test)]
    left_out = {id(node) for each in for_types for node in ast.walk(each)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield node.module
        elif isinstance(node, ast.Attribute) and node.attr in CALLS:
            yield node.attr


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of each module on the broker's side."""
    for folder in SIDE:
        for path in sorted((SOURCES / folder).rglob("*.py")):
            name = path.relative_to(SOURCES).as_posix()
            if not name.startswith("wire/messages/"):
                yield name, path.read_text()


def test_the_broker_has_one_door_to_the_world() -> None:
    assert not {f"{name}: {what}" for name, text in sources() for what in reaches_out(ast.parse(text))}


def test_lines_go_through_the_nodes_sink() -> None:
    assert not {name for name, text in sources() if "logging.getLogger(" in text and not name.startswith(HANDLERS)}
