"""What is decided and not committed yet: a queue of images, each with whoever waits for it.

The newest image is what the next decision is made on; the oldest changes become everybody's as the quorum commits them;
all of them are reverted together when the lead is lost. A decision of many pieces goes on in later turns of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.env.node import settle
from headrace.env.young import let_grow_old
from headrace.machine import Decision
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage

if TYPE_CHECKING:
    from asyncio import Future


PIECES_AHEAD_MAX: Final = 8
"""Pieces that are decided before they are committed, of all decisions together: the next one waits for room."""

SETTLED_RECORDS: Final = 256
"""What is published in one turn of the loop; a larger decision is published in one."""

Decide = Callable[[ClusterImage], Decision[Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """What one decision makes of the image before it."""

    before: ClusterImage
    after: ClusterImage
    delta: ImageDelta


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision on its way. Its reply may leave once everything below `end_offset` is committed: what it was made on,
    and what it changes, if anything (`change`). A piece (`is_piece`) has no reply: the decision goes on."""

    end_offset: int
    change: Change | None
    reply: Any
    asked: Future[Any]
    is_piece: bool = False


class Uncommitted:
    """Decisions in the order in which they were made, over the committed image.

    `soon` calls something in a later turn of the loop; `decide` makes the next piece of a decision for whoever asked;
    `publish` makes a committed change everybody's.
    """

    def __init__(
        self,
        committed: ClusterImage,
        *,
        soon: Callable[[Callable[[], None]], object],
        decide: Callable[[Decide, Future[Any]], None],
        publish: Callable[[Change], None],
    ) -> None:
        self._newest = committed
        self._soon = soon
        self._decide = decide
        self._publish = publish
        self._queue: deque[Decided] = deque()
        self._pieces = 0
        """Those in the queue."""
        self._unfinished: deque[tuple[Decide, Future[Any]]] = deque()
        self._end_offset = 0
        """All below is committed."""
        self._goes_on = self._settles = False
        """Whether a turn of the loop is to come."""

    @property
    def newest(self) -> ClusterImage:
        """The image with everything that was decided."""
        return self._newest

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, end_offset: int, change: Change | None, decision: Decision[Any], asked: Future[Any]) -> None:
        """Takes a decision that was made on the newest image, and the next piece of it if there is one."""
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
            self._go_on_soon()

    def commit(self, end_offset: int) -> None:
        """Everything below an offset is committed: publishes that, some in this turn of the loop, and answers."""
        self._end_offset = end_offset
        if not self._settles:
            self._settle()

    def _settle(self) -> None:
        self._settles = False
        records = 0
        while self._queue and self._queue[0].end_offset <= self._end_offset:
            if records >= SETTLED_RECORDS:
                self._settles = True
                self._soon(self._settle)
                break
            decided = self._queue.popleft()
            self._pieces -= decided.is_piece
            if decided.change is not None:
                records += decided.change.after.offset - decided.change.before.offset
                self._publish(decided.change)
            if not decided.is_piece:
                settle(decided.asked, decided.reply)
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._goes_on and self._unfinished and self._pieces < PIECES_AHEAD_MAX:
            self._goes_on = True
            self._soon(self._go_on)

    def _go_on(self) -> None:
        """One piece in one turn of the loop, as many may wait as there are requests: that of the decision that has
        waited longest. It is made on what the one before leaves, and does not wait until that is committed."""
        self._goes_on = False
        if self._unfinished:
            self._decide(*self._unfinished.popleft())
            self._go_on_soon()

    def revert(self, committed: ClusterImage, why: Exception) -> None:
        """Refuses everything: it will not be committed by this node, nor go on here. The newest image is the committed
        one again."""
        lost = [*(decided.asked for decided in self._queue), *(asked for _, asked in self._unfinished)]
        self._queue.clear()
        self._unfinished.clear()
        self._pieces = 0
        self._newest = committed
        for asked in lost:
            refuse(asked, why)


def refuse(asked: Future[Any], why: Exception) -> None:
    """Tells whoever asked, unless they have gone."""
    if not asked.done():
        asked.set_exception(why)


def look_at(asked: Future[Any]) -> None:
    """Nobody waits for it: another leader may have to do it again."""
    if not asked.cancelled():
        asked.exception()
