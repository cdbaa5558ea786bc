"""Recovery after a crash: reads the batches after the recovery point, and truncates an incomplete end.

The first bad batch ends the log. Bad data below the recovery point was safe once: that raises LogDamaged, and no batch
is touched.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from headrace.config.topic import TopicConfig
from headrace.env import Disk
from headrace.log.epochs import LeaderEpochs
from headrace.log.offset_index import IndexDamaged, OffsetIndex, TimeIndex, times_rise
from headrace.log.producer_batches import note_producer
from headrace.log.producer_history import load_producers
from headrace.log.producers import Producers
from headrace.log.recovery_report import LogCorrupt, LogDamaged, RecoveryReport
from headrace.log.scan import Scan
from headrace.log.segment import Segment, index_of
from headrace.log.segment_end import is_misplaced
from headrace.log.transaction_index import AbortedTransaction, TransactionIndexError


class Recovered(NamedTuple):
    """The result of a recovery. Producer snapshots up to `trusted_to` match the log."""

    segments: list[Segment]
    end_offset: int
    trusted_to: int
    snapshot_offset: int
    report: RecoveryReport


class Recovery:
    """The recovery of one log. It changes the segments, epochs and producers that it is given, and nothing else.

    `distrusted`: the log was closed well, and its end is damaged all the same. Then checksums are computed below the
    recovery point too, from the last index entry on.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: Producers,
        recovery_point: int,
        *,
        distrusted: bool,
    ) -> None:
        self.directory = directory
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.recovery_point = recovery_point
        self.distrusted = distrusted
        self.snapshot_offset = -1
        self.disk = disk

    def load_producers(self, snapshots: list[int], end_offset: int, now_ms: int) -> None:
        """Loads the state of producers at an offset, from the newest valid snapshot. Raises OSError."""
        self.snapshot_offset = load_producers(
            self.producers, self.disk, self.directory, self.segments, end_offset, now_ms, snapshots
        )

    def run(self, snapshots: list[int], now_ms: int) -> Recovered:
        """Scans and truncates the log. Raises OSError, LogDamaged."""
        trusted_to = 1 << 63
        segments, recovery_point = self.segments, self.recovery_point
        first = index_of(segments, recovery_point)
        report = RecoveryReport()
        end_offset = segments[first].base_offset
        lost_from = len(segments)
        if first and segments[first].base_offset == recovery_point:
            # It may have been closed after the recovery point was written, so its last time entry may not be safe.
            closed = SegmentScan(self, segments[first - 1])
            closed.rebuild_indexes()
            report = closed.add_to(report)
        for index in range(first, len(segments)):
            segment = segments[index]
            if index > first and segment.base_offset > max(end_offset, recovery_point):
                # Compaction leaves such gaps, but never in what only `delete` cleans up: a file did not survive, and
                # the log is cut there and has no gap. Where one cannot tell, nothing is cut, and producers are read
                # from the batches alone. A distrusted log's end was damaged, and what lies before that was safe.
                trusted_to = min(trusted_to, end_offset)
                if self.config.compact and not self.distrusted:
                    report = report._replace(gap_offset=trusted_to)
            if trusted_to < 1 << 63 and not self.config.compact:
                reason = f"the segment before it ends at offset {end_offset}"
                report = report._replace(cut_path=segment.path, cut_offset=end_offset, cut_reason=reason)
                lost_from = index
                break
            scanned = SegmentScan(self, segment)
            scanned.run(snapshots if index == first else None, now_ms)
            report = scanned.add_to(report)
            end_offset = scanned.end_offset
            if scanned.problem is not None:
                lost_from = index + 1
                break
        if end_offset < recovery_point:
            last = segments[min(lost_from, len(segments)) - 1]
            reason = f"the log ends at offset {end_offset}, but was safe up to {recovery_point}"
            raise LogDamaged(LogCorrupt(self.directory, last.path, end_offset, last.size, reason))
        for segment in reversed(segments[lost_from:]):
            report = report._replace(bytes_cut=report.bytes_cut + segment.size)
            segment.remove_files()
        kept = segments[:lost_from]
        kept[-1].created(now_ms)
        return Recovered(kept, end_offset, min(trusted_to, end_offset), self.snapshot_offset, report)


