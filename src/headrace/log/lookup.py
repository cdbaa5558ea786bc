"""Look-ups in a log: by timestamp, by transaction, and the state of its producers."""

from __future__ import annotations

from array import array
from typing import Final

from headrace.log.filenames import SNAPSHOT, offset_name
from headrace.log.producer_snapshot import SnapshotError
from headrace.log.producer_snapshot import decode as decode_snapshot
from headrace.log.read_results import Local, TimestampOffset
from headrace.log.rebuild import rebuild_aborted
from headrace.log.scan import Scan
from headrace.log.segment import Segment
from headrace.log.state import LogState
from headrace.log.transaction_index import AbortedTransaction, TransactionIndexError
from headrace.wire._walk import find
from headrace.wire.batch import LOG_APPEND_TIME, BatchHeader
from headrace.wire.primitives import Buffer
from headrace.wire.records import CorruptBatch, batch_body

_ANY_TIME: Final = -(1 << 63)


def aborted_transactions(state: LogState, from_offset: int, read: Local, wait: bool = True) -> list[AbortedTransaction]:
    """The aborted transactions that reach into what was read: see `LogReader.aborted_transactions`."""
    found: list[AbortedTransaction] = []
    segments = state.segments
    to_offset = -1
    for index in range(state.segment_of(from_offset), len(segments)):
        segment = segments[index]
        try:
            entries = segment.aborted(wait=wait)
        except TransactionIndexError:
            to_offset = _end_of(state, read, wait) if to_offset < 0 else to_offset
            if segment.base_offset >= to_offset and not is_open_before(state, segment.base_offset, to_offset):
                return found  # the markers from there on end transactions that begin at or after that offset
            entries = aborted_in(state, segment)
        for entry in entries:
            if entry.last_offset < from_offset:
                continue
            if to_offset < 0:
                to_offset = _end_of(state, read, wait)
            if entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found  # later markers end transactions that begin at or after that offset
    return found


def aborted_in(state: LogState, segment: Segment, *, wait: bool = True) -> list[AbortedTransaction]:
    """Returns the aborted transactions whose marker is in a segment; an index that is damaged, or not covered by a
    seal, is rebuilt from the batches. Raises OSError, and BlockingIOError if the index is not in memory and `wait` is
    false."""
    try:
        return segment.aborted(wait=wait)
    except TransactionIndexError:
        found = rebuild_aborted(state.resources.disk, state.directory, state.segments, segment)
    with state.lock:
        if segment in state.segments:
            segment.learn_aborted(found)
            if segment is not state.active:  # that one is written and sealed with the next flush
                segment.write_aborted(durable=False)  # nobody syncs under the lock
                segment.put_seal()
            found = segment.aborted()
    return found


def is_open_before(state: LogState, offset: int, first_offset: int) -> bool:
    """Whether a transaction that is open at an offset began below another, or nothing says so. Raises OSError."""
    path = f"{state.directory}/{offset_name(offset, SNAPSHOT)}"
    try:
        entries = decode_snapshot(path, state.resources.disk.read_file(path))
    except (FileNotFoundError, SnapshotError):
        return True
    return any(0 <= entry.current_txn_first_offset < first_offset for entry in entries)


def none_aborted(state: LogState, segment: Segment) -> bool:
    """Whether no transaction that ends in a segment or behind it was aborted: see `LogReader.none_aborted`."""
    segments = state.segments
    try:
        return not any(each.aborted(wait=False) for each in segments[state.segment_of(segment.base_offset) :])
    except BlockingIOError:
        return False


def _end_of(state: LogState, read: Local, wait: bool) -> int:
    """Returns an offset at or above all that was read, as close as the index allows without reading batches."""
    segment = read.segment
    if segment is None or read.slice is None:
        return 0
    relative_offset = segment.offset_beyond(read.slice.position + read.size, wait)
    if relative_offset is not None:
        return segment.base_offset + relative_offset
    after = state.segment_of(segment.base_offset) + 1
    return state.bases[after] if after < len(state.bases) else state.bounds.end_offset


def offset_for_timestamp(state: LogState, timestamp: int) -> TimestampOffset | None:
    """The first record at or after a time, at or above the log start offset."""
    for segment in state.segments:
        if segment.size and segment.max_timestamp >= timestamp:
            found = _first_in_segment(state, segment, timestamp)
            if found is not None:
                return found
    return None


