"""Errands of logins on a node: one worker does each, for all connections that need what comes of it.

Behind these workers no disk waits. They are few: if each connection had one wait, an issuer that does not answer would
hold all of them.
"""

from __future__ import annotations

from asyncio import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from headrace.client.login import outcome_of
from headrace.security.login import Errand, LoginFailedError

if TYPE_CHECKING:
    from headrace.env import Node

T = TypeVar("T")

_waiting: WeakKeyDictionary[Node, dict[Errand[Any], list[Future[Any]]]] = WeakKeyDictionary()
"""Who waits, by the errand. A node's are touched by its loop alone."""


async def shared(node: Node, errand: Errand[T]) -> T | LoginFailedError:
    """`outcome_of(errand)`, on a worker of the node that may wait."""
    waiting = _waiting.setdefault(node, {})
    future: Future[T | LoginFailedError] = node.future()
    others = waiting.get(errand)
    if others is not None:
        others.append(future)
    else:
        waiting[errand] = [future]
        node.errands.submit(partial(_attempt, errand)).deliver_to(partial(_share, waiting, errand))
    return await future


def _attempt(errand: Errand[T]) -> tuple[T | LoginFailedError | None, Exception | None]:
    """Returns the outcome of an errand, or what it raised: every connection that waits for it gets that."""
    try:
        return outcome_of(errand), None
    except Exception as error:
        return None, error


def _share(waiting: dict[Errand[Any], list[Future[Any]]], errand: Errand[Any], attempt: Any) -> None:
    outcome, error = attempt
    for future in waiting.pop(errand):
        if future.done():
            continue  # its connection is gone
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(outcome)
