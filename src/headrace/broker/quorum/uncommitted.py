"""What is decided and not committed yet: a queue of images, each with whoever waits for it.

The newest image is what the next decision is made on; the oldest changes become everybody's as the quorum commits them;
all of them are reverted together when the lead is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.machine import Decision
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage

if TYPE_CHECKING:
    from asyncio import Future


@dataclass(frozen=True, slots=True)
class Change:
    """What one decision makes of the image before it."""

    before: ClusterImage
    after: ClusterImage
    delta: ImageDelta


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision on its way. Its reply may leave once everything below `end_offset` is committed: what it was made on,
    and what it changes, if anything (`change`); or `then` decides the next piece."""

    end_offset: int
    change: Change | None
    reply: Any
    asked: Future[Any]
    then: Callable[[ClusterImage], Decision[Any]] | None = None


class Uncommitted:
    """Decisions in the order in which they were made, over the committed image."""

    def __init__(self, committed: ClusterImage) -> None:
        self._newest = committed
        self._queue: deque[Decided] = deque()
        self._unfinished: deque[Decided] = deque()

    @property
    def newest(self) -> ClusterImage:
        """The image with everything that was decided."""
        return self._newest

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, decided: Decided) -> None:
        """Takes a decision that was made on the newest image."""
        assert not self._queue or decided.end_offset >= self._queue[-1].end_offset, "decisions commit in their order"
        if decided.change is not None:
            assert decided.change.before is self._newest, "a decision is made on the newest image"
            assert decided.change.after.offset + 1 == decided.end_offset
            self._newest = decided.change.after
        self._queue.append(decided)

    def commit(self, end_offset: int) -> list[Decided]:
        """Takes out what is committed with everything below an offset, oldest first."""
        done: list[Decided] = []
        while self._queue and self._queue[0].end_offset <= end_offset:
            done.append(self._queue.popleft())
        return done

    def goes_on(self, piece: Decided) -> None:
        """A piece is committed, and the next one is to be decided."""
        self._unfinished.append(piece)

    def next_unfinished(self) -> Decided | None:
        """Takes out the piece that has waited longest for the next one."""
        return self._unfinished.popleft() if self._unfinished else None

    def revert(self, committed: ClusterImage) -> list[Decided]:
        """Takes out everything: it will not be committed by this node, nor go on here. The newest image is the
        committed one again."""
        lost = [*self._queue, *self._unfinished]
        self._queue.clear()
        self._unfinished.clear()
        self._newest = committed
        return lost


def refuse(asked: Future[Any], why: Exception) -> None:
    """Tells whoever asked, unless they have gone."""
    if not asked.done():
        asked.set_exception(why)


def look_at(asked: Future[Any]) -> None:
    """Nobody waits for it: another leader may have to do it again."""
    if not asked.cancelled():
        asked.exception()
