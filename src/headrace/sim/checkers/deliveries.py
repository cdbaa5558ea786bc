"""Checks exactly-once delivery from a query into its topics: compares the confirmed batches with what readers find.

A query numbers the records that it reads, from 0. Each of its writes takes some of them, and each batch ends at a
number. Of the runs of a query, and of copies of its checkpoint, the surviving one defines the ends of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

Place = tuple[str, int]
"""A topic, and the number of its partition."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A confirmation to a run that this part of a write is in its topic: the records of its batch, from `first` to
    before `end`.
    """

    run: str
    batch_id: int
    write: int
    first: int
    end: int


class Found(NamedTuple):
    """A record in a partition: which write has written it, and which number it has in the source."""

    offset: int
    write: int
    number: int


@dataclass
class Deliveries:
    """What is known of one query. `wanted` says whether a write takes a record."""

    query_id: str
    wanted: Callable[[int, int], bool]
    writes: int
    claims: list[Claim] = field(default_factory=list)
    found: dict[Place, list[Found]] = field(default_factory=dict)
    """By partition, the records there in their order."""
    marked: tuple[int, int] = (-1, 0)
    """The last batch that the query's mark names, and how many writes it had."""
    spans: Sequence[tuple[Place, int, int]] | None = None
    """Where the records of the last batch are, first offset and count, as far as known."""
    ends: Sequence[int] = ()
    """Where the batches end that are done, from batch 0 on."""

    def faults(self) -> Iterator[str]:
        """Each promise that is broken, as a sentence."""
        yield from self._claimed()
        for write in range(self.writes):
            yield from self._written(write)
        yield from self._in_order()
        yield from self._remembered()

    def _claimed(self) -> Iterator[str]:
        """A run that got a batch confirmed has planned the batch that is there."""
        bounds = list(pairwise((0, *self.ends)))
        for claim in self.claims:
            place = bounds[claim.batch_id] if claim.batch_id < len(bounds) else None
            if place is not None and place != (claim.first, claim.end):
                yield (
                    f"{claim.run} got write {claim.write} of batch {claim.batch_id} of {self.query_id} confirmed as "
                    f"the topic's records {claim.first} to {claim.end}, and the batch there is of {place}"
                )

    def _written(self, write: int) -> Iterator[str]:
        """Every record of the batches that are done is there once, and no other."""
        seen: dict[int, int] = {}
        for records in self.found.values():
            for each in records:
                if each.write == write:
                    seen[each.number] = seen.get(each.number, 0) + 1
        wanted = {number for number in range(self.ends[-1] if self.ends else 0) if self.wanted(write, number)}
        of = f"of write {write} of {self.query_id}"
        if lost := sorted(wanted - seen.keys()):
            yield f"records {lost} {of} are lost"
        if doubled := sorted(number for number, count in seen.items() if count > 1):
            yield f"records {doubled} {of} are there more than once"
        if strange := sorted(seen.keys() - wanted):
            yield f"records {strange} {of} are there, and of no batch that is done"

    def _in_order(self) -> Iterator[str]:
        """In each partition batches come one after the other."""
        batches = self._batches()
        for place, records in sorted(self.found.items()):
            for write in range(self.writes):
                order = [batches.get(each.number, -1) for each in records if each.write == write]
                if order != sorted(order):
                    yield f"batches of write {write} of {self.query_id} lie in {place} in the order {order}"

    def _remembered(self) -> Iterator[str]:
        """The mark names the last batch with all of its writes, and the places of its records can be looked up."""
        last = len(self.ends) - 1
        if self.marked != (last, self.writes):
            yield f"the mark of {self.query_id} names batch {self.marked}, and {(last, self.writes)} is the last one"
        if self.spans is None:
            return
        batches = self._batches()
        there = {
            (place, each.offset)
            for place, records in self.found.items()
            for each in records
            if batches.get(each.number) == last
        }
        claimed = {(place, first + index) for place, first, count in self.spans for index in range(count)}
        if claimed != there:
            yield f"the last batch of {self.query_id} is reported at {sorted(claimed)}, and is at {sorted(there)}"

    def _batches(self) -> Mapping[int, int]:
        bounds = enumerate(pairwise((0, *self.ends)))
        return {number: batch for batch, (first, end) in bounds for number in range(first, end)}
