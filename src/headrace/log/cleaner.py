"""The log cleaner: selects the next log to compact, and replaces its segments so that no crash loses a record.

New segments are written with the suffix `.cleaned`, synced, renamed to `.swap`, and take their final names after the
old ones became `.deleted`. `recovery.finish_swaps` completes what a crash interrupts. Runs on a worker thread: the
log's owner appends and reads meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.env import Clock
from headrace.log import compaction
from headrace.log.compaction import OffsetMap, Rules, Scratch, Transactions, open_body
from headrace.log.filenames import CLEANED
from headrace.log.log import Log
from headrace.log.lookup import aborted_in
from headrace.log.scan import Scan
from headrace.log.segment import RELATIVE_OFFSET_MAX, Segment
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.batch import BatchHeader, read_header
from headrace.wire.primitives import Buffer
from headrace.wire.records import CorruptBatch

WRITE_BYTES = 1024 * 1024
"""The size of one write of cleaned batches."""

PACE_S = 0.1
"""The period over which the throttle evens out the rate, in seconds."""

TURN_S = 0.0005
"""How long small batches are cleaned before other threads get a turn, which costs the cleaner 60 to 200 us."""


class Stopped(Exception):
    """Raised if cleaning ends early: the broker stops, or the log changed under it. Nothing was replaced."""


class Uncleanable(Exception):
    """Raised for a log with an unreadable batch in `segment`: it is left as it is."""

    def __init__(self, why: str, segment: Segment) -> None:
        super().__init__(why)
        self.segment = segment


class Dirty(NamedTuple):
    """A log that may have something to compact, before its timestamps are checked."""

    log: Log
    segments: list[Segment]
    first_dirty_offset: int
    end_offset: int


class Candidate(NamedTuple):
    """A log that can be compacted, with the range."""

    log: Log
    first_dirty_offset: int
    end_offset: int
    ratio: float
    overdue: bool


class Cleaned(NamedTuple):
    """The result of one round."""

    end_offset: int
    bytes_before: int
    bytes_after: int


class CleanerThrottle:
    """Limits the cleaner's reads and writes to a rate, and lets other threads run between batches."""

    def __init__(self, clock: Clock, bytes_per_second: float, stopping: Callable[[], bool]) -> None:
        self._clock = clock
        self._rate = bytes_per_second
        self._stopping = stopping
        self._started = self._rested = clock.monotonic()
        self._bytes = 0

    def spent(self, count: int) -> None:
        """Counts bytes, and waits if the rate requires it. Raises Stopped."""
        if self._stopping():
            raise Stopped
        self._bytes += count
        now = self._clock.monotonic()
        elapsed = now - self._started
        ahead = self._bytes / self._rate - elapsed
        if ahead > 0 or now - self._rested >= TURN_S:
            self._clock.sleep(max(ahead, 0.0))
            self._rested = now
        if elapsed > PACE_S:
            self._started += elapsed
            self._bytes = 0


def candidate(log: Log, last_clean_offset: int | None, high_watermark: int, now_ms: int) -> Candidate | None:
    """Returns the range of a log that can be compacted now, or None. Raises OSError."""
    found = dirty(log, last_clean_offset, high_watermark)
    return None if found is None else examine(found, now_ms)


def dirty(log: Log, last_clean_offset: int | None, high_watermark: int) -> Dirty | None:
    """Returns the range of a log that may be compacted, by memory alone; for the thread that appends."""
    first_dirty = log.log_start_offset if last_clean_offset is None else last_clean_offset
    if not log.log_start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.log_start_offset
    segments = log.segments
    end_offset = min(log.last_stable_offset(high_watermark), log.flushing.flushed_offset, segments[-1].base_offset)
    found = Dirty(log, segments, first_dirty, end_offset)
    first, index = _index_of(segments, first_dirty), _index_of(segments, end_offset)
    has_some = segments[index].base_offset > first_dirty and any(segment.size for segment in segments[first:index])
    return found if has_some else None


