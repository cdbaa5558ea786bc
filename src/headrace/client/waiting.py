"""Credentials of a node for which a server has to be asked: one worker asks, for all connections that need them.

It is a worker for errands, behind whom no disk waits. They are few: if each connection had one wait, an issuer that
does not answer would hold all of them.
"""

from __future__ import annotations

from asyncio import Future
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from headrace.env import Node
    from headrace.security.credentials import AnyCredentials

_waiting: WeakKeyDictionary[Node, dict[int, list[Future[Any]]]] = WeakKeyDictionary()
"""Who waits, by the credentials. A node's are touched by its loop alone."""


async def shared(node: Node, credentials: AnyCredentials) -> AnyCredentials:
    """`credentials.ready()`, done on a worker of the node that may wait. Raises what it raises."""
    waiting = _waiting.setdefault(node, {})
    future: Future[AnyCredentials] = node.future()
    others = waiting.get(id(credentials))
    if others is not None:
        others.append(future)
    else:
        waiting[id(credentials)] = [future]
        node.errands.submit(credentials.ready, partial(_told, waiting, credentials))
    return await future


def _told(
    waiting: dict[int, list[Future[Any]]],
    credentials: AnyCredentials,
    ready: AnyCredentials | None,
    error: BaseException | None,
) -> None:
    for future in waiting.pop(id(credentials)):
        if future.done():
            continue  # who waited has gone
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(ready)
