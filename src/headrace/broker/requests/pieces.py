"""Answers in pieces: no request takes a turn of the event loop that is longer than PIECE_STEPS small steps.

A handler whose work grows with the request, or with the data, is a generator: it yields
how many steps it has made (about so many elements), and returns the response. `in_pieces` makes the first piece at
once. Most requests are one piece, and are answered in the same call, without a coroutine. The others go on piece by
piece, one request of a node at a time, and a worker encodes their answer. The connection takes no further request
meanwhile, and where it ends so does the work.
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
"""Steps of one piece. A step takes some 10 to 80 us: looking up a name and its rights, and making its answer."""
PIECES_YOUNG: Final = 5
"""After so many pieces what they made is old: a step makes some ten objects at most."""
SMALL_PER_STEP: Final = 20
"""Things that are only copied make a step together: members of a group, partitions of a topic."""

Steps = Generator[int, None, R]


def in_pieces(broker: NodeServices, context: RequestContext, steps: Steps[R]) -> R | Coroutine[Any, Any, Any]:
    """What `steps` returns: at once where that is one piece, else later, encoded."""
    first = _first_piece(steps)
    return first[0] if first is not None else _go_on(broker, context, steps)


async def in_turn(broker: NodeServices, context: RequestContext, steps: Steps[R]) -> R:
    """The same for a handler that is a coroutine and has more to do: what `steps` returns, as it is."""
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
    """What `steps` returns, in one turn: for work that is known to be small."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result


def named_twice(things: Sequence[T], name_of: Callable[[T], K], context: RequestContext) -> Steps[SplitTable[K, None]]:
    """The names that a request gives more than once."""
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
    """What is made of each thing, for a handler that is a coroutine."""
    return await in_turn(broker, context, listing(things, make))


def listing(things: Iterable[T], make: Callable[[T], R]) -> Steps[list[R]]:
    """The same for a handler that is a generator."""
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
    """Returns what `steps` return, piece by piece. The caller has the turn. The context keeps the result too."""
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
    """The things in order, `size` of them at a time."""
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
    """The answer to a request that is split into smaller ones, which take effect one after the other: `handle` answers
    each, now or later, and `join` adds an answer to the one before."""
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
"""Things of one part: each costs some 10 to 50 us, and what belongs to the part a round to the log."""


def are_many(topics: Sequence[Any], things: str) -> bool:
    """Whether a request has more topics, and things in the lists of that name, than one part may have."""
    count = len(topics)
    return count > PART_THINGS or count + sum([len(getattr(topic, things)) for topic in topics]) > PART_THINGS


FEW_THINGS: Final = 500
"""What a request of another broker may name to be dealt with in one turn: each takes a few us, 10 with an append."""


def are_few(groups: Sequence[Any], things: str) -> bool:
    """Whether a request has no more than FEW_THINGS groups, topics in these, and things in the topics' lists of that
    name."""
    count = len(groups)
    for group in groups:
        count += len(group.topics)
        if count > FEW_THINGS:
            return False
        count += sum([len(getattr(topic, things)) for topic in group.topics])
    return count <= FEW_THINGS


def topics_in_parts(topics: Sequence[Any], things: str) -> Iterator[list[Any]]:
    """Topics of a request, whose partitions or the like are in the list `things`: PART_THINGS of these at a time, so
    that a topic of many comes several times."""
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
    """A request for topics as several for fewer."""
    for some in topics_in_parts(getattr(request, topics), things):
        part = copy(request)
        setattr(part, topics, some)
        yield part


def join_topics(topics: list[Any], more: list[Any], things: str) -> None:
    """Adds topics of an answer to those before: to the last of these what belongs to it."""
    for topic in more:
        last = topics[-1] if topics else None
        if last is not None and _whose(last) == _whose(topic):
            getattr(last, things).extend(getattr(topic, things))
        else:
            topics.append(topic)


def _whose(topic: Any) -> tuple[Any, Any]:
    return topic.name, getattr(topic, "topic_id", None)
