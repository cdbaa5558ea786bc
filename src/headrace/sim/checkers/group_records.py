"""Reads the committed records of `__consumer_offsets` in order, batch by batch, up to the highest known high watermark.

One batch is one decision of the coordinator: between two batches every invariant of a group holds. In a compacted log
it may not: records of a batch that a later one replaced are missing. So a log is read before it is compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headrace.groups.records import Record, decode
from headrace.log import cleaner
from headrace.log.read_results import Local
from headrace.sim.disk import SimDisk
from headrace.sim.moments import in_place
from headrace.wire.batch import iter_whole_headers
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.log.log import Log

TOPIC: Final = "__consumer_offsets"
READ_BYTES: Final = 1 << 20


class GroupRecords:
    """Reads the committed records of `__consumer_offsets`. All groups of these runs are in one partition."""

    def __init__(self, brokers: Callable[[], Sequence[Broker]]) -> None:
        """`brokers` are those that run."""
        self._brokers = brokers
        self._read_early: list[tuple[int, list[Record]]] = []
        """Batches that were read because their log was about to be compacted."""
        self.offset = 0
        """Up to which all is read."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Reads each log before it is compacted inside the block: what is to be compacted is chosen on the thread that
        appends, and the worker that compacts begins later."""
        real = cleaner.dirty

        def dirty(log: Log, last_clean_offset: int | None, high_watermark: int) -> cleaner.Dirty | None:
            found = real(log, last_clean_offset, high_watermark)
            if found is not None and log.topic_partition == (TOPIC, 0):
                self._read_early += self._read(log, found.end_offset)
            return found

        with in_place(cleaner, "dirty", dirty):
            yield

    def news(self) -> Iterator[tuple[int, list[Record]]]:
        """Yields the batches that were committed since the last call: where each begins, and its records."""
        early, self._read_early = self._read_early, []
        yield from early
        for broker in self._brokers():
            replica = broker.replicas.held((TOPIC, 0))
            if replica is not None and not replica.is_being_cut:
                yield from self._read(replica.log, min(replica.state.high_watermark, replica.log.end_offset))

    def _read(self, log: Log, end: int) -> Iterator[tuple[int, list[Record]]]:
        if self.offset < log.log_start_offset or end <= self.offset:
            return
        disk = log.resources.disk
        assert isinstance(disk, SimDisk)
        with disk.looked_at():
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