def examine(found: Dirty, now_ms: int) -> Candidate | None:
    """Decides as Kafka's LogCleanerManager.cleanableOffsets. May read timestamps from files: for a worker. Raises
    OSError."""
    log, segments, first_dirty, end_offset = found
    config = log.config
    first = _index_of(segments, first_dirty)
    if config.min_compaction_lag_ms > 0:
        for segment in segments[first:-1]:
            if segment.max_timestamp > now_ms - config.min_compaction_lag_ms:
                end_offset = min(end_offset, segment.base_offset)
                break
    # Whole segments only: up to the last one that ends at or below the limit.
    index = _index_of(segments, end_offset)
    end_offset = segments[index].base_offset
    if end_offset <= first_dirty:
        return None
    dirty_bytes = sum(segment.size for segment in segments[first:index])
    clean_bytes = sum(segment.size for segment in segments[:first])
    if not dirty_bytes:
        return None
    overdue = False
    if now_ms > config.max_compaction_lag_ms:
        oldest = min((s.first_timestamp for s in segments[first:-1] if s.first_timestamp > 0), default=now_ms)
        overdue = oldest < now_ms - config.max_compaction_lag_ms
    return Candidate(log, first_dirty, end_offset, dirty_bytes / (dirty_bytes + clean_bytes), overdue)


def _index_of(segments: list[Segment], offset: int) -> int:
    """Returns the index of the segment that holds an offset; 0 for offsets below the first one."""
    return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)


def worth_it(found: Candidate) -> bool:
    """Returns whether a candidate is dirty enough, or has waited long enough."""
    return found.overdue or found.ratio > found.log.config.min_cleanable_dirty_ratio


def clean(
    found: Candidate,
    now_ms: int,
    throttle: CleanerThrottle,
    offsets: OffsetMap,
    scratch: Scratch,
    on_replaced: Callable[[list[Segment]], object],
) -> Cleaned:
    """Compacts a log, a few neighbouring segments after the other. `offsets` is empty.

    Batches are opened one at a time, in `scratch` memory, and walked without the interpreter's lock.
    `on_replaced` is given the segments that others have taken the place of, at once: they have their `.deleted` names.
    Raises Stopped, Uncleanable, OSError: what has been replaced stays so, and the rest is as before.
    """
    log = found.log
    _map_offsets(found, throttle, offsets, scratch)
    segments = [segment for segment in log.segments if segment.base_offset < found.end_offset]
    segments = [segment for segment in segments if segment.base_offset < offsets.end_offset]
    before = sum(segment.size for segment in segments)
    after = 0
    transactions = Transactions()
    transactions.add_aborted(_aborted(log, log.bases[0], found.end_offset))
    producers = _last_batches(log, segments, throttle)
    for group in _groups(log, segments):
        rules = Rules(offsets, now_ms, log.config.delete_retention_ms, found.end_offset, scratch, producers)
        new = _clean_group(log, group, rules, transactions, throttle)
        if not log.swap(group, new):
            raise Stopped
        on_replaced(group)
        log.resources.disk.sync_directory(log.directory)
        after += new.size
    return Cleaned(offsets.end_offset, before, after)


def _map_offsets(found: Candidate, throttle: CleanerThrottle, offsets: OffsetMap, scratch: Scratch) -> None:
    """Adds the last offsets of the keys in the dirty part, or in as much of it as fits the memory."""
    log = found.log
    offsets.end_offset = found.first_dirty_offset
    transactions = Transactions()
    transactions.add_aborted(_aborted(log, found.first_dirty_offset, found.end_offset))
    for segment in _range(log, found.first_dirty_offset, found.end_offset):
        for header, batch in _batches(segment):
            if header.is_control:
                transactions.is_marker_of_nothing(header, batch)
            elif not transactions.is_aborted(header) and header.last_offset >= found.first_dirty_offset:
                try:
                    has_room = offsets.add(header, open_body(header, batch, scratch), found.first_dirty_offset)
                except CorruptBatch as error:
                    raise Uncleanable(f"{segment.path}: {error}", segment) from error
                if not has_room:
                    return
            throttle.spent(header.size)
            offsets.end_offset = max(offsets.end_offset, header.next_offset)
        offsets.end_offset = max(offsets.end_offset, segment.base_offset)
    offsets.end_offset = found.end_offset