def _first_in_segment(state: LogState, segment: Segment, timestamp: int) -> TimestampOffset | None:
    place = segment.find(max(segment.offset_before(timestamp - 1), state.bounds.log_start_offset))
    if place is None:
        return None
    for _, header, data in Scan(segment.file(), place[0], segment.size, crc_from=segment.size, read_bytes=65536):
        if header.max_timestamp >= timestamp:
            found = KeptRecords(state, header, data).first(timestamp)
            if found is not None:
                return found
    return None


def max_timestamp_offset(state: LogState) -> TimestampOffset | None:
    """The first of the records with the largest timestamp, even if that is -1."""
    segments = [
        segment for segment in state.segments[state.segment_of(state.bounds.log_start_offset) :] if segment.size
    ]
    found: TimestampOffset | None = None
    for segment in sorted(segments, key=lambda each: -each.max_timestamp):
        if found is not None and segment.max_timestamp < found.timestamp:
            break  # none of those that follow has a batch as new
        if found is None or segment.max_timestamp > found.timestamp or segment.base_offset < found.offset:
            newest = _newest_in_segment(state, segment)
            if newest is not None and (found is None or _is_before(newest, found)):
                found = newest
    return found


def _is_before(one: TimestampOffset, other: TimestampOffset) -> bool:
    return (-one.timestamp, one.offset) < (-other.timestamp, other.offset)


def _newest_in_segment(state: LogState, segment: Segment) -> TimestampOffset | None:
    """Returns the record that the time index names, or scans all batches if there is none: it may have been deleted or
    compacted, or never existed, as the headers of compressed batches are not checked."""
    newest, last_offset = segment.max_timestamp, segment.max_timestamp_offset
    start = max(state.bounds.log_start_offset, segment.base_offset)
    place = segment.find(last_offset) if last_offset >= start else None
    if place is not None:
        for _, header, data in Scan(segment.file(), place[0], place[0] + place[1], crc_from=segment.size):
            found = KeptRecords(state, header, data).first(newest)
            if found is not None and found.timestamp == newest:
                return found
    place = segment.find(start)
    best: TimestampOffset | None = None
    if place is not None:
        for _, header, data in Scan(segment.file(), place[0], segment.size, crc_from=segment.size):
            if best is None or header.max_timestamp > best.timestamp:
                above = _ANY_TIME if best is None else best.timestamp + 1
                best = KeptRecords(state, header, data).newest(above) or best
                if best is not None and best.timestamp >= newest:
                    break
    return best


class KeptRecords:
    """The records of a batch at or above the log start offset. The header's values may not hold for these.

    No record becomes an object: a few KB may decompress to millions. A body that cannot be decompressed, or that
    exceeds the topic's limit, has no record to return.
    """

    def __init__(self, state: LogState, header: BatchHeader, data: memoryview) -> None:
        self._header = header
        self._data = data
        self._start = state.bounds.log_start_offset
        self._limit = state.config.max_decompressed_bytes
        self._body: Buffer | None = None

    def first(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after a time."""
        header = self._header
        is_stamped = header.timestamp_type == LOG_APPEND_TIME  # by the broker: all have the same
        if is_stamped and header.max_timestamp < timestamp:
            return None
        try:
            body = self._body = batch_body(self._data, 0, header, self._limit) if self._body is None else self._body
        except CorruptBatch:
            return None
        found, after = array("q", (0, 0)), _ANY_TIME if is_stamped else timestamp
        if not find(body, 0, len(body), header.base_offset, header.base_timestamp, after, self._start, found):
            return None
        found_at = header.max_timestamp if is_stamped else found[1]
        return TimestampOffset(found[0], found_at, header.partition_leader_epoch)

    def newest(self, after: int) -> TimestampOffset | None:
        """The first of the records with the largest timestamp, if that is at or after a time."""
        latest = self._header.max_timestamp
        found = self.first(max(after, latest))
        if found is not None:
            return found
        found = self.first(after)
        while found is not None and found.timestamp < latest:  # no record is later than that
            middle = found.timestamp + (latest - found.timestamp + 1) // 2
            later = self.first(middle)
            if later is None:
                latest = middle - 1
            else:
                found = later
        return found
