"""New partitions are drawn before they are decided, a slice of them in one piece of the decision: where their replicas
go, their records, and these encoded. Only the last piece has records, and with it all partitions are there.

A drawing holds for the brokers that it was begun with. Where one of them has come, gone or changed meanwhile, it begins
again, a few times; then it is drawn in one go, so that it ends.
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
"""Partitions that are drawn in one piece."""
BEGUN_MAX: Final = 4
"""How often a drawing begins; the last time it goes on to its end."""


class Drawn(NamedTuple):
    """The records of new partitions, how many of these there are, and how many replicas each has."""

    topic_id: bytes
    records: list[Any]
    partitions: int
    replication_factor: int


Draw = Generator[None, None, Drawn | ApiError]
"""Yields where others may have their turn, and returns what was drawn, or why that cannot be."""


class Drawing:
    """The new partitions of one topic."""

    def __init__(self) -> None:
        self._draw: Draw | None = None
        self._basis: Any = None
        self._begun = 0

    def go_on(self, image: ClusterImage, draw: Callable[[], Draw], basis: object = None) -> Drawn | ApiError | None:
        """Draws another slice; None while there is more. It begins with `draw`, and again where the image differs in
        its brokers, or `basis` is another."""
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
    """Records of partitions, for a metadata.version level: in the order of their indexes, or, where they are more than
    a slice, as `NewPartitions`. An error is the last of them."""
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
