"""Opening a log: cheap after a clean shutdown, by scanning what the recovery point does not cover after a crash.

After a clean shutdown nothing is read but names, the end of the last index and the last few batches. After a crash, or
where the last batch does not hold together, the batches from the recovery point on are read with their checksums; the
first bad one ends the log, and the loss is in `Log.recovery_report`. Bad data below the recovery point was safe once:
that is `LogDamaged`, and no batch is touched.
"""

from __future__ import annotations

from array import array

from headrace.config.topic import TopicConfig
from headrace.env import Disk
from headrace.log import lookup
from headrace.log.checkpoints import CheckpointError, decode_partition_metadata, is_torn_partition_metadata
from headrace.log.epochs import LeaderEpochs
from headrace.log.filenames import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    REBUILT,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    is_segment_file,
    offset_name,
    parse_offset_name,
)
from headrace.log.log import Log
from headrace.log.offset_index import IndexDamaged, OffsetIndex, TimeIndex, times_rise
from headrace.log.producers import Producers
from headrace.log.rebuild import rebuild_epochs
from headrace.log.results import LogCorrupt, RecoveryReport
from headrace.log.scan import Scan
from headrace.log.segment import Resources, Segment, is_misplaced
from headrace.log.transaction_index import AbortedTransaction, TransactionIndexError
from headrace.log.trusted import note_producer
from headrace.wire.batch import CorruptBatch

NO_TOPIC_ID = bytes(16)


class LogDamaged(OSError):
    """A log that must not be served; `corrupt` says where it is damaged. Its partition alone stays offline."""

    def __init__(self, corrupt: LogCorrupt) -> None:
        super().__init__(str(corrupt))
        self.corrupt = corrupt


