"""Large requests of any API, made from its message class: many elements in one of its lists, different or alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from headrace.wire.message import Message
from headrace.wire.primitives import EncodeError

THERE = "held"
"""A topic, group or whatever else that exists."""
ID = bytes(range(16))
"""Of that topic."""
_INDEXES = ("partition_index", "partition", "index")

NUMBERS = 128
"""So many differ: what lists of bytes can say, too."""
Path = tuple[str, ...]


def _types(hint: object) -> list[type]:
    if parts := get_args(hint):
        return [each for part in parts for each in _types(part)]
    return [hint] if isinstance(hint, type) else []


def lists_of(kind: type[Message]) -> dict[str, type]:
    """The lists of a message, and what is in each."""
    found: dict[str, type] = {}
    for name, hint in get_type_hints(kind.__init__).items():
        if "list" in str(hint):
            found[name] = next(each for each in _types(hint) if each is not type(None))
    return found


def paths_of(kind: type[Message]) -> Iterator[Path]:
    """Every list in a message, and in those of its lists."""
    for name, inner in lists_of(kind).items():
        yield (name,)
        if issubclass(inner, Message):
            for path in paths_of(inner):
                yield (name, *path)


def large(kind: type[Message], path: Path, count: int, *, alike: bool) -> Any:
    """A request with so many elements in the list at the end of a path, and one in each list before it."""
    message: Any = _named(kind(), THERE, 0)
    name, inner = path[0], lists_of(kind)[path[0]]
    if len(path) > 1:
        setattr(message, name, [large(inner, path[1:], count, alike=alike)])
    else:
        setattr(message, name, [_element(inner, 0 if alike else i, alike=alike) for i in range(count)])
    return message


def _element(kind: type, number: int, *, alike: bool) -> Any:
    if issubclass(kind, Message):
        return _named(kind(), THERE if alike else f"n{number}", number)
    if kind is str:
        return THERE if alike else f"n{number}"
    return number % NUMBERS if kind is int else b""


def _named(message: Any, name: str, number: int) -> Any:
    for field in type(message).__slots__:
        value = getattr(message, field)
        if isinstance(value, str) and not value:
            setattr(message, field, name)
        elif field == "topic_id":
            setattr(message, field, ID if name == THERE else number.to_bytes(16, "big"))
        elif field in _INDEXES:
            setattr(message, field, number)
    return message


def fit(message: Any, version: int, path: Path) -> bool:
    """Leaves out what a version cannot say; False where it cannot say the list either."""
    kind = type(message)
    for _ in range(len(kind.__slots__) + 1):
        try:
            message.encode(version)
        except EncodeError as error:
            field = str(error).partition(" ")[0]
            if field not in kind.__slots__ or field == path[0]:
                return False
            setattr(message, field, getattr(kind(), field))
        else:
            return True
    return False