class SegmentScan:
    """The scan of one segment after a crash: finds its valid end, truncates the rest, rebuilds its indexes."""

    def __init__(self, recovery: Recovery, segment: Segment) -> None:
        self.recovery = recovery
        self.segment = segment
        self.recovery_point = recovery.recovery_point
        self.distrusted = recovery.distrusted
        self.interval_bytes = recovery.config.index_interval_bytes
        self.end_offset = segment.base_offset
        self.problem: str | None = None
        self.batches = 0
        self.bytes_scanned = 0
        self.bytes_cut = 0

    def run(self, snapshots: list[int] | None, now_ms: int) -> None:
        """Scans the segment. Raises OSError, and LogDamaged for a bad batch below the recovery point.

        `snapshots` are given for the first segment: the state of producers at the start of its scan comes from them.
        """
        segment, recovery = self.segment, self.recovery
        start, safe_position, start_offset = self._trusted_start()
        if snapshots is not None:
            recovery.load_producers([offset for offset in snapshots if offset <= start_offset], start_offset, now_ms)
        before = self._aborted_before(start, start_offset)
        aborted: list[AbortedTransaction] = []
        crc_from = start if self.distrusted else safe_position
        segment.file().forget(crc_from)
        scan = Scan(segment.file(), start, segment.size, crc_from=crc_from)
        self.end_offset = segment.base_offset
        epochs, producers = recovery.epochs, recovery.producers
        for position, header, data in scan:
            if header.base_offset < self.end_offset or header.last_offset - segment.base_offset >= 1 << 31:
                scan.stop(position, f"offset {header.base_offset} does not follow {self.end_offset - 1}")
                break
            if self.distrusted and is_misplaced(header, self.end_offset, self.recovery_point):
                end = self.recovery_point
                scan.stop(position, f"offset {header.base_offset} lies behind the end of the log at {end}")
                break
            segment.note_batch(position, header.last_offset, header.size, header.max_timestamp, self.interval_bytes)
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                entry = note_producer(producers, header, lambda data=data: data)  # type: ignore[misc]
                if entry is not None:
                    aborted.append(entry)
            self.end_offset = header.next_offset
            self.batches += 1
        self.bytes_scanned = scan.position - start
        self.problem = scan.problem
        if self.problem is not None:
            self._cut(scan.position)
        if before is not None:
            segment.set_aborted(before + aborted)
        else:
            for entry in aborted:
                segment.add_aborted(entry)
        if segment is not recovery.segments[-1]:
            segment.finish_indexes()
            segment.complete_files()

    def rebuild_indexes(self) -> None:
        """Rebuilds the indexes of a segment that ends at or below the recovery point, from their safe part and the
        batches behind it. Checks no batch and no producer. Raises OSError."""
        segment = self.segment
        start, _, _ = self._trusted_start()
        scan = Scan(segment.file(), start, segment.size, crc_from=segment.size)
        for position, header, _ in scan:
            segment.note_batch(position, header.last_offset, header.size, header.max_timestamp, self.interval_bytes)
            self.batches += 1
        self.bytes_scanned = scan.position - start
        segment.finish_indexes()
        segment.complete_files()
        segment.put_rebuilt(segment.time_index.last)

    def _aborted_before(self, position: int, offset: int) -> list[AbortedTransaction] | None:
        """Returns the aborted transactions of the part that is not scanned; None if no seal covers them: then they are
        rebuilt from the batches when needed. Raises OSError."""
        sealed = self.segment.read_seal()
        self.segment.remove_seal()  # it may cover the truncated part, and what replaces it
        if not position:
            return []
        if sealed is None or sealed.log_bytes < position:
            return None
        try:
            return [e for e in self.segment.sealed_aborted(sealed) if e.last_offset < offset]
        except TransactionIndexError:
            return None

    def _trusted_start(self) -> tuple[int, int, int]:
        """Returns (where to start the scan, from where on checksums are needed, the offset at the former).

        The indexes are cut back to the start of the scan.
        """
        segment = self.segment
        relative = self.recovery_point - segment.base_offset
        index, time_index = segment.open_indexes_unchecked()
        entries, count = self._trusted_entries(index, relative)
        if count and not (
            self.segment.begins_as_sealed()
            and self._points(entries[:count])
            and self._times_reach(time_index, entries[count - 1])
        ):
            segment.rebuild_indexes(self.interval_bytes)
            index, time_index = segment.open_indexes_unchecked()
            entries, count = self._trusted_entries(index, relative)
        last = entries[count - 1] if count else 0
        if self.distrusted and count:  # the batch that it points to may be the damaged one: begin at a sound one
            count -= 1
            last = entries[count - 1] if count else 0
        start = last & 0xFFFFFFFF
        index.cut(entries[:count])
        self._take_times(time_index, last >> 32 if count else -1)
        if relative <= 0:
            return 0, 0, segment.base_offset
        start_offset = segment.base_offset
        for _, header, _ in Scan(segment.file(), start, segment.size, crc_from=segment.size, read_bytes=4096):
            start_offset = header.base_offset
            break
        return start, self._position_of_recovery_point(start), start_offset

    def _points(self, entries: array[int]) -> bool:
        """Returns whether the last two entries point to batches: the scan starts at one of them."""
        try:
            for entry in entries[-2:]:
                self.segment.check_entry(entry)
        except IndexDamaged:
            return False
        return True

    def _trusted_entries(self, index: OffsetIndex, relative: int) -> tuple[array[int], int]:
        """Returns the entries of the offset index, and how many of them are safe and whole."""
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
        """Returns whether the time index matches the offset index up to the entry `last`, as far as visible.

        Both were safe together: if it does not, it was damaged or removed.
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
        """Returns the position below which batches were synced: their headers are followed, their checksums not
        computed."""
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
            raise LogDamaged(LogCorrupt(self.recovery.directory, segment.path, self.end_offset, position, self.problem))
        self.bytes_cut = segment.size - position
        segment.cut_file(position)

    def add_to(self, report: RecoveryReport) -> RecoveryReport:
        """Adds the results of this segment to the report of the whole log."""
        report = report._replace(
            batches_scanned=report.batches_scanned + self.batches,
            bytes_scanned=report.bytes_scanned + self.bytes_scanned,
            bytes_cut=report.bytes_cut + self.bytes_cut,
        )
        if self.problem is None:
            return report
        return report._replace(cut_path=self.segment.path, cut_offset=self.end_offset, cut_reason=self.problem)
