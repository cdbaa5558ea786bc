"""Large requests of any API, made from its message class: many elements in one of its lists, different or alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

from headrace.security.authorizer import UNCACHED, OpenAuthorizer, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.message import Message
from headrace.wire.messages import request_class
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
    return number % NUMBERS if kind is int else number.to_bytes(16, "big")


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
    """Leaves out what a version cannot say; False where it cannot say the list either, or leaves it out silently."""
    kind = type(message)
    for _ in range(len(kind.__slots__) + 1):
        try:
            encoded = message.encode(version)
        except EncodeError as error:
            field = str(error).partition(" ")[0]
            if field not in kind.__slots__ or field == path[0]:
                return False
            setattr(message, field, getattr(kind(), field))
        else:
            return bool(getattr(kind.decode(encoded, version), path[0]))
    return False


def request(key: int, path: Path, count: int, *, alike: bool) -> Any:
    """A request that reaches what its API does: nothing of it stands for a member of a group, or for a transaction."""
    message = large(request_class(key), path, count, alike=alike)
    for field, value in {
        "acks": 1,
        "max_wait_ms": 0,
        "rack_id": "",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "replica_state": None,
    }.items():
        if hasattr(message, field):
            setattr(message, field, value)
    if key == ApiKey.PRODUCE:
        message.transactional_id = None
    if key in (ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS):
        _make_acls(message)
    return message


def _make_acls(message: Any) -> None:
    for acl in getattr(message, "creations", None) or message.filters:
        for field in type(acl).__slots__:
            if isinstance(getattr(acl, field), int):
                setattr(acl, field, 3)


class Some(OpenAuthorizer):
    """Allows what a function allows."""

    generation = UNCACHED

    def __init__(self, allows: Callable[[ResourceType], bool]) -> None:
        self.allows = allows

    def authorize(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return self.allows(resource)

    def authorize_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        return self.allows(resource)


WHO = {
    "nobody": Some(lambda _: False),
    "few rights": Some(lambda resource: resource is not ResourceType.CLUSTER),
    "super user": OpenAuthorizer(),
}
HOSTS = {"nobody": "127.0.0.2", "few rights": "127.0.0.3", "super user": "127.0.0.1"}
"""Where each asks from, for nodes that must understand each other meanwhile."""


_AT = {host: WHO[who] for who, host in HOSTS.items()}


class ByHost(OpenAuthorizer):
    """Allows each host what `WHO` allows there."""

    generation = UNCACHED

    def authorize(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return _AT[host].authorize(principal, host, operation, resource, name)

    def authorize_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        return _AT[host].authorize_any(principal, host, operation, resource)


LOGINS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
