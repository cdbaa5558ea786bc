"""However many objects a large request frees while it makes others, few are young at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker.net import remains
from headrace.broker.net.context import RequestContext
from headrace.broker.quorum import uncommitted
from headrace.broker.requests.pieces import Steps, rest_of
from headrace.broker.serve import GC_THRESHOLDS
from headrace.env.young import let_grow_old
from headrace.machine import Decision
from headrace.metadata.image import ClusterImage
from headrace.security.authorizer import OpenAuthorizer

MANY = 60_000
YOUNG_MAX = 10_000


class Least:
    """The most objects that were young when somebody looked."""

    def __init__(self) -> None:
        self.young = 0

    def look(self) -> None:
        self.young = max(self.young, len(gc.get_objects(0)) + len(gc.get_objects(1)))


@pytest.fixture
def most() -> Iterator[Least]:
    """With a broker's settings of the collector."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(*GC_THRESHOLDS)
    yield Least()
    gc.set_threshold(*before)


def test_steps_that_free_as_much_as_they_make_leave_few_young_objects(most: Least) -> None:
    old: list[Any] = [[] for _ in range(MANY)]
    let_grow_old()

    def steps() -> Steps[list[Any]]:
        made: list[Any] = []
        while old:
            old.pop()
            made.append([])
            if len(made) % 1000 == 0:
                most.look()
            yield 1
        return made

    assert len(asyncio.run(rest_of(RequestContext(OpenAuthorizer()), steps()))) == MANY
    assert most.young <= YOUNG_MAX


def test_what_others_make_while_remains_are_freed_grows_old(most: Least, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    left: list[Any] = [[] for _ in range(MANY)]
    let_grow_old()
    real = remains._may_hold_many

    def meanwhile(kind: Any) -> bool:
        made.extend([] for _ in range(remains.FREED_AT_ONCE))
        most.look()
        return real(kind)

    monkeypatch.setattr(remains, "_may_hold_many", meanwhile)
    remains.take_apart(left)
    assert len(made) >= MANY
    assert most.young <= YOUNG_MAX


def test_pieces_of_a_decision_leave_few_young_objects(most: Least) -> None:
    old: list[Any] = [[] for _ in range(MANY)]
    let_grow_old()
    made: list[Any] = []

    def piece(image: ClusterImage) -> Decision[None]:
        for _ in range(500):
            old.pop()
            made.append([])
        most.look()
        return Decision(None, [], piece if old else None)

    async def decided() -> None:
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting = uncommitted.Uncommitted(ClusterImage())
        waiting.push(0, None, piece(ClusterImage()), asked)
        while waiting.has_next_piece:
            waiting.commit(0)
            waiting.settle()
            following = waiting.next_piece()
            assert following is not None
            decide, future = following
            waiting.push(0, None, decide(ClusterImage()), future)
        assert all(isinstance(effect, uncommitted.Answer) for effect in waiting.settle())

    asyncio.run(decided())
    assert len(made) == MANY
    assert most.young <= YOUNG_MAX
