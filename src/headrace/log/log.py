"""One partition replica on disk: appends, reads, and what is known of its offsets.

One thread appends (the event loop). Any thread may read. `flush` and the cleaner run on workers while appends go on:
lists that they share are replaced, never changed, and `lock` orders those who replace them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.config.topic import TopicConfig
from headrace.log import lookup, retention
from headrace.log.appender import Appender
from headrace.log.epochs import LeaderEpochs
from headrace.log.filenames import SNAPSHOT, offset_name
from headrace.log.producer_history import load_producers, snapshot_offsets
from headrace.log.producers import Producers
from headrace.log.resources import Resources
from headrace.log.results import ReadResult, RecoveryReport, TimestampOffset
from headrace.log.seal import read_sum
from headrace.log.segment import Segment
from headrace.log.segment_end import last_batch_end
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.errors import ErrorCode

_NOTHING_DONE = RecoveryReport()
_NO_ERROR = ErrorCode.NONE
_NOTHING = ReadResult(_NO_ERROR)
_OUT_OF_RANGE = ReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)


class Log(Appender):
    """See the module. Made by `recovery.open_log` and `LogManager`, not by hand."""

    __slots__ = ("gap_offset", "is_future", "recovery_report", "topic_id")

    def __init__(
        self,
        resources: Resources,
        directory: str,
        topic_partition: tuple[str, int],
        config: TopicConfig,
        *,
        topic_id: bytes,
        segments: list[Segment],
        end_offset: int,
        log_start_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: Producers,
        snapshot_offset: int = -1,
        report: RecoveryReport = _NOTHING_DONE,
        fresh: bool = False,
    ) -> None:
        super().__init__(
            resources,
            directory,
            topic_partition,
            config,
            segments=segments,
            end_offset=end_offset,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            epochs=epochs,
            producers=producers,
            snapshot_offset=snapshot_offset,
            fresh=fresh,
        )
        self.topic_id = topic_id
        self.is_future = False
        self.recovery_report = report
        self.gap_offset = report.gap_offset

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start_offset}..{self.end_offset})"

    def named(self, topic_id: bytes) -> None:
        """Which topic the log is of, where its folder did not say it."""
        self.topic_id = topic_id

    def becomes_copy(self) -> None:
        """It is filled from the log of its partition, in another directory."""
        self.is_future = True

    def becomes_current(self) -> None:
        """A copy is complete, and takes the place of the log that it is of."""
        self.is_future = False

    @property
    def recovery_point(self) -> int:
        """`flushed_offset`, as a start hears of it."""
        return self._flushing.flushed_offset

    # Reading

    def read(
        self, offset: int, *, max_bytes: int, max_offset: int, min_one: bool = True, wait: bool = True
    ) -> ReadResult:
        """Batches from `offset` on, below `max_offset` (a high watermark or last stable offset), at most `max_bytes`.

        The first batch comes whole where `min_one`, however large; else nothing comes when it does not fit. The end of
        the slice may cut a batch, as Kafka's does: readers drop the rest. Raises OSError, and BlockingIOError where the
        place of a batch is not in memory and `wait` is false.
        """
        if offset < self.log_start_offset or offset > self.end_offset:
            return _OUT_OF_RANGE
        if offset >= max_offset or offset >= self.end_offset:
            return _NOTHING
        place = self.place_of(offset, wait=wait)
        if place is None:
            return _NOTHING
        segment, position, first = place
        size = self.readable_end(segment, max_offset, wait=wait) - position
        if size <= 0 or (max_bytes < first and not min_one):
            return _NOTHING
        size = min(size, max(max_bytes, first))
        return ReadResult(_NO_ERROR, (segment.open_file or segment.file()).slice(position, size), size, segment)

    def place_of(self, offset: int, *, wait: bool = True) -> tuple[Segment, int, int] | None:
        """The first batch that ends at or above an offset of the log: its segment, its position there, its size.

        None where compaction left nothing from that offset on. Raises OSError, and BlockingIOError as `read` does.
        """
        active = self.segment_list.active
        if offset < active.base_offset:
            return self._older_place_of(offset, wait)
        offsets, positions = self._recent
        at = bisect_right(offsets, offset) - 1
        if 0 <= at < len(positions):
            position = positions[at]
            return active, position, (positions[at + 1] if at + 1 < len(positions) else active.size) - position
        place = active.find(offset, wait=wait)
        return None if place is None else (active, *place)

    def _older_place_of(self, offset: int, wait: bool) -> tuple[Segment, int, int] | None:
        segments = self.segment_list.segments
        for index in range(self.segment_list.index_of(offset), len(segments)):
            segment = segments[index]
            path = segment.path
            try:
                place = segment.find(offset, wait=wait)
            except FileNotFoundError:
                with self.lock:  # whoever renames files of the log has it
                    if segment in self.segments and segment.path == path:
                        raise
                # Compaction or retention took it away in between, or gave it its name: look again.
                return self.place_of(offset, wait=wait)
            if place is not None:
                return segment, *place
            # Else compaction left nothing of this segment from the offset on.
        return None

    def readable_end(self, segment: Segment, max_offset: int, *, wait: bool = False) -> int:
        """Up to which position a segment may be read by those who may read up to an offset. Raises as `read` does."""
        bases = self.segment_list.bases
        after = bisect_right(bases, segment.base_offset)
        ends_before = bases[after] if after < len(bases) else self.end_offset
        return segment.size if max_offset >= ends_before else self._position_of(segment, max_offset, wait)

    def _position_of(self, segment: Segment, offset: int, wait: bool) -> int:
        """Where in a segment the first batch that ends at or above `offset` begins; its size where there is none."""
        if segment is self.segment_list.active:
            offsets, positions = self._recent
            at = bisect_left(offsets, offset)
            if at < len(offsets) and offsets[at] == offset:
                return positions[at]
        place = segment.find(offset, wait=wait) if offset > segment.base_offset else (0, 0)
        return segment.size if place is None else place[0]

    def none_aborted(self, segment: Segment) -> bool:
        """Whether no transaction that ends in this segment or behind it was aborted, as far as that is in memory."""
        return lookup.none_aborted(self, segment)

    def aborted_transactions(self, offset: int, read: ReadResult, *, wait: bool = True) -> list[AbortedTransaction]:
        """The aborted transactions that reach into what was read from an offset on, for a read_committed consumer.

        Like Kafka's, the list may name some that begin behind it, as far as the index is coarse. Raises OSError, and
        BlockingIOError where an index has to be read first and `wait` is false.
        """
        return lookup.aborted_transactions(self, offset, read, wait)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where a read_committed consumer may read: of a transaction whose records are deleted in part, to what
        is left."""
        return min(high_watermark, max(self.producers.last_stable_offset(high_watermark), self.log_start_offset))

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after a time; None where all are older. Raises OSError."""
        return lookup.offset_for_timestamp(self, timestamp)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp, at or above the log start offset; None where there is no
        record. Raises OSError."""
        return lookup.max_timestamp_offset(self)

    def earliest_timestamp_offset(self) -> TimestampOffset:
        """The log start offset, as ListOffsets answers it."""
        return TimestampOffset(self.log_start_offset, -1, self.epochs.epoch_at(self.log_start_offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below `epoch`, its end offset); (-1, -1) where nothing is known of it."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # Keeping

    def flush(self, up_to: int | None = None) -> int:
        """Returns when everything below `up_to` (None: the end) is on stable storage; answers with how far that is.

        For worker threads, while appends go on. Raises OSError.
        """
        return self._flushing.flush(self, up_to)

    @property
    def fresh(self) -> bool:
        """Whether its folder has been made since the start, or came through a crash, and its names are not safe."""
        return self._flushing.fresh

    def write_epochs(self) -> None:
        """Has what is known of leader epochs on stable storage. For worker threads. Raises OSError."""
        self._flushing.write_epochs(self)

    def sync_indexes(self) -> None:
        """Makes the indexes of what is flushed safe: owed before a recovery point goes to disk. Raises OSError."""
        self._flushing.sync_indexes(self)

    def sync_names(self) -> None:
        """Makes the names of new files safe, where there are any. For worker threads. Raises OSError."""
        self._flushing.sync_names(self)

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> None:
        """Drops everything from `offset` on, epochs that begin there too, though no record has them. Raises OSError."""
        if offset <= self.gap_offset:
            self.gap_offset = -1
        if offset >= self.end_offset:
            with self._flushing.guard:
                self.epochs.truncate_from_end(offset)
                self.epochs.write(durable=True)
            return
        if offset < self.bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        listed = self.segment_list
        lookup.aborted_in(self, listed.segments[listed.index_of(offset)])  # a damaged index cannot be cut
        with self._flushing.guard, listed.lock:
            listed.give_up_swap()
            keep = listed.index_of(offset)
            kept, gone = listed.segments[: keep + 1], listed.segments[keep + 1 :]
            last = kept[-1]
            self.forget_recent()
            self._ends_at(offset)
            for segment in reversed(gone):
                segment.remove_files()
            place = last.find(offset)
            if place is not None:
                last.truncate(place[0], offset)
            listed.replace(kept)
            self._rolling.forget()
            # A batch is cut as a whole: the log may end below the asked offset, at the batch that held it.
            self._ends_at(min(offset, last_batch_end(last)) if last.size else last.base_offset)
            self.log_start_offset = min(self.log_start_offset, self.end_offset)
            self.producers = self.producers.empty()  # another thread may be looking at those
            self._load_producers(None, now_ms)
            self.epochs.truncate_from_end(self.end_offset)
            self.epochs.write(durable=True)
            # The log grows over what was cut: a crash must not bring it back.
            last.sync()
            self.resources.disk.sync_directory(self.directory)

    def _ends_at(self, offset: int) -> None:
        self.end_offset = offset
        self._flushing.cut(offset)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Drops everything, and continues at `offset`. Raises OSError."""
        listed, disk = self.segment_list, self.resources.disk
        self.gap_offset = -1
        with self._flushing.guard, listed.lock:
            listed.give_up_swap()
            for segment in reversed(listed.segments):
                segment.remove_files()
            for snapshot in snapshot_offsets(list(disk.list(self.directory))):
                disk.remove(f"{self.directory}/{offset_name(snapshot, SNAPSHOT)}")
            segment = Segment(self.resources, self.directory, offset, size=0, created_ms=now_ms)
            segment.create()
            self._flushing.new_name()
            self.forget_recent()
            self.snapshot_offset = -1
            self.producers = self.producers.empty()
            self.epochs.clear()
            self.epochs.write(durable=True)
            self.end_offset = self.log_start_offset = offset
            self._flushing.start_at(offset)
            listed.replace([segment])
            self._rolling.forget()

    def delete_records_before(self, offset: int) -> None:
        """Moves the log start offset up; the files follow with `maybe_delete_old_segments`."""
        assert offset <= self.end_offset, "no record after the end can be deleted"
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.resources.starts = object()
            self.epochs.truncate_from_start(offset)

    def maybe_delete_old_segments(self, now_ms: int, high_watermark: int | None = None) -> list[Segment]:
        """Takes out the segments that retention no longer keeps, below the high watermark (None: the end of the log).

        They have their `.deleted` names when this returns; the caller removes them after file.delete.delay.ms. Raises
        OSError.
        """
        mark = self.end_offset if high_watermark is None else high_watermark
        with self.lock:
            self.take_out(retention.expired(self, now_ms), now_ms, mark)
            gone = list(self.segment_list.retiring)
            while self.retire_one() is not None:
                pass
        return gone

    def take_out(self, old: retention.Expired, now_ms: int, high_watermark: int) -> None:
        """Takes the segments that are not kept any more out of the log: `retire_one` does the rest.

        Touches no file but where a log that loses its active segment rolls, or a swap is under way. Hold the lock. For
        the thread that appends. Raises OSError.
        """
        count = retention.count_gone(self, old, high_watermark)
        if not count:
            return
        if count == len(self.segments):
            self.roll(now_ms=now_ms)
        self.segment_list.take_out(count)
        self.delete_records_before(min(self.bases[0], self.end_offset))

    def retire_one(self) -> Segment | None:
        """See SegmentList.retire_one. For a worker. Raises OSError."""
        return self.segment_list.retire_one(self.resources.disk, self.snapshot_offset)

    def swap(self, old: list[Segment], new: Segment) -> bool:
        """See SegmentList.swap. For a worker. Raises OSError."""
        return self.segment_list.swap(old, new, self.resources.disk, self.snapshot_offset)

    def load_snapshot(self, snapshots: list[int], now_ms: int) -> None:
        """After a clean stop: what is known of producers is in the snapshot at the end of the log; where that is
        missing or damaged, in an older one and the batches behind it. Raises OSError."""
        if snapshots or self.end_offset > self.bases[0]:
            self._load_producers(snapshots, now_ms)

    def _load_producers(self, snapshots: list[int] | None, now_ms: int) -> None:
        self.snapshot_offset = load_producers(
            self.producers, self.resources.disk, self.directory, self.segments, self.end_offset, now_ms, snapshots
        )

    def close(self) -> None:
        """Flushes, and writes what a clean start reads: producers, leader epochs, indexes. Raises OSError."""
        try:
            if not self._flushing.was_never_used(self):
                self.flush()  # thousands that hold nothing would hold up a stop for a minute
            self.take_snapshot()
            self.active.finish_indexes()
            self.active.complete_files()
            for segment in self.segments:
                if segment.write_aborted():  # what was read from the batches, and nothing was appended since
                    segment.put_seal()
            self.sync_indexes()
            self._seal_end()
        finally:
            for segment in self.segments:
                segment.release()

    def _seal_end(self) -> None:
        """Seals the last segment with the leader epochs, unless it was sealed so when it was opened. Raises OSError."""
        active = self.active
        if not active.size:
            return
        epochs = read_sum(self.resources.disk, self.epochs.path)
        if not active.is_sealed_with(epochs):
            active.put_seal(active.time_index.last, epochs)

    def moved(self, directory: str) -> None:
        """Notes that the folder has another name now."""
        self.directory = directory
        self.epochs.directory = directory
        for segment in self.segment_list.all_segments():
            segment.moved(directory, segment.suffix)

    def rename_folder(self, directory: str) -> None:
        """Gives the folder another name, under which those find it from now on who have the log. Hold `lock`, and where
        the log goes on under the new name, `held_still`. Raises OSError."""
        with self.resources.renames:
            self.resources.disk.rename(self.directory, directory)
            self.moved(directory)

    @contextmanager
    def held_still(self) -> Iterator[bool]:
        """Keeps those out who flush the log, or rename files of it, unless one of them is at work: whether it does.

        Waits for nobody.
        """
        guard, lock = self._flushing.guard, self.lock
        if not guard.acquire(blocking=False):
            yield False
            return
        try:
            if not lock.acquire(blocking=False):
                yield False
                return
            try:
                yield True
            finally:
                lock.release()
        finally:
            guard.release()