def open_log(
    resources: Resources,
    directory: str,
    topic_partition: tuple[str, int],
    config: TopicConfig,
    *,
    topic_id: bytes = NO_TOPIC_ID,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int = 0,
    producers: Producers | None = None,
) -> Log:
    """Opens the log in an existing folder, or starts one in an empty folder.

    `clean` promises that the log was closed by `Log.close`; one whose end is damaged is recovered all the same. Raises
    OSError where the disk fails, LogDamaged where the log cannot be trusted or nobody can tell whose it is.
    """
    disk = resources.disk
    sizes = finish_swaps(resources, directory, dict(disk.list_sizes(directory)))
    if PARTITION_METADATA in sizes and topic_id == NO_TOPIC_ID:
        topic_id = _read_topic_id(disk, directory)
    segments = _find_segments(resources, directory, sizes, log_start_offset, now_ms)
    unindexed = tuple(segment for segment in segments if segment.size and _lacks_index(segment, sizes))
    epochs = LeaderEpochs(disk, directory)
    epochs_problem = _read_epochs(epochs)
    if not epochs.epochs:
        # What lies behind the recovery point is read after a crash in any case.
        rebuild_epochs(epochs, [segment for segment in segments if clean or segment.base_offset < recovery_point])
    log = Log(
        resources,
        directory,
        topic_partition,
        config,
        topic_id=topic_id,
        segments=segments,
        end_offset=segments[-1].base_offset,
        log_start_offset=max(log_start_offset, segments[0].base_offset),
        recovery_point=recovery_point,
        epochs=epochs,
        producers=producers or Producers(),
        now_ms=now_ms,
    )
    snapshots = lookup.snapshot_offsets(list(sizes))
    closed_well = clean and _open_clean(log)
    log.fresh = not closed_well
    if not closed_well:
        trusted_to = _recover(log, snapshots, now_ms, distrusted=clean)
    rebuilt = () if epochs_problem is None else (LEADER_EPOCHS,)
    left = tuple(segment for segment in unindexed if not segment.is_indexed)
    log.recovery_report = log.recovery_report._replace(rebuilt=rebuilt, unindexed=left)
    if log.log_start_offset > log.end_offset:
        # Everything had been deleted up to there, and the files went with it.
        log.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms)
        return log
    log.epochs.truncate_from_end(log.end_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    log.flushed_offset = min(log.flushed_offset, log.end_offset)
    if closed_well:
        _load_producers(log, sizes, snapshots, now_ms)
    else:
        log.producers.remove_expired(now_ms)
        gone = [offset for offset in snapshots if offset > trusted_to]
        for offset in gone:
            disk.remove(f"{directory}/{offset_name(offset, SNAPSHOT)}")
        if gone or log.recovery_report.cut_offset >= 0:
            # The log grows over what was cut: another crash must not bring back what described it.
            disk.sync_directory(directory)
    _remove_stray_snapshots(log, snapshots)
    return log


def _lacks_index(segment: Segment, sizes: dict[str, int]) -> bool:
    """Whether one of a segment's indexes is not there, or (the one by time) has nothing in it."""
    return offset_name(segment.base_offset, INDEX) not in sizes or not sizes.get(
        offset_name(segment.base_offset, TIME_INDEX)
    )


def _read_topic_id(disk: Disk, directory: str) -> bytes:
    path = f"{directory}/{PARTITION_METADATA}"
    data = disk.read_file(path)
    if is_torn_partition_metadata(data):
        return NO_TOPIC_ID  # a crash came before the first sync of the folder: the caller writes it anew
    try:
        return decode_partition_metadata(path, data)
    except CheckpointError as error:
        reason = f"nobody can tell which topic it is of; without the file it is taken for its folder's name ({error})"
        raise LogDamaged(LogCorrupt(directory, path, 0, 0, reason)) from error


def _read_epochs(epochs: LeaderEpochs) -> CheckpointError | None:
    """Reads the leader epochs; returns why the file cannot be read: it holds nothing that the batches do not.

    Raises OSError.
    """
    try:
        epochs.load()
    except CheckpointError as error:
        return error
    return None


def _remove_stray_snapshots(log: Log, snapshots: list[int]) -> None:
    """Where segments were merged no start looks for a snapshot any more, and nobody else would remove it."""
    bases = set(log.bases)
    for offset in snapshots[:-1]:
        if offset not in bases and offset < log.snapshot_offset:
            log.resources.disk.remove(f"{log.directory}/{offset_name(offset, SNAPSHOT)}")


def create_log(
    resources: Resources,
    directory: str,
    topic_partition: tuple[str, int],
    config: TopicConfig,
    *,
    topic_id: bytes,
    now_ms: int,
    producers: Producers,
) -> Log:
    """Starts a log in a folder that has just been made. Raises OSError."""
    segment = Segment(resources, directory, 0, size=0, created_ms=now_ms)
    segment.create()
    log = Log(
        resources,
        directory,
        topic_partition,
        config,
        topic_id=topic_id,
        segments=[segment],
        end_offset=0,
        log_start_offset=0,
        recovery_point=0,
        epochs=LeaderEpochs(resources.disk, directory),
        producers=producers,
        now_ms=now_ms,
    )
    log.fresh = True
    return log


# Files


def finish_swaps(resources: Resources, directory: str, sizes: dict[str, int]) -> dict[str, int]:
    """Ends what a crash interrupted: deletions and compactions. Returns the names and sizes that are left.

    A `.cleaned` file means that a compaction was not complete: it goes, with the `.swap` files at or above it, and the
    old segments stay. A `.log.swap` is complete: it takes the place of the old segments in its range.
    """
    if not any(name.endswith((DELETED, CLEANED, SWAP, REBUILT)) for name in sizes):
        return sizes
    disk = resources.disk
    cleaned = [_base_of(name, CLEANED) for name in sizes if name.endswith(CLEANED)]
    incomplete_from = min(cleaned, default=None)
    swaps: list[int] = []
    for name in sorted(sizes):
        path = f"{directory}/{name}"
        if name.endswith((DELETED, CLEANED, REBUILT)):
            disk.remove(path)
        elif name.endswith(SWAP):
            base = _base_of(name, SWAP)
            if incomplete_from is not None and base >= incomplete_from:
                disk.remove(path)
            elif name.endswith(LOG + SWAP):
                swaps.append(base)
    for base in swaps:
        _finish_swap(resources, directory, base)
    for name in sorted(name for name, _ in disk.list_sizes(directory) if name.endswith(SWAP)):
        # The log of these has its final name already, or is finished above: they follow it.
        disk.rename(f"{directory}/{name}", f"{directory}/{name[: -len(SWAP)]}")
    return dict(disk.list_sizes(directory))


def _base_of(name: str, suffix: str) -> int:
    digits = name[: -len(suffix)].partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _finish_swap(resources: Resources, directory: str, base: int) -> None:
    disk = resources.disk
    path = f"{directory}/{offset_name(base, LOG + SWAP)}"
    segment = Segment(resources, directory, base, size=disk.size(path), suffix=SWAP)
    next_offset = base
    for _, header, _ in Scan(segment.file(), 0, segment.size, crc_from=segment.size):
        next_offset = header.next_offset
    segment.release()
    for name in disk.list(directory):
        for kind in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            offset = parse_offset_name(name, kind)
            if offset is not None and (offset == base or base <= offset < next_offset):
                disk.remove(f"{directory}/{name}")
    disk.rename(path, f"{directory}/{offset_name(base, LOG)}")


def _find_segments(
    resources: Resources, directory: str, sizes: dict[str, int], log_start_offset: int, now_ms: int
) -> list[Segment]:
    bases = sorted(base for base in (parse_offset_name(name, LOG) for name in sizes) if base is not None)
    for name in sizes:
        if is_segment_file(name) and not name.endswith(LOG) and int(name[:20]) not in set(bases):
            resources.disk.remove(f"{directory}/{name}")  # an index without its log
    if not bases:
        segment = Segment(resources, directory, log_start_offset, size=0, created_ms=now_ms)
        segment.create()
        return [segment]
    segments = []
    for base in bases:
        path_size = sizes[offset_name(base, LOG)]
        segments.append(Segment(resources, directory, base, size=path_size))
    if segments[-1].size:
        segments[-1].created_ms = resources.disk.modified_ms(segments[-1].path)
    else:
        segments[-1].created_ms = now_ms
    return segments


# After a clean shutdown


def _open_clean(log: Log) -> bool:
    """Whether the log ends with a whole batch, as one that was closed does; else nothing is known of its end."""
    active = log.active
    if not active.size:
        return True
    try:
        try:
            log.end_offset = active.check_end(log.flushed_offset)
        except CorruptBatch:
            active.rebuild_indexes(log.config.index_interval_bytes)  # perhaps they led astray
            log.end_offset = active.check_end(log.flushed_offset, from_start=True)
    except CorruptBatch:
        return False
    log.flushed_offset = log.end_offset
    return True


# After a crash


def _recover(log: Log, snapshots: list[int], now_ms: int, *, distrusted: bool) -> int:
    """Scans; returns up to which offset producer snapshots describe what is in the log.

    `distrusted`: checksums are computed below the recovery point too, from the last index entry on.
    """
    trusted_to = 1 << 63
    recovery_point = log.flushed_offset
    first = log.segment_of(recovery_point)
    report = RecoveryReport()
    log.end_offset = log.segments[first].base_offset
    lost_from = len(log.segments)
    for index in range(first, len(log.segments)):
        segment = log.segments[index]
        if index > first and segment.base_offset > max(log.end_offset, recovery_point):
            # Compaction leaves such gaps, but never in what only `delete` cleans up: a file did not survive. Where one
            # cannot tell, nothing is cut, and producers are read from the batches alone.
            trusted_to = min(trusted_to, log.end_offset)
        if trusted_to < 1 << 63 and not log.config.compact:
            reason = f"the segment before it ends at offset {log.end_offset}"
            report = report._replace(cut_path=segment.path, cut_offset=log.end_offset, cut_reason=reason)
            lost_from = index
            break
        scanned = _Recovery(log, segment, recovery_point, distrusted=distrusted)
        scanned.run(snapshots if index == first else None, now_ms)
        report = scanned.add_to(report)
        log.end_offset = scanned.end_offset
        if scanned.problem is not None:
            lost_from = index + 1
            break
    if log.end_offset < recovery_point:
        last = log.segments[min(lost_from, len(log.segments)) - 1]
        reason = f"the log ends at offset {log.end_offset}, but was safe up to {recovery_point}"
        raise LogDamaged(LogCorrupt(log.directory, last.path, log.end_offset, last.size, reason))
    if lost_from < len(log.segments):
        for segment in reversed(log.segments[lost_from:]):
            report = report._replace(bytes_cut=report.bytes_cut + segment.size)
            segment.remove_files()
        log.set_segments(log.segments[:lost_from])
    if log.active.created_ms < 0:
        log.active.created_ms = now_ms
    log.recovery_report = report
    return min(trusted_to, log.end_offset)


class _Recovery:
    """The scan of one segment after a crash: finds its valid end, cuts what lies beyond, rebuilds its indexes."""

    def __init__(self, log: Log, segment: Segment, recovery_point: int, *, distrusted: bool) -> None:
        self.log = log
        self.segment = segment
        self.recovery_point = recovery_point
        self.distrusted = distrusted
        self.end_offset = segment.base_offset
        self.problem: str | None = None
        self._aborted: list[AbortedTransaction] = []
        self.batches = 0
        self.bytes_scanned = 0
        self.bytes_cut = 0

    def run(self, snapshots: list[int] | None, now_ms: int) -> None:
        """Raises OSError, and LogDamaged where a batch below the recovery point is bad.

        `snapshots` are given for the first segment: what was known of producers where its scan begins comes from them.
        """
        segment, log = self.segment, self.log
        start, safe_position, start_offset = self._trusted_start()
        if snapshots is not None:
            log.end_offset = start_offset
            lookup.reload_producers(log, now_ms, [offset for offset in snapshots if offset <= start_offset])
        aborted = self._aborted_before(start_offset)
        scan = Scan(segment.file(), start, segment.size, crc_from=start if self.distrusted else safe_position)
        self.end_offset = segment.base_offset
        interval = log.config.index_interval_bytes
        epochs = log.epochs
        for position, header, data in scan:
            if header.base_offset < self.end_offset or header.last_offset - segment.base_offset >= 1 << 31:
                scan.problem = f"offset {header.base_offset} does not follow {self.end_offset - 1}"
                scan.position = position
                break
            if self.distrusted and is_misplaced(header, self.end_offset, self.recovery_point):
                scan.problem = f"offset {header.base_offset} lies behind the end of the log at {self.recovery_point}"
                scan.position = position
                break
            segment.note_batch(position, header.last_offset, header.size, header.max_timestamp, interval)
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                entry = note_producer(log.producers, header, lambda data=data: data)  # type: ignore[misc]
                if entry is not None:
                    aborted.append(entry)
            self.end_offset = header.next_offset
            self.batches += 1
        self.bytes_scanned = scan.position - start
        self.problem = scan.problem
        if self.problem is not None:
            self._cut(scan.position)
        if aborted != self._aborted:
            segment.set_aborted(aborted)
        if segment is not log.segments[-1]:
            segment.finish_indexes()
            segment.complete_files()

    def _aborted_before(self, offset: int) -> list[AbortedTransaction]:
        try:
            self._aborted = self.segment.aborted()
        except TransactionIndexError:
            self.segment.set_aborted([])
            self._aborted = []
        return [entry for entry in self._aborted if entry.last_offset < offset]

    def _trusted_start(self) -> tuple[int, int, int]:
        """(where to begin the scan, from where on checksums are needed, the offset at the former).

        The indexes are cut back to where the scan begins.
        """
        segment = self.segment
        relative = self.recovery_point - segment.base_offset
        index, time_index = segment.open_indexes_unchecked()
        entries, count = self._trusted_entries(index, relative)
        if count and not self._times_reach(time_index, entries[count - 1]):
            segment.rebuild_indexes(self.log.config.index_interval_bytes)
            index, time_index = segment.open_indexes_unchecked()
            entries, count = self._trusted_entries(index, relative)
        last = entries[count - 1] if count else 0
        if self.distrusted and count:  # the batch that it points to may be the damaged one: begin at a sound one
            count -= 1
            last = entries[count - 1] if count else 0
        start = last & 0xFFFFFFFF
        index.cut(entries[:count])
        segment.index_dirty = True
        self._take_times(time_index, last >> 32 if count else -1)
        if relative <= 0:
            return 0, 0, segment.base_offset
        start_offset = segment.base_offset
        for _, header, _ in Scan(segment.file(), start, segment.size, crc_from=segment.size, read_bytes=4096):
            start_offset = header.base_offset
            break
        return start, self._position_of_recovery_point(start), start_offset

    def _trusted_entries(self, index: OffsetIndex, relative: int) -> tuple[array[int], int]:
        """The entries of the offset index as it is, and how many of them were safe, and are whole."""
        entries = index.stored() if relative > 0 else array("Q")
        count = last = 0
        for number, entry in enumerate(entries, 1):
            # What was not synced may have holes: entries count only as long as both of their halves rise.
            rises = entry >> 32 > last >> 32 and entry & 0xFFFFFFFF > last & 0xFFFFFFFF
            if entry >> 32 >= relative or entry & 0xFFFFFFFF >= self.segment.size or not (rises or number == 1):
                break
            last, count = entry, number
        return entries, count

    def _times_reach(self, index: TimeIndex, last: int) -> bool:
        """Whether the time index has what belongs to the offset index up to the entry `last`, as far as one can see.

        Both were safe together: where it has not, it was damaged or taken away.
        """
        times = index.stored()
        beyond = next((at for at, (_, relative) in enumerate(times) if relative > last >> 32), len(times))
        kept = times[:beyond]
        if not kept or not times_rise(kept):
            return False
        try:
            self.segment.check_times(kept[-1][1], kept[-1][0], last)
        except IndexDamaged:
            return False
        return True

    def _take_times(self, index: TimeIndex, relative_end: int) -> None:
        """Keeps the time entries up to the last kept entry of the offset index (-1: none of them)."""
        kept: list[tuple[int, int]] = []
        for timestamp, relative in index.stored():
            if relative > relative_end or (kept and timestamp <= kept[-1][0]):
                break
            kept.append((timestamp, relative))
        index.cut(kept)
        if kept:
            self.segment.set_max_timestamp(kept[-1][0], self.segment.base_offset + kept[-1][1])
        else:
            self.segment.set_max_timestamp(-1, -1)

    def _position_of_recovery_point(self, start: int) -> int:
        """Batches below this position were synced: their headers are followed, their checksums not computed."""
        segment = self.segment
        scan = Scan(segment.file(), start, segment.size, crc_from=segment.size)
        for position, header, _ in scan:
            if header.base_offset >= self.recovery_point:
                return position
        return scan.position

    def _cut(self, position: int) -> None:
        segment = self.segment
        assert self.problem is not None
        if self.end_offset < self.recovery_point:
            raise LogDamaged(LogCorrupt(self.log.directory, segment.path, self.end_offset, position, self.problem))
        self.bytes_cut = segment.size - position
        segment.file().truncate(position)
        segment.file().sync()
        segment.size = position

    def add_to(self, report: RecoveryReport) -> RecoveryReport:
        """What this segment adds to the report of the whole log."""
        report = report._replace(
            batches_scanned=report.batches_scanned + self.batches,
            bytes_scanned=report.bytes_scanned + self.bytes_scanned,
            bytes_cut=report.bytes_cut + self.bytes_cut,
        )
        if self.problem is None:
            return report
        return report._replace(cut_path=self.segment.path, cut_offset=self.end_offset, cut_reason=self.problem)


def _load_producers(log: Log, sizes: dict[str, int], snapshots: list[int], now_ms: int) -> None:
    """After a clean shutdown: the snapshot at the end of the log has it all."""
    end_offset = log.end_offset
    if snapshots and snapshots[-1] == end_offset:
        if sizes.get(offset_name(end_offset, SNAPSHOT)) == lookup.EMPTY_SNAPSHOT_BYTES:
            log.snapshot_offset = end_offset
            return
    if snapshots:
        lookup.reload_producers(log, now_ms, snapshots)


__all__ = ["LogDamaged", "create_log", "finish_swaps", "open_log"]
