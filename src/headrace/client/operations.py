"""Operations: functions that take either client, and are written once as conversations.

    @operation
    def unregister_broker(router: Router, broker: int) -> Steps[None]: ...

    unregister_broker(client, 3)            # with a Client
    await unregister_broker(client, 3)      # with an AsyncClient

`unregister_broker.steps` is the conversation itself, which other conversations use by `yield from`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from headrace.client.conversation import Steps
from headrace.client.routing import Router

P = ParamSpec("P")
T = TypeVar("T")


class BlockingShell(ABC):
    """Performs the steps of conversations, and blocks while they wait."""

    router: Router

    @abstractmethod
    def run(self, steps: Steps[T]) -> T:
        """Runs a conversation. Returns its result, and raises its failure."""


class AsyncShell(ABC):
    """Performs the steps of conversations on an asyncio loop."""

    router: Router

    @abstractmethod
    async def run(self, steps: Steps[T]) -> T:
        """Runs a conversation. Returns its result, and raises its failure."""


class Operation(Generic[P, T]):
    """A conversation as a function of a client: it returns the result with a `Client`, and is to be awaited with an
    `AsyncClient`."""

    def __init__(self, steps: Callable[Concatenate[Router, P], Steps[T]]) -> None:
        self.steps = steps
        update_wrapper(self, steps)

    @overload
    def __call__(self, client: BlockingShell, /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    def __call__(self, client: AsyncShell, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]: ...

    def __call__(
        self, client: BlockingShell | AsyncShell, /, *args: P.args, **kwargs: P.kwargs
    ) -> T | Coroutine[Any, Any, T]:
        return client.run(self.steps(client.router, *args, **kwargs))


def operation(steps: Callable[Concatenate[Router, P], Steps[T]]) -> Operation[P, T]:
    """Makes an operation of a conversation whose first parameter is the router."""
    return Operation(steps)
