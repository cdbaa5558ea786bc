"""Answers in pieces: no request takes a turn of the event loop that is longer than PIECE_STEPS small steps.

A handler whose work grows with what is asked for, or with what there is, says what it does as a generator: it yields
how many steps it has made (about so many elements), and returns the response. `in_pieces` makes the first piece at
once. Most requests have no more, and are answered in the same call, without a coroutine. The others go on piece by
piece, one request of a node at a time, and a worker encodes their answer. The connection takes no further request
meanwhile, and where it ends so does the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.broker.net.answers import Pending
from headrace.broker.net.long_answers import still_open

if TYPE_CHECKING:
    from headrace.broker.net.context import RequestContext
    from headrace.broker.requests.services import NodeServices

T = TypeVar("T")
R = TypeVar("R")

PIECE_STEPS: Final = 100
"""Steps of one piece. A step takes some 10 to 80 us: looking up a name and its rights, and making its answer."""
SMALL_PER_STEP: Final = 20
"""Things that are only copied make a step together: members of a group, partitions of a topic."""

Steps = Generator[int, None, R]


def in_pieces(broker: NodeServices, context: RequestContext, steps: Steps[R]) -> R | Coroutine[Any, Any, Any]:
    """What `steps` returns: at once where that is one piece, else later, encoded."""
    left = PIECE_STEPS
    while left > 0:
        try:
            left -= next(steps)
        except StopIteration as end:
            response: R = end.value
            return response
    return _go_on(broker, context, steps)


async def in_turn(broker: NodeServices, context: RequestContext, steps: Steps[R]) -> R:
    """The same for a handler that is a coroutine and has more to do: what `steps` returns, as it is."""
    left = PIECE_STEPS
    while left > 0:
        try:
            left -= next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
    async with broker.long_answers.turn:
        return await rest_of(context, steps)


async def _go_on(broker: NodeServices, context: RequestContext, steps: Steps[Any]) -> Any:
    answers = broker.long_answers
    async with answers.turn:
        result = await rest_of(context, steps)
        if not isinstance(result, Pending | Coroutine):
            return await answers.encoded_in_turn(context.api_key, context.api_version, result)
    value = await (answers.value_of(result) if isinstance(result, Pending) else result)
    return await answers.encoded(context.api_key, context.api_version, value)


async def rest_of(context: RequestContext, steps: Steps[R]) -> R:
    """What `steps` returns, piece by piece: for whoever has the turn."""
    while True:
        await asyncio.sleep(0)
        still_open(context.connection)
        left = PIECE_STEPS
        while left > 0:
            try:
                left -= next(steps)
            except StopIteration as end:
                result: R = end.value
                return result


def each(things: Iterable[T], per_step: int = 1) -> Generator[int, None, list[T]]:
    """The things as a list, `per_step` of them a step."""
    waiting = iter(things)
    found: list[T] = []
    while some := list(islice(waiting, per_step)):
        found += some
        yield 1
    return found


def parts_of(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The things in order, `size` of them at a time."""
    return (things[at : at + size] for at in range(0, len(things), size))
