"""Decisions that are not committed yet: a queue of images, each with the future that waits for it.

The next decision is made on the newest image. The oldest changes are published as the quorum commits them; all of them
are reverted together when the lead is lost. A decision of many pieces continues in later turns of the event loop. This
is data: the driver adds decisions, and takes out what it has to publish, to answer and to decide next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.env.young import let_grow_old
from headrace.machine import Decision
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage

if TYPE_CHECKING:
    from asyncio import Future


PIECES_AHEAD_MAX: Final = 8
"""Pieces that are decided before they are committed, of all decisions together: the next one waits for room."""

SETTLED_RECORDS: Final = 256
"""Records that are published in one turn of the event loop; a larger decision is published in one."""

Decide = Callable[[ClusterImage], Decision[Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """What one decision makes of the image before it."""

    before: ClusterImage
    after: ClusterImage
    delta: ImageDelta


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the image that a committed decision leaves."""

    change: Change


@dataclass(frozen=True, slots=True)
class Answer:
    """Give a reply to the caller of a decision."""

    asked: Future[Any]
    reply: Any


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that waits for its commit. Its reply may leave once everything below `end_offset` is committed: what
    it was made on, and what it changes, if anything (`change`). A piece (`is_piece`) has no reply: the decision
    continues."""

    end_offset: int
    change: Change | None
    reply: Any
    asked: Future[Any]
    is_piece: bool = False


class Uncommitted:
    """Decisions in the order in which they were made, over the committed image."""

    def __init__(self, committed: ClusterImage) -> None:
        self._newest = committed
        self._queue: deque[Decided] = deque()
        self._pieces = 0
        """Pieces in the queue."""
        self._unfinished: deque[tuple[Decide, Future[Any]]] = deque()
        self._end_offset = 0
        """Everything below is committed."""

    @property
    def newest(self) -> ClusterImage:
        """The image with everything that was decided."""
        return self._newest

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, end_offset: int, change: Change | None, decision: Decision[Any], asked: Future[Any]) -> None:
        """Adds a decision that was made on the newest image, and its next piece if there is one."""
        assert not self._queue or end_offset >= self._queue[-1].end_offset, "decisions commit in their order"
        if change is not None:
            assert change.before is self._newest, "a decision is made on the newest image"
            assert change.after.offset + 1 == end_offset
            self._newest = change.after
        is_piece = decision.then is not None
        self._queue.append(Decided(end_offset, change, decision.reply, asked, is_piece))
        self._pieces += is_piece
        if decision.then is not None:
            let_grow_old()
            self._unfinished.append((decision.then, asked))

    def commit(self, end_offset: int) -> None:
        """Everything below an offset is committed."""
        self._end_offset = end_offset

    @property
    def is_settled(self) -> bool:
        """Whether nothing that is committed is left to publish or to answer."""
        return not self._queue or self._queue[0].end_offset > self._end_offset

    def settle(self) -> list[Publish | Answer]:
        """Takes out committed decisions, as many as one turn of the event loop may publish, and returns their effects
        in order.
        """
        effects: list[Publish | Answer] = []
        records = 0
        while not self.is_settled and records < SETTLED_RECORDS:
            decided = self._queue.popleft()
            self._pieces -= decided.is_piece
            if decided.change is not None:
                records += decided.change.after.offset - decided.change.before.offset
                effects.append(Publish(decided.change))
            if not decided.is_piece:
                effects.append(Answer(decided.asked, decided.reply))
        return effects

    @property
    def has_next_piece(self) -> bool:
        """Whether a decision can continue now: it does not wait until its last piece is committed, but only a few
        pieces may be ahead of their commit."""
        return bool(self._unfinished) and self._pieces < PIECES_AHEAD_MAX

    def next_piece(self) -> tuple[Decide, Future[Any]]:
        """Takes out the next piece of the decision that has waited longest."""
        return self._unfinished.popleft()

    def revert(self, committed: ClusterImage) -> list[Future[Any]]:
        """Drops everything, since this node will not commit it. Returns the futures that are to be refused. The newest
        image is the committed one again."""
        lost = [*(decided.asked for decided in self._queue), *(asked for _, asked in self._unfinished)]
        self._queue.clear()
        self._unfinished.clear()
        self._pieces = 0
        self._newest = committed
        return lost


def refuse(asked: Future[Any], why: Exception) -> None:
    """Fails a future, unless its caller has gone."""
    if not asked.done():
        asked.set_exception(why)


def refuse_all(lost: Sequence[Future[Any]], why: Exception) -> None:
    """Fails futures, but for those whose owner has gone."""
    for asked in lost:
        refuse(asked, why)


def look_at(asked: Future[Any]) -> None:
    """Retrieves the exception of a future that nobody waits for: another leader may have to do it again."""
    if not asked.cancelled():
        asked.exception()
