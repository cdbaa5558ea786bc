"""How an answer travels back to the code that asked for it: a completion, delivered at the end of the turn.

A function that can answer returns the answer. One that cannot answer yet returns a `Completion`, keeps it, and
completes it once. The receiver never runs inside that call: the node's `CompletionQueue` calls it when the code that
completes has returned to the loop. So no state changes under a caller that is in the middle of its work, and answers
are delivered in the order in which they were given.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

if TYPE_CHECKING:
    from headrace.env.owner import Owner

T = TypeVar("T")
U = TypeVar("U")

DELIVERED_PER_TURN: Final = 256
"""Completions that are delivered before the loop serves others."""


@overload
async def settled(known: Completion[T]) -> T: ...
@overload
async def settled(known: T | Completion[T]) -> T: ...
async def settled(known: T | Completion[T]) -> T:
    """Returns a value that is known now, or later."""
    return await known if isinstance(known, Completion) else known


@overload
def when_known(known: Completion[T], receiver: Callable[[T], object]) -> None: ...
@overload
def when_known(known: T | Completion[T], receiver: Callable[[T], object]) -> None: ...
def when_known(known: T | Completion[T], receiver: Callable[[T], object]) -> None:
    """Calls `receiver` with a value: at once if it is known, else at the end of the turn in which it is completed."""
    if not isinstance(known, Completion):
        receiver(known)
    elif known.done:
        receiver(known.take())
    else:
        known.deliver_to(receiver)


class CompletionQueue:
    """The completions of one node that have a value and a receiver, in the order in which they got both."""

    __slots__ = ("_after", "_due", "_is_delivering", "_is_scheduled", "_owner", "future")

    def __init__(self, owner: Owner, future: Callable[[], Future[Any]]) -> None:
        """`owner` schedules the deliveries and gets what a receiver raises; `future` makes a future of its loop."""
        self.future = future
        self._owner = owner
        self._due: deque[tuple[Callable[[Any], object], Completion[Any]]] = deque()
        self._after: deque[Callable[[], object]] = deque()
        self._is_scheduled = False
        self._is_delivering = False

    @property
    def is_delivering(self) -> bool:
        """Whether a receiver is running."""
        return self._is_delivering

    def add(self, receiver: Callable[[Any], object], completion: Completion[Any]) -> None:
        """Calls `receiver` with the completion's value at the end of the turn."""
        self._due.append((receiver, completion))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._owner.soon(self._deliver)

    def after(self, callback: Callable[[], object]) -> None:
        """Calls back once, when everything that is due has been delivered: for work that deliveries share, such as one
        send for several answers."""
        self._after.append(callback)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._owner.soon(self._deliver)

    def _deliver(self) -> None:
        assert not self._is_delivering, "deliveries do not nest"
        due, after = self._due, self._after
        self._is_delivering = True
        left = DELIVERED_PER_TURN
        try:
            while due and left:
                receiver, completion = due.popleft()
                left -= 1
                receiver(completion.take())
            while after:
                after.popleft()()
        finally:
            self._is_delivering = False
            if due or after:  # the turn is used up, or a receiver raised an error
                self._owner.soon(self._deliver)
            else:
                self._is_scheduled = False


class Completion(Generic[T]):
    """An answer that comes later. It is completed once, and has one receiver.

    If it is `done` before it has a receiver, its holder takes the value at once.
    """

    __slots__ = ("_queue", "_receiver", "_shape", "_value", "abandon", "done", "hurry")

    def __init__(
        self,
        queue: CompletionQueue,
        abandon: Callable[[], None] | None = None,
        *,
        hurry: Callable[[], None] | None = None,
    ) -> None:
        """The receiver calls `abandon` if it no longer waits, because its connection is gone, and `hurry` if other work
        waits behind this answer."""
        self._queue = queue
        self._receiver: Callable[[T], object] | None = None
        self._shape: Callable[[Any], Any] | None = None
        self._value: Any = None
        self.done = False
        self.abandon = abandon
        self.hurry = hurry

    def complete(self, value: T) -> None:
        """Gives the value. The receiver gets it at the end of the turn."""
        assert not self.done, "a completion is completed once"
        self.done = True
        self._value = value
        if self._receiver is not None:
            self._queue.add(self._receiver, self)

    def take(self) -> T:
        """Returns the value of a completion that is done."""
        assert self.done, "a value is taken once it is there"
        shape = self._shape
        value: T = self._value if shape is None else shape(self._value)
        return value

    def deliver_to(self, receiver: Callable[[T], object]) -> None:
        """Sets the receiver, which is called at the end of a turn: of this one if the completion is done."""
        assert self._receiver is None, "a completion has one receiver"
        self._receiver = receiver
        if self.done:
            self._queue.add(receiver, self)

    def mapped(self, shape: Callable[[T], U]) -> Completion[U]:
        """Returns the same completion with `shape(value)` as its value. `shape` runs when the value is taken."""
        assert self._receiver is None and self._shape is None, "a completion is mapped once, by what returns it"
        self._shape = shape
        return cast("Completion[U]", self)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done:
            future: Future[T] = self._queue.future()
            self.deliver_to(lambda value: None if future.done() else future.set_result(value))
            return (yield from future)
        return self.take()
