"""Long requests in pieces: no request holds the event loop for more than PIECE_STEPS small steps.

A handler whose work grows with the request, or with the data, is a generator: it yields the number of steps it has made
(about the number of elements), and returns the response. `in_pieces` runs the first piece at once. Most requests end
with it, and are answered in the same call, without a coroutine. The others continue piece by piece, one request of a
node at a time, and a worker encodes their answer. The connection takes no further request meanwhile; if it closes, the
work ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.broker.net.long_answers import still_open
from headrace.env.completion import Completion
from headrace.env.young import let_grow_old
from headrace.machine.split_table import SplitTable

if TYPE_CHECKING:
    from headrace.broker.net.context import RequestContext
    from headrace.broker.requests.services import NodeServices

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")

PIECE_STEPS: Final = 100
"""Steps of one piece. A step takes some 10 to 80 us: it looks up a name and its rights, and makes its answer."""
PIECES_YOUNG: Final = 5
"""Pieces between collections of young objects (`let_grow_old`): a step makes some ten objects at most."""
SMALL_PER_STEP: Final = 20
"""Things that are only copied and count together as one step: members of a group, partitions of a topic."""

Steps = Generator[int, None, R]


def in_pieces(broker: NodeServices, context: RequestContext, steps: Steps[R]) -> R | Coroutine[Any, Any, Any]:
    """Returns the result of `steps`: at once if it takes one piece, else as a coroutine of the encoded answer."""
    first = _first_piece(steps)
    return first[0] if first is not None else _go_on(broker, context, steps)


async def in_turn(broker: NodeServices, context: RequestContext, steps: Steps[R]) -> R:
    """Returns the result of `steps`, not encoded, for a handler that is a coroutine and has more to do."""
    first = _first_piece(steps)
    if first is not None:
        return first[0]
    async with broker.long_answers.turn:
        return await rest_of(context, steps)


def _first_piece(steps: Steps[R]) -> tuple[R] | None:
    """Returns the result of `steps` if they end within one piece, and None if steps are left."""
    left = PIECE_STEPS
    while left > 0:
        try:
            left -= next(steps)
        except StopIteration as end:
            return (end.value,)
    return None


def at_once(steps: Steps[R]) -> R:
    """Returns the result of `steps` without a pause, for work that is known to be small."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result


def named_twice(things: Sequence[T], name_of: Callable[[T], K], context: RequestContext) -> Steps[SplitTable[K, None]]:
    """Returns the names that a request has more than once."""
    seen: SplitTable[K, None] = SplitTable()
    twice: SplitTable[K, None] = SplitTable()
    context.keep(seen)
    context.keep(twice)
    for some in parts_of(things, SMALL_PER_STEP):
        for name in map(name_of, some):
            if name in seen:
                twice[name] = None
            seen[name] = None
        yield 1
    return twice


async def listed(broker: NodeServices, context: RequestContext, things: Iterable[T], make: Callable[[T], R]) -> list[R]:
    """Returns `make(thing)` for each thing, in pieces, for a handler that is a coroutine."""
    return await in_turn(broker, context, listing(things, make))


def listing(things: Iterable[T], make: Callable[[T], R]) -> Steps[list[R]]:
    """Returns `make(thing)` for each thing, for a handler that is a generator."""
    made: list[R] = []
    for thing in things:
        made.append(make(thing))
        yield 1
    return made


async def _go_on(broker: NodeServices, context: RequestContext, steps: Steps[Any]) -> Any:
    answers = broker.long_answers
    with answers.freed_later(context):
        async with answers.turn:
            result = await rest_of(context, steps)
            if not isinstance(result, Completion | Coroutine):
                return await answers.encoded_in_turn(context, result)
        value = await (answers.value_of(result) if isinstance(result, Completion) else result)
        return await answers.encoded(context, value)


async def rest_of(context: RequestContext, steps: Steps[R]) -> R:
    """Returns the result of the remaining `steps`, run piece by piece. The caller holds the turn. The context keeps the
    result too."""
    pieces = 0
    while True:
        await asyncio.sleep(0)
        still_open(context)
        pieces += 1
        if pieces % PIECES_YOUNG == 0:
            let_grow_old()
        left = PIECE_STEPS
        while left > 0:
            try:
                left -= next(steps)
            except StopIteration as end:
                result: R = end.value
                context.keep(result)
                return result


def parts_of(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Returns the things in order, `size` at a time."""
    if len(things) <= size:
        return iter((things,) if things else ())
    return (things[at : at + size] for at in range(0, len(things), size))


async def in_parts(
    broker: NodeServices,
    context: RequestContext,
    parts: Iterable[Any],
    handle: Callable[[Any, Any, RequestContext], Any],
    join: Callable[[Any, Any], None],
) -> Any:
    """Returns the encoded answer to a request that is split into smaller ones, which take effect one after the other.
    `handle` answers each, now or later, and `join` adds an answer to those before."""
    answers, whole = broker.long_answers, None
    for part in parts:
        async with answers.turn:
            await asyncio.sleep(0)
            still_open(context)
            part_answer = handle(broker, part, context)
        if isinstance(part_answer, Completion):
            part_answer = await answers.value_of(part_answer)
        elif isinstance(part_answer, Coroutine):
            part_answer = await part_answer
        if whole is None:
            whole = part_answer
        else:
            join(whole, part_answer)
    return await answers.encoded(context, whole)


PART_THINGS: Final = 100
"""Things of one part: each costs some 10 to 50 us, and a part that writes costs one append to the log."""


def are_many(topics: Sequence[Any], things: str) -> bool:
    """Returns whether a request has more topics, and things in the lists of that name, than one part may have."""
    count = len(topics)
    return count > PART_THINGS or count + sum([len(getattr(topic, things)) for topic in topics]) > PART_THINGS


FEW_THINGS: Final = 500
"""Most names in another broker's request that is handled in one turn: each takes a few us, 10 with an append."""


def are_few(groups: Sequence[Any], things: str) -> bool:
    """Returns whether a request has at most FEW_THINGS groups, topics in these, and things in the topics' lists of that
    name."""
    count = len(groups)
    for group in groups:
        count += len(group.topics)
        if count > FEW_THINGS:
            return False
        count += sum([len(getattr(topic, things)) for topic in group.topics])
    return count <= FEW_THINGS


def topics_in_parts(topics: Sequence[Any], things: str) -> Iterator[list[Any]]:
    """Yields topics of a request with PART_THINGS things at a time, from their lists named `things`; a topic with many
    things is yielded several times."""
    some: list[Any] = []
    room = PART_THINGS
    for topic in topics:
        for few in parts_of(getattr(topic, things), PART_THINGS) if getattr(topic, things) else ([],):
            part = copy(topic)
            setattr(part, things, few)
            some.append(part)
            room -= 1 + len(few)
            if room <= 0:
                yield some
                some, room = [], PART_THINGS
    if some:
        yield some


def requests_in_parts(request: Any, topics: str, things: str) -> Iterator[Any]:
    """Splits a request for topics into requests for fewer topics."""
    for some in topics_in_parts(getattr(request, topics), things):
        part = copy(request)
        setattr(part, topics, some)
        yield part


def join_topics(topics: list[Any], more: list[Any], things: str) -> None:
    """Adds topics of an answer to those before; things of the last topic are added to its own list."""
    for topic in more:
        last = topics[-1] if topics else None
        if last is not None and _whose(last) == _whose(topic):
            getattr(last, things).extend(getattr(topic, things))
        else:
            topics.append(topic)


def _whose(topic: Any) -> tuple[Any, Any]:
    return topic.name, getattr(topic, "topic_id", None)
