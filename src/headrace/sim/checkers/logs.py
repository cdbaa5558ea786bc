"""Checks that the committed records of a partition are the same on all of its replicas, at any time, batch by batch,
for all topics.

Every replica is read up to its high watermark, incrementally; one that was reopened is read again from its start.
Replicas of a compacted topic compact at different times: there records are compared, and one replica may lack what
another still has.

In each log the epochs of a producer never go back, nor do those of the coordinators that end its transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.log.read_results import Local
from headrace.wire.batch import BatchHeader, iter_whole_headers
from headrace.wire.markers import read_marker
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.partitions.replica import Replica
    from headrace.log.log import Log
    from headrace.sim.disk import SimDisk
    from headrace.sim.world import World

READ_BYTES: Final = 1 << 20
EVERY_S: Final = 1.0
"""Of simulated time. What is committed stays, so that a look that comes later sees the same."""


class _Batch(NamedTuple):
    """What tells a batch from another: its checksum covers all but the first two."""

    base_offset: int
    leader_epoch: int
    last_offset: int
    crc: int


@dataclass(slots=True)
class _Known:
    """What the first replica that had come so far has there."""

    batches: dict[int, _Batch] = field(default_factory=dict)
    records: dict[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    """Of a compacted topic, by offset: key and value."""
    epochs: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By producer id: its newest epoch, and that of the coordinator of its newest marker."""
    end: int = 0
    start: int = 0
    """Where the replica begins that begins last: of what lies before it some have gone before anyone looked."""


@dataclass(slots=True)
class _Place:
    """How far one replica is read."""

    log: Log
    offset: int


class Logs:
    """Checks that all replicas of a partition have the same committed batches."""

    def __init__(
        self, world: World, brokers: Callable[[], Sequence[Broker]], disk_of: Callable[[int], SimDisk]
    ) -> None:
        """`brokers` are those that run, `disk_of` gives a node's disk."""
        self._world = world
        self._brokers = brokers
        self._disk_of = disk_of
        self._known: dict[tuple[bytes, int], _Known] = {}
        self._places: dict[tuple[int, bytes, int], _Place] = {}
        self._due = 0.0
        self.loose: frozenset[str] = frozenset()
        """Topics of which leaders may lack what was committed: their replicas are compared at rest alone."""
        self.compared = 0
        """Batches, of all replicas."""

    def look(self) -> None:
        """At any time: at what is new, if it is not long since the last look."""
        if self._world.loop.time() >= self._due:
            self._due = self._world.loop.time() + EVERY_S
            self._look_at_new()

    def _look_at_new(self, *, is_at_rest: bool = False) -> None:
        for broker in self._brokers():
            for replica in self._replicas(broker):
                if is_at_rest or replica.topic not in self.loose:
                    self._look_at(broker.node_id, replica)

    def look_at_all(self) -> None:
        """At rest: at everything, from the start; and all logs of a partition end alike."""
        self._places.clear()
        self._look_at_new(is_at_rest=True)
        ends: dict[tuple[str, int], dict[int, int]] = {}
        for broker in self._brokers():
            for replica in self._replicas(broker):
                ends.setdefault(replica.key, {})[broker.node_id] = replica.log.end_offset
        for key, found in sorted(ends.items()):
            self._world.demand(len(set(found.values())) == 1, f"{key} ends at different offsets: {found}")

    def look_for_open(self) -> None:
        """At rest: no transaction is open anywhere, so that readers of what is committed reach the end."""
        for broker in self._brokers():
            for replica in self._replicas(broker):
                opened = replica.log.producers.first_undecided_offset
                text = f"{replica.key} has an open transaction on {broker.node_id}, from {opened} on"
                self._world.demand(opened is None, text)

    def _replicas(self, broker: Broker) -> Iterator[Replica]:
        """Those that the broker is to have, and has."""
        for topic in broker.image.topics:
            for partition in topic.partitions:
                if broker.node_id in partition.replicas:
                    replica = broker.replicas.held((topic.name, partition.index))
                    if replica is not None and replica.topic_id == topic.id and not replica.is_being_cut:
                        yield replica

    def _look_at(self, node: int, replica: Replica) -> None:
        log = replica.log
        place = self._places.get((node, replica.topic_id, replica.index))
        if place is None or place.log is not log:
            place = self._places[node, replica.topic_id, replica.index] = _Place(log, log.log_start_offset)
        end = min(replica.state.high_watermark, log.end_offset)
        if place.offset >= end:
            return
        known = self._known.setdefault((replica.topic_id, replica.index), _Known())
        known.start = max(known.start, log.log_start_offset)
        place.offset = max(place.offset, log.log_start_offset)
        with self._disk_of(node).looked_at():
            while place.offset < end and self._world.objection is None:
                read = log.reader.read(place.offset, max_bytes=READ_BYTES, max_offset=end)
                assert isinstance(read, Local), "the offset is in the log"
                if read.slice is None:
                    # Compaction left nothing from here on.
                    place.offset = end
                    break
                view = memoryview(read.slice.file.read(read.slice.position, read.slice.size))
                self._compare(node, replica, place, known, view)

    def _compare(self, node: int, replica: Replica, place: _Place, known: _Known, view: memoryview) -> None:
        before = place.offset
        is_compacted = replica.log.config.compact
        for at, header in iter_whole_headers(view):
            self.compared += 1
            batch = _Batch(header.base_offset, header.partition_leader_epoch, header.next_offset - 1, header.crc)
            same = known.batches.setdefault(header.base_offset, batch)
            is_new = same is batch and header.base_offset >= known.end
            where = f"{replica.topic}-{replica.index} on {node}"
            if is_new and header.producer_id >= 0:
                self._look_at_epochs(where, known, view, at, header)
            if is_compacted:
                if same is batch or same != batch:
                    self._compare_records(where, known, view, at, header)
            else:
                self._world.demand(same == batch, f"{where} differs: {batch}, and {same} on another")
                is_known = same is not batch or header.base_offset < known.start
                self._world.demand(is_known or is_new, f"{where} has {batch}, which no other has")
                text = f"{where} has nothing from {place.offset} to {header.base_offset}"
                self._world.demand(header.base_offset <= place.offset, text)
            place.offset = max(place.offset, header.next_offset)
            known.end = max(known.end, header.next_offset)
        if place.offset == before:
            self._world.object(f"{replica.topic}-{replica.index} on {node} has no whole batch at {before}")

    def _look_at_epochs(self, where: str, known: _Known, view: memoryview, at: int, header: BatchHeader) -> None:
        before = known.epochs.get(header.producer_id, (-1, -1))
        marker = read_marker(decode_batch(view, at)[0]) if header.is_control else None
        now = header.producer_epoch, before[1] if marker is None else marker[1]
        known.epochs[header.producer_id] = now
        is_older = now[0] < before[0] or now[1] < before[1]
        text = f"{where} has epochs {now} of producer {header.producer_id} and its coordinator at {header.base_offset}"
        self._world.demand(not is_older, f"{text}, behind {before}")

    def _compare_records(self, where: str, known: _Known, view: memoryview, at: int, header: BatchHeader) -> None:
        if header.is_control:
            return
        for record in decode_batch(view, at):
            pair = (record.key, None if record.value is None else bytes(record.value))
            same = known.records.setdefault(record.offset, pair)
            self._world.demand(same == pair, f"{where} differs at {record.offset}: {pair}, and {same} on another")
