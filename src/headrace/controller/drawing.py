"""Prepares the records of new partitions in slices before the decision that writes them.

Each slice chooses replicas and encodes records in one piece of the decision. Only the last piece has records, and
creates all partitions at once. A drawing is valid for the brokers that it was begun with. If one of them has come, gone
or changed, it starts again, a few times; the last time it is done in one go, so that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from headrace.controller.context import ApiError
from headrace.metadata.image import ClusterImage, Partition
from headrace.metadata.new_partitions import NewPartitions
from headrace.metadata.snapshot import partition_record

SLICE_PARTITIONS: Final = 500
"""The number of partitions drawn in one piece."""
BEGUN_MAX: Final = 4
"""How often a drawing may begin; the last time it runs to its end."""


class Drawn(NamedTuple):
    """The records of new partitions, the number of partitions, and the replication factor."""

    topic_id: bytes
    records: list[Any]
    partitions: int
    replication_factor: int


Draw = Generator[None, None, Drawn | ApiError]
"""A generator that yields between slices, and returns the result or why there is none."""


class Drawing:
    """The drawing of one topic's new partitions."""

    def __init__(self) -> None:
        self._draw: Draw | None = None
        self._basis: Any = None
        self._begun = 0

    def go_on(self, image: ClusterImage, draw: Callable[[], Draw], basis: object = None) -> Drawn | ApiError | None:
        """Draws another slice; returns None while there is more. Starts with `draw`, and again if the image's brokers
        or `basis` have changed."""
        now = (image.brokers, image.features, basis)
        known = self._basis
        if self._draw is None or known[0] is not now[0] or known[1:] != now[1:]:
            self._draw, self._basis = draw(), now
            self._begun += 1
        while True:
            try:
                next(self._draw)
            except StopIteration as end:
                drawn: Drawn | ApiError = end.value
                return drawn
            if self._begun < BEGUN_MAX:
                return None


def draw_partitions(partitions: Iterator[Partition | ApiError], topic_id: Callable[[], bytes], level: int) -> Draw:
    """Draws the records of partitions for a metadata.version level: in the order of their indexes, or, for more than a
    slice, as `NewPartitions`. An error ends the drawing."""
    some = list(islice(partitions, SLICE_PARTITIONS))
    first, last = some[0], some[-1]
    if isinstance(first, ApiError):
        return first
    factor = len(first.replicas)
    if len(some) < SLICE_PARTITIONS:
        if isinstance(last, ApiError):
            return last
        known = topic_id()
        placed = sorted((each for each in some if isinstance(each, Partition)), key=lambda each: each.index)
        return Drawn(known, [partition_record(known, each, level) for each in placed], len(placed), factor)
    new = NewPartitions(topic_id(), level)
    while some:
        for each in some:
            if isinstance(each, ApiError):
                return each
            new.add(partition_record(new.topic_id, each, level))
        yield
        some = list(islice(partitions, SLICE_PARTITIONS))
    return Drawn(new.topic_id, [new], len(new.partitions), factor)
