"""Decides work on many partitions in pieces.

One decision has some hundred records at most and looks at some ten thousand partitions, so that a controller with many
partitions can decide other requests in between. `ManyThings` is a request for many items, each of which succeeds or
fails alone; `Alterations` is a request to alter items, each of which may be named once. `Sweep` scans all topics for
partitions to change. The departure of a broker is in `departure`.

Each piece is decided upon the newest image, with all decisions since the piece before. If the log ends between two
pieces, those before stay decided; Kafka's controller writes such a request as one batch. The client then gets no
success, retries, and less is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from headrace.controller.context import DONE, MAX_RECORDS_PER_REQUEST, TOO_MANY_RECORDS, ApiError, ControllerContext
from headrace.controller.partition_changes import PartitionChanges, Target
from headrace.machine import Decision
from headrace.machine.split_table import PARTS, SplitTable
from headrace.metadata.image import ClusterImage, Partition, Topic

PIECE_RECORDS: Final = 100
"""The limit of records of one piece."""
PIECE_PARTITIONS: Final = 20_000
"""The limit of partitions that one piece looks at."""
PIECE_TRIES: Final = 500
"""The limit of items that one piece tries: an item may take time without a result."""
PIECE_COUNTED: Final = 1000
"""The limit of items whose names one piece counts."""
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class Counted(Generic[K, T]):
    """The names that a request has more than once, counted in pieces."""

    def __init__(self, things: Sequence[T], name_of: Callable[[T], K]) -> None:
        self._things = things
        self._name_of = name_of
        self._counted = 0
        self._last: SplitTable[K, T] = SplitTable()
        """The last item of each name."""
        self._twice: SplitTable[K, None] = SplitTable()

    @property
    def is_counted(self) -> bool:
        """Whether the whole request has been counted."""
        return self._counted >= len(self._things)

    def count_some(self) -> None:
        """Counts the next PIECE_COUNTED items."""
        some = self._things[self._counted : self._counted + PIECE_COUNTED]
        self._counted += len(some)
        parts, name_of = self._last.parts, self._name_of
        for thing in some:
            name = name_of(thing)
            part = parts[hash(name) % PARTS]  # saves one call per item
            if name in part:
                self._twice[name] = None
            else:
                self._note(name)
            part[name] = thing

    def _note(self, name: K) -> None:
        """Notes the first occurrence of a name."""

    def is_twice(self, name: K) -> bool:
        """Returns whether the request has a name more than once."""
        return name in self._twice

    def done_with(self, name: K) -> None:
        """Frees the entry of a name that occurs once: to free all of them together would take as long as a piece."""
        self._last.discard(name)


class Named(Counted[K, T]):
    """Counts the names of a request that is answered by name, in the order of their first occurrence."""

    def __init__(self, things: Sequence[T], name_of: Callable[[T], K]) -> None:
        super().__init__(things, name_of)
        self._names: list[K] = []

    def _note(self, name: K) -> None:
        self._names.append(name)

    def in_order(self) -> Iterator[T]:
        """Yields the last item of each name."""
        for name in self._names:
            yield self._last[name]
            self.done_with(name)


class ManyThings(Generic[T, R]):
    """The pending items of a request, and the reply, to which `take` adds each result.

    None among the items is a step without an item: a container that may be empty. `refusal` is called before each
    piece, and returns an answer to the whole request, or None.
    """

    def __init__(
        self,
        things: Iterable[T | None],
        reply: R,
        take: Callable[[PartitionChanges, T], None],
        context: ControllerContext,
        refusal: Callable[[ClusterImage], R | None] = lambda _: None,
    ) -> None:
        self._waiting = iter(things)
        self._reply = reply
        self._take = take
        self._context = context
        self._refusal = refusal
        self._records = 0
        """The number of records in the pieces so far."""

    def decide(self, image: ClusterImage) -> Decision[R]:
        """Decides the next piece."""
        refused = self._refusal(image)
        if refused is not None:
            return Decision(refused)
        changes = PartitionChanges(image, self._context, self._records)
        for tries, thing in enumerate(self._waiting, 1):
            if thing is not None:
                self._take(changes, thing)
            if tries >= PIECE_TRIES or len(changes.records) >= PIECE_RECORDS or changes.looked_at >= PIECE_PARTITIONS:
                self._records += len(changes.records)
                return Decision(self._reply, changes.records, self.decide)
        return Decision(self._reply, changes.records)


class Alterations(Generic[T]):
    """A request to alter many items, each as a whole or not at all; results are in the request's order.

    `alter` returns the records for one item, or why there are none. Items with the same `key_of` are all refused with
    `twice`.
    """

    def __init__(
        self,
        things: Sequence[T],
        alter: Callable[[ClusterImage, T], list[Any] | ApiError],
        key_of: Callable[[T], Hashable],
        twice: ApiError,
        *,
        validate_only: bool,
    ) -> None:
        self._things = things
        self._alter = alter
        self._key_of = key_of
        self._named = Counted(things, key_of)
        self._twice = twice
        self._validate_only = validate_only
        self._answers: list[ApiError] = []
        self._records = 0
        """The number of records in the pieces so far."""

    def decide(self, image: ClusterImage) -> Decision[list[ApiError]]:
        """Decides the next piece."""
        if not self._named.is_counted:
            self._named.count_some()
            if not self._named.is_counted:
                return Decision(self._answers, [], self.decide)
        records: list[Any] = []
        answers = self._answers
        end = min(len(answers) + PIECE_TRIES, len(self._things))
        while len(answers) < end and len(records) < PIECE_RECORDS:
            answers.append(self._take(image, self._things[len(answers)], records))
        rest = self.decide if len(answers) < len(self._things) else None
        return Decision(answers, [] if self._validate_only else records, rest)

    def _take(self, image: ClusterImage, thing: T, records: list[Any]) -> ApiError:
        key = self._key_of(thing)
        if self._named.is_twice(key):
            return self._twice
        self._named.done_with(key)
        made = self._alter(image, thing)
        if isinstance(made, ApiError):
            return made
        if self._records + len(made) > MAX_RECORDS_PER_REQUEST:
            return TOO_MANY_RECORDS
        self._records += len(made)
        assert self._records <= MAX_RECORDS_PER_REQUEST
        records += made
        return DONE


class Sweep:
    """One pass over the topics that exist at its start.

    `find` returns the partitions of a topic to change, and `target` the change, if it is possible. At most
    `changes_max` partitions change, if that is given.
    """

    def __init__(
        self,
        find: Callable[[PartitionChanges, Topic], Iterable[Partition]],
        target: Target,
        changes_max: int | None = None,
    ) -> None:
        self.is_cut = False
        """Whether the limit of changes may have left partitions unchanged."""
        self._find = find
        self._target = target
        self._changes_max = changes_max
        self._changed = 0
        self._waiting: list[str] | None = None
        """Topics still to be looked at, the next one last."""
        self._next_index = 0
        """The partition of the next topic at which to continue."""

    def go_on(self, changes: PartitionChanges) -> bool:
        """Changes as many partitions as one decision may; returns True once none is left."""
        topics, tries = changes.image.topics, 0
        if self._waiting is None:
            self._waiting = sorted(topics.topics_by_name, reverse=True)
        while self._waiting:
            if changes.looked_at >= PIECE_PARTITIONS:
                return False
            topic = topics.by_name(self._waiting[-1])
            if topic is not None:
                changes.looked_at += len(topic.partitions)
                for each in self._find(changes, topic):
                    if each.index < self._next_index:
                        continue
                    if self._changed == self._changes_max:
                        self.is_cut = True
                        return True
                    if tries >= PIECE_TRIES or len(changes.records) >= PIECE_RECORDS:
                        self._next_index = each.index
                        return False
                    tries += 1
                    self._changed += changes.change(topic, each, self._target) is not each
            self._waiting.pop()
            self._next_index = 0
        return True


def decide_sweep(image: ClusterImage, context: ControllerContext, sweep: Sweep) -> Decision[bool]:
    """Decides the next piece of a sweep; the last one replies whether more may be left."""
    changes = PartitionChanges(image, context)
    is_over = sweep.go_on(changes)
    rest = None if is_over else partial(decide_sweep, context=context, sweep=sweep)
    return Decision(sweep.is_cut, changes.records, rest)
