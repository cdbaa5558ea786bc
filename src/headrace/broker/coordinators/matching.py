"""Compiles and matches clients' regular expressions on a worker: one piece of work at a time, principals in turn.

The cost of a match is the client's choice, so it must occupy neither the event loop nor all workers: others wait for at
most one piece of it, and a request with much to match delays only itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.machine.patterns import matching, what_is_wrong

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env.node import Node

PIECE_TEXTS: Final = 1_000
"""Texts matched in one piece of work, which takes 0.2 s with the heaviest pattern."""

T = TypeVar("T")


class Matching:
    """Runs matches on a single worker. The number of requests and group look-ups bounds its queue."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_busy = False
        self._waiting: dict[str, deque[Future[None]]] = {}
        """Waiting turns by principal; the first principal is next."""

    async def what_is_wrong(self, principal: str, pattern: str) -> str:
        """Returns why a pattern cannot be parsed; empty if it can."""
        return await self._run(principal, partial(what_is_wrong, pattern))

    async def matching(self, principal: str, pattern: str, texts: Sequence[str]) -> list[str]:
        """Returns the texts that a pattern matches as a whole. Raises PatternError."""
        matched: list[str] = []
        for at in range(0, len(texts), PIECE_TEXTS):
            piece = texts[at : at + PIECE_TEXTS]
            matched += await self._run(principal, partial(matching, pattern, piece))
        return matched

    async def _run(self, principal: str, work: Callable[[], T]) -> T:
        await self._turn(principal)
        try:
            return await self._node.workers.run(work)
        finally:
            self._pass_on()

    async def _turn(self, principal: str) -> None:
        """Returns when no other piece of work runs."""
        if not self._is_busy:
            self._is_busy = True
            return
        turn = self._node.future()
        self._waiting.setdefault(principal, deque()).append(turn)
        try:
            await turn
        except BaseException:  # the broker stops, or the client has left
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            principal = next(iter(self._waiting))
            turns = self._waiting.pop(principal)
            turn = turns.popleft()
            if turns:
                self._waiting[principal] = turns  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._is_busy = False
