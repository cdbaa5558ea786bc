"""The reading part of a log: by offset, by timestamp, and the aborted transactions of a read. Thread-safe."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from headrace.log import lookup
from headrace.log.read_results import Local, OutOfRange, ReadResult, TimestampOffset
from headrace.log.segment import Segment
from headrace.log.state import LogState
from headrace.log.transaction_index import AbortedTransaction

_NOTHING = Local()


class LogReader:
    """Reads one log. See the module."""

    __slots__ = ("_state", "segment_list")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.segment_list = state.segment_list

    def read(
        self, offset: int, *, max_bytes: int, max_offset: int, min_one: bool = True, wait: bool = True
    ) -> ReadResult:
        """Reads batches from `offset` on, below `max_offset` (a high watermark or last stable offset), at most
        `max_bytes`.

        With `min_one` the first batch is whole, however large; without, nothing is returned if it does not fit. The end
        of the slice may cut a batch, as Kafka's does: readers drop the rest. Raises OSError, and BlockingIOError if the
        position of a batch is not in memory and `wait` is false.
        """
        bounds = self._state.bounds
        if offset < bounds.local_log_start_offset or offset > bounds.end_offset:
            return OutOfRange(bounds.log_start_offset, bounds.end_offset)
        if offset >= max_offset or offset >= bounds.end_offset:
            return _NOTHING
        place = self.place_of(offset, wait=wait)
        if place is None:
            return _NOTHING
        segment, position, first = place
        size = self.readable_end(segment, max_offset, wait=wait) - position
        if size <= 0 or (max_bytes < first and not min_one):
            return _NOTHING
        size = min(size, max(max_bytes, first))
        return Local((segment.open_file or segment.file()).slice(position, size), size, segment)

    def place_of(self, offset: int, *, wait: bool = True) -> tuple[Segment, int, int] | None:
        """Returns the first batch that ends at or above an offset of the log: its segment, its position there, its
        size.

        None if compaction left nothing from that offset on. Raises OSError, and BlockingIOError as `read` does.
        """
        active = self.segment_list.active
        if offset < active.base_offset:
            return self._older_place_of(offset, wait)
        offsets, positions = self._state.recent
        at = bisect_right(offsets, offset) - 1
        if 0 <= at < len(positions):
            position = positions[at]
            return active, position, (positions[at + 1] if at + 1 < len(positions) else active.size) - position
        place = active.find(offset, wait=wait)
        return None if place is None else (active, *place)

    def _older_place_of(self, offset: int, wait: bool) -> tuple[Segment, int, int] | None:
        listed = self.segment_list
        segments = listed.segments
        for index in range(listed.index_of(offset), len(segments)):
            segment = segments[index]
            path = segment.path
            try:
                place = segment.find(offset, wait=wait)
            except FileNotFoundError:
                with listed.lock:  # held to rename files of the log
                    if segment in listed.segments and segment.path == path:
                        raise
                # Compaction or retention took it away in between, or gave it its name: look again.
                return self.place_of(offset, wait=wait)
            if place is not None:
                return segment, *place
            # Else compaction left nothing of this segment from the offset on.
        return None

    def readable_end(self, segment: Segment, max_offset: int, *, wait: bool = False) -> int:
        """Returns the position up to which a segment may be read, given an offset limit. Raises as `read` does."""
        bases = self.segment_list.bases
        after = bisect_right(bases, segment.base_offset)
        ends_before = bases[after] if after < len(bases) else self._state.bounds.end_offset
        return segment.size if max_offset >= ends_before else self._position_of(segment, max_offset, wait)

    def _position_of(self, segment: Segment, offset: int, wait: bool) -> int:
        """Returns the position of the first batch that ends at or above `offset`; the segment's size if there is
        none."""
        if segment is self.segment_list.active:
            offsets, positions = self._state.recent
            at = bisect_left(offsets, offset)
            if at < len(offsets) and offsets[at] == offset:
                return positions[at]
        place = segment.find(offset, wait=wait) if offset > segment.base_offset else (0, 0)
        return segment.size if place is None else place[0]

    def none_aborted(self, segment: Segment) -> bool:
        """Returns whether no transaction that ends in this segment or later was aborted, as far as memory tells."""
        return lookup.none_aborted(self._state, segment)

    def aborted_transactions(self, offset: int, read: Local, *, wait: bool = True) -> list[AbortedTransaction]:
        """Returns the aborted transactions that reach into a read from an offset on, for a read_committed consumer.

        Like Kafka's, the list may have some that begin after it, because the index is sparse. Raises OSError, and
        BlockingIOError if an index has to be read first and `wait` is false.
        """
        return lookup.aborted_transactions(self._state, offset, read, wait)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Returns the first record at or after a time (ms), at or above the log start offset; None if all are older.
        Raises OSError."""
        return lookup.offset_for_timestamp(self._state, timestamp)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """Returns the first record with the largest timestamp, at or above the log start offset; None if there is no
        record. Raises OSError."""
        return lookup.max_timestamp_offset(self._state)

    def earliest_timestamp_offset(self) -> TimestampOffset:
        """Returns the log start offset as a result of ListOffsets."""
        state = self._state
        start = state.bounds.log_start_offset
        return TimestampOffset(start, -1, state.epochs.epoch_at(start))
