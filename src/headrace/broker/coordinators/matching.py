"""Regular expressions of clients, compiled and matched on a worker: one piece of work at a time, principals in turn.

What a match costs is a client's choice, so it is neither the event loop's work nor all that the workers do: others wait
for one piece of it, and a request with much to match delays only itself.
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
"""Texts that are matched in one piece of work: 0.2 s with the heaviest pattern."""

T = TypeVar("T")


class Matching:
    """Runs matches on a single worker. Requests and group look-ups wait for it, and their number bounds the queue."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_busy = False
        self._waiting: dict[str, deque[Future[None]]] = {}
        """Who waits, by principal; the principal whose turn comes next first."""

    async def what_is_wrong(self, principal: str, pattern: str) -> str:
        """Why a pattern cannot be understood; empty when it can."""
        return await self._run(principal, partial(what_is_wrong, pattern))

    async def matching(self, principal: str, pattern: str, texts: Sequence[str]) -> list[str]:
        """Those texts that a pattern matches as a whole. Raises PatternError."""
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
        """Returns when nothing else is at work."""
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
