"""Finding things in a log: by time, by transaction, and what its producers were."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headrace.log.filenames import SNAPSHOT, offset_name
from headrace.log.producer_snapshot import SnapshotError
from headrace.log.producer_snapshot import decode as decode_snapshot
from headrace.log.rebuild import rebuild_aborted
from headrace.log.results import ReadResult, TimestampOffset
from headrace.log.scan import Scan
from headrace.log.segment import Segment
from headrace.log.transaction_index import AbortedTransaction, TransactionIndexError
from headrace.wire._walk import find
from headrace.wire.batch import LOG_APPEND_TIME, BatchHeader
from headrace.wire.records import CorruptBatch, batch_body

if TYPE_CHECKING:
    from headrace.log.log import Log


def aborted_transactions(log: Log, from_offset: int, read: ReadResult, wait: bool = True) -> list[AbortedTransaction]:
    """See Log.aborted_transactions."""
    found: list[AbortedTransaction] = []
    segments = log.segments
    to_offset = -1
    for index in range(log.segment_of(from_offset), len(segments)):
        segment = segments[index]
        try:
            entries = segment.aborted(wait=wait)
        except TransactionIndexError:
            to_offset = _end_of(log, read, wait) if to_offset < 0 else to_offset
            if segment.base_offset >= to_offset and not is_open_before(log, segment.base_offset, to_offset):
                return found  # the markers from there on end transactions that begin at or after that offset
            entries = aborted_in(log, segment)
        for entry in entries:
            if entry.last_offset < from_offset:
                continue
            if to_offset < 0:
                to_offset = _end_of(log, read, wait)
            if entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found  # later markers end transactions that begin at or after that offset
    return found


def aborted_in(log: Log, segment: Segment, *, wait: bool = True) -> list[AbortedTransaction]:
    """The aborted transactions whose marker is in a segment; an index that is damaged, or that nothing vouches for, is
    made again from the batches. Raises OSError, and BlockingIOError where the index has to be read first and `wait` is
    false."""
    try:
        return segment.aborted(wait=wait)
    except TransactionIndexError:
        found = rebuild_aborted(log.resources.disk, log.directory, log.segments, segment)
    with log.lock:
        if segment in log.segments:
            segment.learn_aborted(found)
            if segment is not log.active:  # that one is written and sealed with the next flush
                segment.write_aborted(durable=False)  # nobody syncs under the lock
                segment.put_seal()
            found = segment.aborted()
    return found


def is_open_before(log: Log, offset: int, first_offset: int) -> bool:
    """Whether a transaction that is open at an offset began below another, or nothing says so. Raises OSError."""
    path = f"{log.directory}/{offset_name(offset, SNAPSHOT)}"
    try:
        entries = decode_snapshot(path, log.resources.disk.read_file(path))
    except (FileNotFoundError, SnapshotError):
        return True
    return any(0 <= entry.current_txn_first_offset < first_offset for entry in entries)


def none_aborted(log: Log, segment: Segment) -> bool:
    """See Log.none_aborted."""
    segments = log.segments
    try:
        return not any(each.aborted(wait=False) for each in segments[log.segment_of(segment.base_offset) :])
    except BlockingIOError:
        return False


def _end_of(log: Log, read: ReadResult, wait: bool) -> int:
    """An offset at or above all that was read, as near as the index says without a look at the batches."""
    segment = read.segment
    if segment is None or read.slice is None:
        return 0
    relative_offset = segment.offset_beyond(read.slice.position + read.size, wait)
    if relative_offset is not None:
        return segment.base_offset + relative_offset
    after = log.segment_of(segment.base_offset) + 1
    return log.bases[after] if after < len(log.bases) else log.end_offset


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """See Log.offset_for_timestamp: the first record at or after a time, at or above the log start offset."""
    for segment in log.segments:
        if segment.size and segment.max_timestamp >= timestamp:
            found = _first_in_segment(log, segment, timestamp)
            if found is not None:
                return found
    return None


def _first_in_segment(log: Log, segment: Segment, timestamp: int) -> TimestampOffset | None:
    place = segment.find(max(segment.offset_before(timestamp - 1), log.log_start_offset))
    if place is None:
        return None
    for _, header, data in Scan(segment.file(), place[0], segment.size, crc_from=segment.size, read_bytes=65536):
        if header.max_timestamp < timestamp or header.last_offset < log.log_start_offset:
            continue
        epoch = header.partition_leader_epoch
        if header.timestamp_type == LOG_APPEND_TIME:
            offset = max(header.base_offset, log.log_start_offset)
            return TimestampOffset(offset, header.max_timestamp, epoch)
        found = _find(log, data, header, timestamp)
        if found is not None:
            return found
    return None


def max_timestamp_offset(log: Log) -> TimestampOffset | None:
    """See Log.max_timestamp_offset: the first record with the largest timestamp of all."""
    found: TimestampOffset | None = None
    for _ in log.segments:
        best = _newest(log)
        if best is None:
            return None
        place = best.find(best.max_timestamp_offset)
        if place is not None:
            found = _newest_in(log, best, place)
            break
        best.rebuild_indexes()  # its time index names an offset that it does not have
    return found


def _newest(log: Log) -> Segment | None:
    best: Segment | None = None
    for segment in log.segments:
        if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    return best if best is not None and best.max_timestamp >= 0 else None


def _newest_in(log: Log, best: Segment, place: tuple[int, int]) -> TimestampOffset | None:
    for _, header, data in Scan(best.file(), place[0], place[0] + place[1], crc_from=best.size):
        if header.timestamp_type == LOG_APPEND_TIME:
            return TimestampOffset(header.last_offset, header.max_timestamp, header.partition_leader_epoch)
        found = _find(log, data, header, header.max_timestamp)
        return found or TimestampOffset(header.last_offset, header.max_timestamp, header.partition_leader_epoch)
    return None


def _find(log: Log, data: memoryview, header: BatchHeader, timestamp: int) -> TimestampOffset | None:
    """The first record of a batch at or after a time, at or above the log start offset.

    The records become no objects: a few KB may open to millions of them. A body that nobody can open, or that opens to
    more than the topic allows, has no record to answer with.
    """
    try:
        body = batch_body(data, 0, header, log.config.max_decompressed_bytes)
    except CorruptBatch:
        return None
    found = array("q", (0, 0))
    start = log.log_start_offset
    if not find(body, 0, len(body), header.base_offset, header.base_timestamp, timestamp, start, found):
        return None
    return TimestampOffset(found[0], found[1], header.partition_leader_epoch)
