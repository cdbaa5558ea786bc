"""Reads the committed records of `__consumer_offsets` in order, batch by batch, as far as any replica knows them.

One batch is one decision of the coordinator: between two batches every law about a group holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from headrace.groups.records import Record, decode
from headrace.log.read_results import Local
from headrace.wire.batch import iter_whole_headers
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.partitions.replica import Replica
    from headrace.sim.disk import SimDisk

TOPIC: Final = "__consumer_offsets"
READ_BYTES: Final = 1 << 20


class GroupRecords:
    """See the module. All groups of these runs are in one partition."""

    def __init__(self, brokers: Callable[[], Sequence[Broker]], disk_of: Callable[[int], SimDisk]) -> None:
        """`brokers` are those that run, `disk_of` gives a node's disk."""
        self._brokers = brokers
        self._disk_of = disk_of
        self.offset = 0
        """Up to which all is read."""

    def news(self) -> Iterator[tuple[int, list[Record]]]:
        """Yields the batches that were committed since the last call: where each begins, and its records."""
        for broker in self._brokers():
            replica = broker.replicas.held((TOPIC, 0))
            if replica is not None and not replica.is_being_cut:
                yield from self._read(broker, replica)

    def _read(self, broker: Broker, replica: Replica) -> Iterator[tuple[int, list[Record]]]:
        log = replica.log
        end = min(replica.state.high_watermark, log.end_offset)
        if self.offset < log.log_start_offset or end <= self.offset:
            return
        with self._disk_of(broker.node_id).looked_at():
            while self.offset < end:
                read = log.reader.read(self.offset, max_bytes=READ_BYTES, max_offset=end)
                assert isinstance(read, Local), "the offset is in the log"
                if read.slice is None:
                    self.offset = end
                    return
                view = memoryview(bytes(read.slice.file.read(read.slice.position, read.slice.size)))
                for at, header in iter_whole_headers(view):
                    if header.base_offset < self.offset:
                        continue
                    self.offset = header.next_offset
                    if not header.is_control:
                        decoded = [decode(bytes(each.key or b""), each.value) for each in decode_batch(view, at)]
                        yield header.base_offset, [each for each in decoded if each is not None]
