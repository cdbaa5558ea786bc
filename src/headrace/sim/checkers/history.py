"""Checks what producers sent and got acknowledged against what readers find: nothing acknowledged is lost, changed,
doubled or reordered.

A record is known by its value, which no other record of a run has. Of each it is known whether its producer got an
offset (acknowledged), an error, or no answer (which leaves both open).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.sim.world import World

Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(slots=True)
class Sent:
    """A record as its producer sent it: which of that producer's records for the partition it is."""

    producer: str
    number: int
    key: bytes | None


@dataclass(slots=True)
class Partition:
    """The history of one partition."""

    compacted: bool = False
    trimmed: bool = False
    """Whether retention may take its beginning."""
    has_markers: bool = False
    """Whether transactions end in it, so that offsets are left out."""
    sent: dict[bytes, Sent] = field(default_factory=dict)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)
    confirmed: set[bytes] = field(default_factory=set)
    """Values that are there, wherever."""


class History:
    """Checks the history of one topic."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.partitions: dict[Place, Partition] = {}
        self.acknowledged_count = 0

    def track(self, place: Place, *, compacted: bool = False, trimmed: bool = False, has_markers: bool = False) -> None:
        """Begins to watch a partition."""
        self.partitions[place] = Partition(compacted, trimmed, has_markers)

    def forget(self, topic: str) -> None:
        """A topic is deleted, or will be."""
        for place in [each for each in self.partitions if each[0] == topic]:
            del self.partitions[place]

    # --- reported by producers

    def sends(
        self, place: Place, producer: str, first_number: int, records: Sequence[tuple[bytes | None, bytes]]
    ) -> None:
        """A batch of (key, value) leaves its producer, for the first time."""
        partition = self.partitions.get(place)
        if partition is not None:
            for i, (key, value) in enumerate(records):
                partition.sent[value] = Sent(producer, first_number + i, key)

    def acknowledges(self, place: Place, base_offset: int, values: Sequence[bytes]) -> None:
        """Takes an acknowledgement of a batch with its offset."""
        partition = self.partitions.get(place)
        if partition is None:
            return
        self.acknowledged_count += len(values)
        for i, value in enumerate(values):
            offset = base_offset + i
            other = partition.acknowledged.setdefault(offset, value)
            self._demand(other == value, place, offset, f"acknowledged for {other!r} and for {value!r}")
            seen = partition.seen.get(offset, value)
            self._demand(seen == value, place, offset, f"acknowledged for {value!r}, and readers saw {seen!r}")

    def confirms(self, place: Place, values: Sequence[bytes]) -> None:
        """Records are written, as a producer learned, at offsets that it did not learn."""
        partition = self.partitions.get(place)
        if partition is not None:
            self.acknowledged_count += len(values)
            partition.confirmed.update(values)

    def end(self, place: Place) -> int:
        """Behind the last record that was acknowledged."""
        return max(self.partitions[place].acknowledged, default=-1) + 1

    # --- reported by readers

    def reads(self, place: Place, offset: int, key: bytes | None, value: bytes) -> None:
        """A reader found a record."""
        partition = self.partitions.get(place)
        if partition is None:
            return
        sent = partition.sent.get(value)
        self._demand(sent is not None, place, offset, f"holds {value!r}, which no client sent")
        self._demand(sent is None or sent.key == key, place, offset, f"{value!r} has another key: {key!r}")
        for what, at in (("acknowledged", partition.acknowledged), ("seen before", partition.seen)):
            other = at.get(offset, value)
            self._demand(other == value, place, offset, f"holds {value!r}, and {other!r} was {what} there")
        partition.seen[offset] = value

    def is_whole(self, place: Place, start: int, end: int, found: Sequence[tuple[int, bytes | None, bytes]]) -> None:
        """A reader read a partition from its start to its end while nobody wrote: (offset, key, value), in order."""
        partition = self.partitions[place]
        self._nothing_doubled(place, partition, found)
        there = {offset: value for offset, _, value in found}
        if not partition.trimmed:
            self._demand(start == 0 or partition.compacted, place, start, "is the start, and no client asked for that")
        if partition.compacted:
            self._last_of_each_key(place, partition, found)
            return
        for what, at in (("acknowledged", partition.acknowledged), ("seen", partition.seen)):
            for offset, value in sorted(at.items()):
                found_there = there.get(offset)
                text = f"holds {found_there!r}, and {value!r} was {what} there"
                self._demand(offset < start or found_there == value, place, offset, text)
        values = set(there.values())
        for value in sorted(partition.confirmed - values):
            self._demand(False, place, end, f"is the end, and {value!r} was confirmed and is nowhere")
        if partition.has_markers:
            return
        for i, (offset, _, _) in enumerate(found):
            self._demand(offset == start + i, place, offset, f"comes where {start + i} was expected")
        self._demand(end == start + len(found), place, end, f"is the end, and {len(found)} records begin at {start}")

    def _nothing_doubled(
        self, place: Place, partition: Partition, found: Sequence[tuple[int, bytes | None, bytes]]
    ) -> None:
        """No record is there twice, and those of a producer come in the order in which it sent them."""
        first: dict[bytes, int] = {}
        last: dict[str, tuple[int, int]] = {}
        for offset, _, value in found:
            self._demand(value not in first, place, offset, f"holds {value!r}, which is at {first.get(value)} too")
            first[value] = offset
            sent = partition.sent.get(value)
            if sent is None:
                continue
            before, at = last.get(sent.producer, (-1, -1))
            text = f"has record {sent.number} of {sent.producer}, which comes after {before} (at {at})"
            self._demand(sent.number > before, place, offset, text)
            last[sent.producer] = (sent.number, offset)

    def _last_of_each_key(
        self, place: Place, partition: Partition, found: Sequence[tuple[int, bytes | None, bytes]]
    ) -> None:
        """Compaction keeps the last value of every key."""
        there: dict[bytes | None, int] = {key: offset for offset, key, _ in found}
        last: dict[bytes | None, int] = {}
        for offset, value in partition.acknowledged.items():
            key = partition.sent[value].key
            last[key] = max(offset, last.get(key, -1))
        for key, offset in sorted(last.items(), key=lambda item: item[1]):
            self._demand(there.get(key, -1) >= offset, place, offset, f"was the last of key {key!r}, and is gone")

    def _demand(self, holds: bool, place: Place, offset: int, text: str) -> None:
        if not holds:
            self._world.object(f"{place[0]}-{place[1]}: offset {offset} {text}")
