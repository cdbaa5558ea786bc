"""What happens to segments over time: rolled, flushed, deleted, truncated, replaced, closed.

Functions of a `Log`, apart from it for their size alone.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from headrace.log import lookup
from headrace.log.directory import LogDirFailed
from headrace.log.filenames import DELETED, PARTITION_METADATA, SNAPSHOT, SWAP, offset_name
from headrace.log.segment import RELATIVE_OFFSET_MAX, Segment

if TYPE_CHECKING:
    from headrace.config.topic import TopicConfig
    from headrace.log.log import Log


def must_roll(log: Log, used: int, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
    """Whether a batch of `size` bytes that ends at `last_offset` belongs into a new segment; `used`: bytes in this one.

    Sets `log.roll_timestamp`: batches with timestamps up to it need not ask because of their time.
    """
    segment, config = log.active, log.config
    if used + size > config.segment_bytes and used:
        return True
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if not used:
        if segment.first_timestamp < 0:
            segment.first_timestamp = max_timestamp
        return False
    first = segment.first_timestamp
    waited = max_timestamp - first if first >= 0 and max_timestamp >= 0 else now_ms - segment.created_ms
    if waited > config.roll_ms - log.roll_jitter_ms:
        return True
    if first >= 0:
        log.roll_timestamp = first + config.roll_ms - log.roll_jitter_ms
    if segment.bytes_since_index > config.index_interval_bytes:
        # Both indexes have room for segment.index.bytes; the time index keeps one entry for the roll itself.
        return (
            len(segment.index) >= config.segment_index_bytes // 8
            or len(segment.time_index) >= config.segment_index_bytes // 12 - 1
        )
    return False


def roll(log: Log, now_ms: int | None, first_timestamp: int = -1) -> None:
    """Starts a new segment at the end of the log; an empty active one stays. Raises OSError.

    `first_timestamp` is that of the batch that comes first in it: from there the time to the next roll counts.
    """
    with log.lock:
        log.roll_timestamp = -1
        active = log.active
        if active.size == 0:
            active.created_ms = now_ms if now_ms is not None else active.created_ms
            active.first_timestamp = first_timestamp
            return
        active.finish_indexes()
        active.complete_files()
        log.take_snapshot()
        created_ms = now_ms if now_ms is not None else max(active.max_timestamp, active.created_ms)
        segment = Segment(log.resources, log.directory, log.end_offset, size=0, created_ms=created_ms)
        segment.first_timestamp = first_timestamp
        segment.create()
        log.mark_names_dirty()
        log.forget_recent()
        log.set_segments([*log.segments, segment])
    if log.on_flush_due is not None:
        log.on_flush_due(log)


def flush(log: Log, guard: threading.Lock, up_to: int | None) -> int:
    """See Log.flush: batches first, then the indexes of what is full, then the folder and the epochs."""
    with guard:
        # The order of these two reads matters: batches below the end lie in the segments known after it.
        end_offset = log.end_offset
        segments = log.segments
        if up_to is not None and log.flushed_offset >= up_to:
            return log.flushed_offset
        if log.flushed_offset < end_offset:
            names_dirty = log.take_names_dirty()
            try:
                first = max(_segment_index(segments, log.flushed_offset), 0)
                for segment in segments[first:]:
                    _sync(log, segment, is_active=segment is segments[-1])
                if names_dirty:
                    _sync_names(log)
            except OSError:
                log.mark_names_dirty()
                raise
        log.epochs.write(durable=True)
        log.flushed_offset = max(log.flushed_offset, end_offset)
        return log.flushed_offset


def write_epochs(log: Log, guard: threading.Lock) -> None:
    """See Log.write_epochs. Raises OSError."""
    with guard:
        if log.epochs.dirty and log.fresh:
            # This syncs the folder: a power cut must not leave it with a partition.metadata that is a name alone.
            _sync_names(log)
        log.epochs.write(durable=True)


def _sync_names(log: Log) -> None:
    disk = log.resources.disk
    if log.fresh:
        path = f"{log.directory}/{PARTITION_METADATA}"
        if disk.exists(path):
            file = disk.open(path)
            file.sync()
            file.close()
        disk.sync_directory(log.directory.rpartition("/")[0])
        log.fresh = False
    disk.sync_directory(log.directory)


def _segment_index(segments: list[Segment], offset: int) -> int:
    for index in range(len(segments) - 1, -1, -1):
        if segments[index].base_offset <= offset:
            return index
    return 0


def _sync(log: Log, segment: Segment, *, is_active: bool) -> None:
    try:
        segment.sync()
        if not is_active:
            segment.sync_indexes()
    except FileNotFoundError:
        if segment in log.segments:
            raise  # retention takes files away while a flush goes on; a segment of the log must be there


def delete_old_segments(log: Log, now_ms: int, high_watermark: int) -> list[Segment]:
    """See Log.maybe_delete_old_segments."""
    with log.lock:
        take_out(log, expired(log, now_ms), now_ms, high_watermark)
        gone = list(log.retiring)
        while log.retiring:
            retire_one(log)
    return gone


def all_there(log: Log) -> bool:
    """Whether every segment has its file: what was not found had been renamed, and is looked for anew."""
    with log.lock:
        return all(log.resources.disk.exists(segment.path) for segment in log.segments)


class Expired(NamedTuple):
    """The segments from the first on that are older than retention.ms, with their sizes, under one configuration."""

    config: TopicConfig
    segments: list[tuple[Segment, int]]


def expired(log: Log, now_ms: int) -> Expired:
    """Looks up, by their largest timestamp, what has expired. Reads cold files: for a worker. Raises OSError.

    A segment that compaction has emptied has no age of its own, whatever its new file says: it goes with those before
    and behind it.
    """
    config = log.config
    found: list[tuple[Segment, int]] = []
    if not config.delete or config.retention_ms < 0:
        return Expired(config, found)
    emptied: list[tuple[Segment, int]] = []
    for segment in log.segments:
        size = segment.size  # first: what is appended while this looks makes the segment young again
        if not size:
            emptied.append((segment, size))
            continue
        newest = segment.max_timestamp
        if newest < 0:
            newest = log.resources.disk.modified_ms(segment.path)
        if now_ms - newest <= config.retention_ms:
            break
        found += [*emptied, (segment, size)]
        emptied.clear()
    return Expired(config, found)


def take_out(log: Log, old: Expired, now_ms: int, high_watermark: int) -> None:
    """Takes the segments that are not kept any more out of the log, into `log.retiring`: `retire_one` does the rest.

    Touches no file but where a log that loses its active segment rolls, or a swap is under way. Hold the lock. For the
    thread that appends. Raises OSError.
    """
    segments = log.segments
    count = 0
    if log.config.delete:
        count = max(_expired(log, old, high_watermark), _oversized(log, high_watermark))
    count = max(count, _below_start(log, high_watermark))
    if not count:
        return
    if count == len(segments):
        roll(log, now_ms)
        segments = log.segments
    give_up_swap(log)
    log.retiring = [*log.retiring, *segments[:count]]
    log.set_segments(segments[count:])
    log.delete_records_before(min(log.bases[0], log.end_offset))


def retire_one(log: Log) -> Segment | None:
    """Gives the files of one segment that was taken out their `.deleted` names; None where none is left.

    For a worker: the lock is held for one segment at a time. Where it fails the segment is retired later. Raises
    OSError.
    """
    with log.lock:
        if not log.retiring:
            return None
        segment = log.retiring[0]
        remove_snapshot(log, segment.base_offset)
        segment.rename(DELETED)
        log.retiring = log.retiring[1:]
        return segment


def remove_snapshot(log: Log, offset: int) -> None:
    """Deletes the producer snapshot at an offset, unless it is the newest one. Raises OSError."""
    if offset != log.snapshot_offset:
        log.resources.disk.remove(f"{log.directory}/{offset_name(offset, SNAPSHOT)}")


def _deletable(log: Log, index: int, high_watermark: int) -> bool:
    """Whether a segment may go at all: everything in it is below the high watermark, and there is something in it."""
    segments = log.segments
    if index + 1 < len(segments):
        return segments[index + 1].base_offset <= high_watermark
    return segments[index].size > 0 and log.end_offset <= high_watermark


def _expired(log: Log, old: Expired, high_watermark: int) -> int:
    """How many segments from the first on are among `old`, as they were when they were looked up."""
    if old.config is not log.config:
        return 0
    count = 0
    for segment, (known, size) in zip(log.segments, old.segments, strict=False):
        if segment is not known or segment.size != size or not _deletable(log, count, high_watermark):
            break
        count += 1
    return count


def _oversized(log: Log, high_watermark: int) -> int:
    """How many segments from the first on may go with retention.bytes still kept by the rest."""
    retention_bytes = log.config.retention_bytes
    if retention_bytes < 0:
        return 0
    excess = log.size_bytes() - retention_bytes
    count = 0
    for index, segment in enumerate(log.segments):
        if excess - segment.size < 0 or not _deletable(log, index, high_watermark):
            break
        excess -= segment.size
        count += 1
    return count


def _below_start(log: Log, high_watermark: int) -> int:
    """How many segments end below the log start offset."""
    segments = log.segments
    count = 0
    while (
        count + 1 < len(segments)
        and segments[count + 1].base_offset <= log.log_start_offset
        and _deletable(log, count, high_watermark)
    ):
        count += 1
    return count


def truncate_to(log: Log, offset: int, now_ms: int) -> None:
    """See Log.truncate_to. Raises OSError."""
    if offset >= log.end_offset:
        return
    with log.lock:
        if offset < log.bases[0]:
            truncate_fully_and_start_at(log, offset, now_ms)
            return
        give_up_swap(log)
        keep = log.segment_of(offset)
        kept, gone = log.segments[: keep + 1], log.segments[keep + 1 :]
        log.forget_recent()
        log.end_offset = offset
        log.flushed_offset = min(log.flushed_offset, offset)
        for segment in reversed(gone):
            segment.remove_files()
        place = kept[-1].find(offset)
        if place is not None:
            kept[-1].truncate(place[0], offset)
        log.set_segments(kept)
        # A batch is cut as a whole: the log may end below the asked offset, at the batch that held it.
        log.end_offset = min(offset, kept[-1].last_batch_end()) if kept[-1].size else kept[-1].base_offset
        log.flushed_offset = min(log.flushed_offset, log.end_offset)
        log.log_start_offset = min(log.log_start_offset, log.end_offset)
        log.epochs.truncate_from_end(log.end_offset)
        log.epochs.write(durable=True)
        lookup.reload_producers(log, now_ms)
        # The log grows over what was cut: a crash must not bring it back.
        log.active.sync()
        log.resources.disk.sync_directory(log.directory)


def truncate_fully_and_start_at(log: Log, offset: int, now_ms: int) -> None:
    """See Log.truncate_fully_and_start_at. Raises OSError."""
    with log.lock:
        give_up_swap(log)
        for segment in reversed(log.segments):
            segment.remove_files()
        disk = log.resources.disk
        for snapshot in lookup.snapshot_offsets(list(disk.list(log.directory))):
            disk.remove(f"{log.directory}/{offset_name(snapshot, SNAPSHOT)}")
        segment = Segment(log.resources, log.directory, offset, size=0, created_ms=now_ms)
        segment.create()
        log.mark_names_dirty()
        log.forget_recent()
        log.snapshot_offset = -1
        log.producers.clear()
        log.epochs.clear()
        log.epochs.write(durable=True)
        log.end_offset = log.flushed_offset = log.log_start_offset = offset
        log.set_segments([segment])


def swap(log: Log, old: list[Segment], new: Segment) -> bool:
    """Puts a compacted segment in the place of those it was made from; False where they are not all there any more.

    For a worker thread. Where it is not done, nothing is left of the new one. Its new name is safe once the folder has
    been synced. Raises OSError, and LogDirFailed where it ended half-way: a start goes on with it.
    """
    with log.lock:
        if _place_of(log, old) < 0:
            new.remove_files()
            return False
        new.rename(SWAP)
        log.swapping = new
    try:
        # From here on a start finishes the swap. Without the lock: who appends must not wait for the disk.
        log.resources.disk.sync_directory(log.directory)
    except BaseException:
        with log.lock:
            give_up_swap(log)
        raise
    with log.lock:
        if log.swapping is not new:
            return False
        log.swapping = None
        first = _place_of(log, old)
        log.set_segments([*log.segments[:first], new, *log.segments[first + len(old) :]])
        try:
            for segment in old:
                segment.rename(DELETED)
            new.rename("")
            for segment in old[1:]:
                remove_snapshot(log, segment.base_offset)  # a start looks for snapshots where segments begin
        except OSError as error:
            raise LogDirFailed(log.directory.rpartition("/")[0], error) from error
    return True


def _place_of(log: Log, segments: list[Segment]) -> int:
    """Index of the first of neighbouring segments, -1 where they are not all there."""
    first = next((at for at, segment in enumerate(log.segments) if segment is segments[0]), -1)
    return first if log.segments[first : first + len(segments)] == segments else -1


def give_up_swap(log: Log) -> None:
    """Before segments are taken out of the log: a start must not bring them back in their compacted form.

    Hold the lock. Raises OSError.
    """
    swapping, log.swapping = log.swapping, None
    if swapping is not None:
        swapping.remove_files()


def close(log: Log) -> None:
    """See Log.close. Raises OSError."""
    if not (log.fresh and log.end_offset == log.bases[0]):
        # A log that never held anything is made anew where a power cut takes its folder: syncing thousands of
        # them would hold up a stop for a minute.
        log.flush()
    log.take_snapshot()
    log.active.finish_indexes()
    log.active.complete_files()
    log.sync_indexes()
    for segment in log.segments:
        segment.release()
