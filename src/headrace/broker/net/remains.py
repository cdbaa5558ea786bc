"""Frees the objects of requests with many elements, a few at a time.

Python frees a list in one go with all that only it holds: 400,000 elements take 30 ms, in which nothing else runs. So
objects that hold many are kept until the request is answered (`RequestContext.remains`), and a worker takes them apart
then. It changes nothing that others may hold.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from headrace.env.young import let_grow_old
from headrace.machine.split_table import SplitTable
from headrace.wire.message import Message

FREED_AT_ONCE: Final = 100
"""Things that are freed without a look at whether another thread waits."""
FREED_YOUNG: Final = 5_000
"""After so many of them objects that others made meanwhile are old: see `env.young`."""
_CONTAINERS: Final = (list, tuple, dict, set, frozenset, SplitTable)


def take_apart(remains: list[Any]) -> None:
    """Empties a list of things, and frees those that nothing else holds, with all that only they hold."""
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
    """Adds the objects that a thing holds."""
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
    """The fields of a message that may be lists, or structs with lists in them."""
    hints = kind.__init__.__annotations__
    return tuple(name for name in kind.__slots__ if not _is_plain(hints.get(name, "")))


def _is_plain(hint: object) -> bool:
    return isinstance(hint, str) and all(part.strip() in _PLAIN for part in hint.split("|"))


_PLAIN: Final = frozenset({"None", "int", "bool", "float", "str", "bytes", "memoryview", "Buffer", "Records"})