def _last_batches(log: Log, segments: list[Segment], throttle: CleanerThrottle) -> dict[int, tuple[int, int]]:
    """Computes `Rules.producers` from the headers of the range."""
    known = {producer_id: (-1, producer.epoch) for producer_id, producer in log.producers.items()}
    if known:
        for segment in segments:
            for _, header, _ in Scan(segment.file(), 0, segment.size, crc_from=segment.size):
                if header.producer_id in known and not header.is_control:
                    known[header.producer_id] = (header.last_offset, header.producer_epoch)
            throttle.spent(0)
    return known


def _batches(segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields all batches of a segment, checked. Raises Uncleanable for a bad one: what follows it must not be
    dropped."""
    scan = Scan(segment.file(), 0, segment.size)
    for _, header, batch in scan:
        yield header, batch
    if scan.problem is not None:
        raise Uncleanable(f"{segment.path} at byte {scan.position}: {scan.problem}", segment)


def _aborted(log: Log, from_offset: int, to_offset: int) -> Iterator[AbortedTransaction]:
    """Yields the aborted transactions with data in a range: their markers are in its segments, or behind them."""
    for segment in log.segments[log.state.segment_of(from_offset) :]:
        for entry in aborted_in(log.state, segment):
            if entry.first_offset < to_offset:
                yield entry


def _range(log: Log, from_offset: int, to_offset: int) -> list[Segment]:
    first = log.state.segment_of(from_offset)
    return [segment for segment in log.segments[first:] if segment.base_offset < to_offset]


def _groups(log: Log, segments: list[Segment]) -> list[list[Segment]]:
    """Groups neighbours that fit into one segment together, so that segments that many rounds made small are merged."""
    config = log.config
    groups: list[list[Segment]] = []
    size = entries = 0
    ends = {segment.base_offset: end for segment, end in zip(segments, [*log.bases[1:], log.end_offset], strict=False)}
    for segment in segments:
        count = len(segment.index)
        fits = (
            groups
            and size + segment.size <= config.segment_bytes
            and (entries + count) * 12 <= config.segment_index_bytes
            and ends[segment.base_offset] - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            groups[-1].append(segment)
            size, entries = size + segment.size, entries + count
        else:
            groups.append([segment])
            size, entries = segment.size, count
    return groups


def _clean_group(
    log: Log, group: list[Segment], rules: Rules, transactions: Transactions, throttle: CleanerThrottle
) -> Segment:
    """Writes what stays of neighbouring segments into one `.cleaned` segment, and syncs it."""
    base_offset = group[0].base_offset
    new = Segment(log.resources, log.directory, base_offset, size=0, created_ms=group[0].created_ms, suffix=CLEANED)
    new.remove_files()
    new.create()
    transactions.kept = []
    try:
        writer = _Writer(new, log.config.index_interval_bytes)
        for segment in group:
            for header, batch in _batches(segment):
                throttle.spent(header.size)
                try:
                    kept = compaction.clean_batch(header, batch, rules, transactions)
                except CorruptBatch as error:
                    raise Uncleanable(f"{segment.path}: {error}", segment) from error
                if kept is not None:
                    writer.add(kept)
                    throttle.spent(len(kept))
        writer.flush()
        if transactions.kept:
            new.set_aborted(transactions.kept)
        new.finish_indexes()
        new.forget_first_timestamp()
        new.sync()
        new.sync_indexes(ended=True)
    except BaseException:
        new.remove_files()
        raise
    return new


class _Writer:
    """A writer that collects batches and appends them to a segment in large pieces."""

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        self._segment = segment
        self._interval_bytes = interval_bytes
        self._pending = bytearray()

    def add(self, batch: Buffer) -> None:
        header = read_header(batch)
        position = self._segment.size + len(self._pending)
        self._segment.note_batch(position, header.last_offset, header.size, header.max_timestamp, self._interval_bytes)
        self._pending += batch
        if len(self._pending) >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            self._segment.file().append([self._pending])
            self._segment.size += len(self._pending)
            self._pending = bytearray()


__all__ = [
    "Candidate",
    "Cleaned",
    "Dirty",
    "CleanerThrottle",
    "Stopped",
    "Uncleanable",
    "candidate",
    "clean",
    "dirty",
    "examine",
    "worth_it",
]
