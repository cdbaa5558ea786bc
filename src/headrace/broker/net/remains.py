"""Frees the objects of large requests a few at a time.

Python frees a list at once with all elements that only it holds: 400,000 elements take 30 ms, in which no other code
runs. So objects with many elements are kept until the request is answered (`RequestContext.remains`), and a worker
takes them apart then. Objects that others may hold are not changed.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from headrace.env.young import let_grow_old
from headrace.machine.split_table import SplitTable
from headrace.wire.message import Message

FREED_AT_ONCE: Final = 100
"""Objects freed before checking whether another thread waits."""
FREED_YOUNG: Final = 5_000
"""Objects freed before objects made meanwhile are moved to the old generation (see `env.young`)."""
_CONTAINERS: Final = (list, tuple, dict, set, frozenset, SplitTable)


def take_apart(remains: list[Any]) -> None:
    """Empties a list of objects, freeing those that are held nowhere else, with everything that only they hold."""
    freed = 0
    while remains:
        freed += FREED_AT_ONCE
        if freed % FREED_YOUNG == 0:
            let_grow_old()
        some = remains[-FREED_AT_ONCE:]
        del remains[-FREED_AT_ONCE:]
        if any(map(_may_hold_many, set(map(type, some)))):
            for thing in some:
                _take_out(thing, remains)


def _take_out(thing: Any, remains: list[Any]) -> None:
    """Adds the objects that a container holds to `remains`."""
    if isinstance(thing, Message):
        kind: Any = type(thing)
        for name in _lists_of(kind):
            held = getattr(thing, name)
            if held:
                remains += held if type(held) is list else (held,)
    elif type(thing) is SplitTable:
        remains += thing.parts
    elif isinstance(thing, dict):
        remains += list(thing)
        remains += list(thing.values())
    elif type(thing) in _CONTAINERS:
        remains += thing


@cache
def _may_hold_many(kind: Any) -> bool:
    return kind in _CONTAINERS or issubclass(kind, dict) or (issubclass(kind, Message) and bool(_lists_of(kind)))


@cache
def _lists_of(kind: Any) -> tuple[str, ...]:
    """Returns the fields of a message that may be lists, or structs with lists in them."""
    hints = kind.__init__.__annotations__
    return tuple(name for name in kind.__slots__ if not _is_plain(hints.get(name, "")))


def _is_plain(hint: object) -> bool:
    return isinstance(hint, str) and all(part.strip() in _PLAIN for part in hint.split("|"))


_PLAIN: Final = frozenset({"None", "int", "bool", "float", "str", "bytes", "memoryview", "Buffer", "Records"})
