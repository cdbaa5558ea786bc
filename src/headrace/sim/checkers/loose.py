"""Checks a topic with unclean leaders (unclean.leader.election.enable) for the guarantees that remain.

Records may be lost, and an offset that was acknowledged or read may get another record. But every record was sent by a
client, none is duplicated, those of a producer are in the order of sending, and no offset is left out. A reader that
sends its epochs learns where its history diverges from the leader's: what it did not have to give up is there in the
end. And in each log epochs never go back, and the log knows where each of them starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.log.read_results import Local
from headrace.sim.checkers.history import History, Place
from headrace.sim.checkers.logs import READ_BYTES
from headrace.wire.batch import iter_whole_headers

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.sim.disk import SimDisk
    from headrace.sim.world import World


class LooseHistory(History):
    """Checks a topic with unclean elections, as far as `History` still holds."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.whole: dict[Place, dict[int, bytes]] = {}
        """What was there in the end, by offset."""
        self._acknowledged: dict[Place, set[bytes]] = {}
        """The acknowledged records of producers."""
        self.lost = 0
        """Acknowledged records that were not."""

    def acknowledges(self, place: Place, base_offset: int, values: Sequence[bytes]) -> None:
        """See History: another record may be there afterwards."""
        self.acknowledged_count += len(values)
        self.partitions[place].acknowledged[base_offset] = values[0]
        self._acknowledged.setdefault(place, set()).update(values)

    def reads(self, place: Place, offset: int, key: bytes | None, value: bytes) -> None:
        """See History."""
        sent = self.partitions[place].sent.get(value)
        self._demand(sent is not None, place, offset, f"holds {value!r}, which no client sent")
        self._demand(sent is None or sent.key == key, place, offset, f"{value!r} has another key: {key!r}")

    def is_whole(self, place: Place, start: int, end: int, found: Sequence[tuple[int, bytes | None, bytes]]) -> None:
        """See History."""
        self._nothing_doubled(place, self.partitions[place], found)
        for i, (offset, _, _) in enumerate(found):
            self._demand(offset == start + i, place, offset, f"comes where {start + i} was expected")
        self._demand(start == 0, place, start, "is the start, and nobody asked for that")
        self._demand(end == len(found), place, end, f"is the end, and there are {len(found)} records")
        self.whole[place] = {offset: value for offset, _, value in found}
        self.lost += len(self._acknowledged.get(place, set()) - set(self.whole[place].values()))


def look_at_epochs(world: World, node: int, replica: Replica, disk: SimDisk) -> None:
    """Of one log, at rest: see the module."""
    log, epoch = replica.log, -1
    starts = log.epochs.entries()
    where = f"{replica.key} on {node}"
    rising = all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(starts))
    world.demand(rising, f"{where} has epochs {starts}")
    offset = log.log_start_offset
    with disk.looked_at():
        while offset < log.end_offset and world.objection is None:
            read = log.reader.read(offset, max_bytes=READ_BYTES, max_offset=log.end_offset)
            assert isinstance(read, Local), "the offset is in the log"
            if read.slice is None:
                break
            view = memoryview(read.slice.file.read(read.slice.position, read.slice.size))
            for _, header in iter_whole_headers(view):
                found = header.partition_leader_epoch
                text = f"{where} has a batch of epoch {found} at {header.base_offset}"
                world.demand(found >= epoch, f"{text}, behind one of epoch {epoch}")
                known = log.epochs.epoch_at(header.base_offset)
                world.demand(known == found, f"{text}, and it knows {known} there: {starts}")
                epoch, offset = found, header.next_offset
