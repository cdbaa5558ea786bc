"""One partition replica on disk: appends, reads, and what is known of its offsets.

One thread appends (the event loop). Any thread may read. `flush` and the cleaner run on workers while appends go on:
lists that they share are replaced, never changed, and `lock` orders those who replace them.

The way of a batch: `append_many` checks and stages each, gives it its offset and leader epoch (both outside its
checksum, so nothing is rewritten), and `_commit` writes all that was staged with one system call and takes note of it.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from struct import Struct

from headrace.config.topic import TopicConfig
from headrace.env.disk import is_passing
from headrace.log import careful, lookup, retention, trusted
from headrace.log.epochs import LeaderEpochs
from headrace.log.filenames import SNAPSHOT, offset_name
from headrace.log.producer_snapshot import encode as encode_snapshot
from headrace.log.producers import Origin, Producers
from headrace.log.results import AppendResult, ReadResult, RecoveryReport, TimestampOffset
from headrace.log.segment import RELATIVE_OFFSET_MAX, Resources, Segment
from headrace.log.transaction_index import AbortedTransaction
from headrace.log.validate import Accepted, compresses, needs_care, opens_compressed
from headrace.wire._walk import largest_timestamp
from headrace.wire.batch import COMPRESSION_MASK
from headrace.wire.checksum import crc32c
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import Buffer

RECENT_BATCHES_MAX = 256
"""Places of batches at the end of the log that are kept in memory, for consumers that are nearly up to date."""

_HEADER = Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_pack_prefix = Struct(">qii").pack  # base offset, length, leader epoch: what a batch is given on its way
_PREFIX_BYTES = 16
ANY_BATCH_BIT = 0x80
"""Of the attributes of a batch; no batch has it, and `Log.opened_bits` has it where every batch is looked into."""
_SPECIAL_BITS = 0x78  # timestamp type, transactional, control, delete horizon
_NO_ERROR = ErrorCode.NONE
_new_result = AppendResult.__new__
_NO_RECENT: tuple[array[int], array[int]] = (array("q"), array("q"))
"""Offsets and positions of no batches; a pair, so that a reader on another thread never sees halves of two."""
_NOTHING = ReadResult(ErrorCode.NONE)
_OUT_OF_RANGE = ReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)


Staged = tuple[int, int, int, int, int, AppendResult, AbortedTransaction | None]
"""A batch that is checked and has its offset, and is not written yet: base offset, last offset, size, largest
timestamp, leader epoch, the answer to its sender, and what the transaction index gets with it."""


def _behind_prefix(chunk: Buffer | Accepted) -> memoryview:
    return memoryview(chunk.data if isinstance(chunk, Accepted) else chunk)[_PREFIX_BYTES:]


class Log:
    """See the module. Made by `recovery.open_log` and `LogManager`, not by hand."""

    __slots__ = (
        "_careful",
        "_flush_lock",
        "_flush_messages",
        "_interval_bytes",
        "_max_message_bytes",
        "_names_dirty",
        "_parts",
        "_recent",
        "_segment_bytes",
        "_staged",
        "_staged_bytes",
        "_staged_offset",
        "_timestamp_after_max_ms",
        "active",
        "bases",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "flushed_offset",
        "fresh",
        "is_future",
        "lock",
        "log_start_offset",
        "on_flush_due",
        "opened_bits",
        "producers",
        "recovery_report",
        "resources",
        "retiring",
        "roll_jitter_ms",
        "roll_timestamp",
        "segments",
        "snapshot_offset",
        "swapping",
        "topic_id",
        "topic_partition",
    )

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
        now_ms: int,
    ) -> None:
        assert segments, "a log has an active segment"
        self.resources = resources
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.is_future = False
        self.fresh = False  # its folder has been made since the start, and is not synced yet
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        self.flushed_offset = recovery_point
        self.epochs = epochs
        self.producers = producers
        self.snapshot_offset = -1  # of the newest producer snapshot on disk
        self.recovery_report = RecoveryReport()
        self.on_flush_due: Callable[[Log], None] | None = None
        self.lock = threading.RLock()
        self.swapping: Segment | None = None  # a compacted segment that is about to take its place; with `lock`
        self.retiring: list[Segment] = []  # taken out, and not renamed yet; with `lock`
        self._flush_lock = threading.Lock()
        self._names_dirty = True  # who made the files may have died before syncing their names
        self._parts: list[Buffer] = []
        self._staged: list[Staged] = []
        self._staged_bytes = 0
        self._staged_offset = end_offset
        self._recent = _NO_RECENT
        self.roll_jitter_ms = 0
        self.configure(config)
        self.set_segments(segments)

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start_offset}..{self.end_offset})"

    @property
    def name(self) -> str:
        """`topic-0`."""
        return f"{self.topic_partition[0]}-{self.topic_partition[1]}"

    # Configuration and segments

    def configure(self, config: TopicConfig) -> None:
        """Takes a topic's new configuration."""
        self.config = config
        self._careful = needs_care(config)
        self.opened_bits = COMPRESSION_MASK if opens_compressed(config) else 0
        self.opened_bits |= ANY_BATCH_BIT if compresses(config) else 0
        self._interval_bytes = config.index_interval_bytes
        self._segment_bytes = config.segment_bytes
        self.roll_timestamp = -1
        self._max_message_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._flush_messages = config.flush_messages
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms

    def set_segments(self, segments: list[Segment]) -> None:
        """Replaces the list of segments; hold `lock` while others might do so too."""
        self.bases = [segment.base_offset for segment in segments]
        self.segments = segments  # after the bases: a reader on another thread may look too low, never too high
        self.active = segments[-1]
        self.roll_timestamp = -1

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is on stable storage."""
        return self.flushed_offset

    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    def segment_of(self, offset: int) -> int:
        """Index (in `segments`) of the segment that holds an offset; 0 for offsets below the first one."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    # Appending

    def append(
        self, data: Buffer | Accepted, *, leader_epoch: int, now_ms: int, origin: Origin = "client"
    ) -> AppendResult:
        """Appends the batches in `data`; see `append_many`."""
        return self.append_many((data,), leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)[0]

    def append_many(
        self, chunks: Sequence[Buffer | Accepted], *, leader_epoch: int, now_ms: int, origin: Origin = "client"
    ) -> list[AppendResult]:
        """Appends what several requests bring, in order, with one write; a result for each.

        A client's chunk is one batch, checked in full here, or (`Accepted`) before. A coordinator's or controller's may
        be several, trusted, and get offsets and epoch like a client's. A replica's have their own already.
        A refused chunk changes nothing. A full disk refuses with KAFKA_STORAGE_ERROR, and then what its producer sent
        behind it is refused too; any other failure is raised as OSError. Nothing of a failed write stays in the log.
        """
        is_client = origin == "client"
        self._staged_offset = self.end_offset
        results: list[AppendResult] = []
        for chunk in chunks:
            try:
                if is_client:
                    results.append(self._stage_client(chunk, leader_epoch, now_ms))
                else:
                    assert not isinstance(chunk, Accepted), "what a client sent is checked"
                    results.append(trusted.stage(self, chunk, leader_epoch, now_ms, origin))
            except Exception as error:
                self._give_up(error, results, (chunk,) if is_client else ())
                results.append(AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error)))
        if self._staged:
            try:
                self._commit()
            except Exception as error:
                self._give_up(error, results, ())
        return results

    def _stage_client(self, data: Buffer | Accepted, leader_epoch: int, now_ms: int) -> AppendResult:
        if type(data) is memoryview:
            view = data
        elif type(data) is Accepted:
            return careful.stage_checked(self, data, leader_epoch, now_ms)
        else:
            view = memoryview(data)  # type: ignore[arg-type]
        size = len(view)
        if self._careful or size < 61:
            return careful.stage(self, view, leader_epoch, now_ms)
        (base, length, _, magic, crc, attributes, delta, base_timestamp, max_timestamp, producer_id, producer_epoch,
         sequence, count,
        ) = _unpack_header(view)  # fmt: skip
        if (
            length + 12 != size
            or base
            or magic != 2
            or size > self._max_message_bytes
            or attributes & _SPECIAL_BITS
            or delta + 1 != count
            or count <= 0
            or not -1 <= max_timestamp <= now_ms + self._timestamp_after_max_ms
            or (producer_id >= 0 and sequence < 0)
            or crc32c(view[21:]) != crc
        ):
            return careful.stage(self, view, leader_epoch, now_ms)
        codec = attributes & 7
        if codec > 4 or (not codec and largest_timestamp(view, 61, size, count, base_timestamp) != max_timestamp):
            return careful.stage(self, view, leader_epoch, now_ms)
        if producer_id >= 0:
            refused = careful.check_producer(self, producer_id, producer_epoch, sequence, delta, False)
            if refused is not None:
                return refused
        segment = self.active
        used = segment.size + self._staged_bytes
        # The common case in one go; `_must_roll` knows the rules.
        if (
            used + size > self._segment_bytes
            or not 0 <= max_timestamp <= self.roll_timestamp
            or segment.bytes_since_index > self._interval_bytes
            or self._staged_offset + delta - segment.base_offset > RELATIVE_OFFSET_MAX
        ) and self._must_roll(size, delta, max_timestamp, now_ms):
            self.roll(now_ms=now_ms, first_timestamp=max_timestamp)
        offset = self._staged_offset
        last_offset = offset + delta
        if producer_id >= 0:
            self.producers.stage(producer_id, producer_epoch, sequence, offset, last_offset, max_timestamp, False)
        parts = self._parts
        parts.append(_pack_prefix(offset, length, leader_epoch))
        parts.append(view[16:])
        self._staged_bytes += size
        self._staged_offset = last_offset + 1
        result = _new_result(AppendResult)  # without the call of its constructor
        result.error = _NO_ERROR
        result.base_offset = offset
        result.last_offset = last_offset
        result.log_append_time_ms = -1
        result.log_start_offset = self.log_start_offset
        result.error_message = None
        result.record_errors = ()
        result.duplicate = False
        self._staged.append((offset, last_offset, size, max_timestamp, leader_epoch, result, None))
        return result

    def stage(self, parts: Sequence[Buffer], staged: Staged) -> None:
        """Puts one batch with the next write."""
        self._parts.extend(parts)
        self._staged.append(staged)
        self._staged_bytes += staged[2]
        self._staged_offset = staged[1] + 1

    @property
    def staged_offset(self) -> int:
        """The offset that the next staged batch gets."""
        return self._staged_offset

    def roll_before(self, last_offset: int, size: int, max_timestamp: int, now_ms: int) -> None:
        """Starts a new segment where a batch belongs into one. Raises OSError."""
        if self._must_roll(size, last_offset - self._staged_offset, max_timestamp, now_ms):
            self.roll(now_ms=now_ms, first_timestamp=max_timestamp)

    def _must_roll(self, size: int, delta: int, max_timestamp: int, now_ms: int) -> bool:
        used = self.active.size + self._staged_bytes
        return retention.must_roll(self, used, size, self._staged_offset + delta, max_timestamp, now_ms)

    def _commit(self) -> None:
        """Writes what is staged. Raises OSError, and then nothing of it is in the log."""
        staged = self._staged
        segment = self.active
        file = segment.open_file
        if file is None or file.size() != segment.size:
            file = segment.file_to_append()
        position = file.append(self._parts)
        segment.recently_used = True
        interval = self._interval_bytes
        if self._recent is _NO_RECENT:
            self._recent = array("q"), array("q")
        offsets, positions = self._recent
        latest = self.epochs.latest
        for base_offset, last_offset, size, max_timestamp, leader_epoch, _, aborted in staged:
            if leader_epoch > latest:
                self.epochs.assign(leader_epoch, base_offset)
                latest = leader_epoch
            if max_timestamp > segment.newest_timestamp or segment.bytes_since_index > interval:
                segment.note_batch(position, last_offset, size, max_timestamp, interval)
            else:
                segment.bytes_since_index += size
            offsets.append(base_offset)
            positions.append(position)
            position += size
            if aborted is not None:
                segment.add_aborted(aborted)
        if len(offsets) > RECENT_BATCHES_MAX:
            half = len(offsets) - RECENT_BATCHES_MAX // 2
            # Replaced, not cut: a reader on another thread may be looking.
            self._recent = offsets[half:], positions[half:]
        segment.size = position
        self.end_offset = self._staged_offset
        producers = self.producers
        if producers.staged:
            producers.commit()
        self._parts = []
        self._staged = []
        self._staged_bytes = 0
        if self.end_offset - self.flushed_offset >= self._flush_messages and self.on_flush_due is not None:
            self.on_flush_due(self)

    def _give_up(self, error: Exception, results: list[AppendResult], unstaged: Sequence[Buffer | Accepted]) -> None:
        """Forgets what was staged, after a defect too; raises the error unless it is passing. Then all of
        that is refused, and what no segment could be made for (`unstaged`): their producers owe them from now on."""
        staged, parts = self._staged, self._parts
        self._parts, self._staged = [], []
        self._staged_bytes, self._staged_offset = 0, self.end_offset
        self.producers.drop()
        if not isinstance(error, OSError) or not is_passing(error):
            raise error
        refused = [each[5] for each in staged]
        refused += [result for result in results if result.duplicate and result.last_offset >= self.end_offset]
        for result in refused:
            result.__init__(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))  # type: ignore[misc]
        self.producers.refused([*parts[1::2], *(_behind_prefix(chunk) for chunk in unstaged)])

    def roll(self, *, now_ms: int | None = None, first_timestamp: int = -1) -> None:
        """Starts a new segment, for a batch of that timestamp if any; an empty active one stays. Raises OSError."""
        if self._staged:
            self._commit()
        retention.roll(self, now_ms, first_timestamp)

    def forget_recent(self) -> None:
        """Drops the remembered places of batches: they are of another segment, or gone."""
        self._recent = _NO_RECENT

    def take_snapshot(self) -> None:
        """Writes what is known of producers at the end of the log, once for an end. Raises OSError."""
        end_offset = self.end_offset
        if self.snapshot_offset >= end_offset:
            return
        path = f"{self.directory}/{offset_name(end_offset, SNAPSHOT)}"
        self.resources.disk.write_file(path, encode_snapshot(self.producers.to_snapshot()))
        self.snapshot_offset = end_offset

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
        segment = self.active
        if offset < segment.base_offset:
            return self._read_older(offset, max_bytes, max_offset, min_one, wait)
        offsets, positions = self._recent
        at = bisect_right(offsets, offset) - 1
        size = segment.size
        if at >= 0 and at < len(positions):
            position = positions[at]
            first = (positions[at + 1] if at + 1 < len(positions) else size) - position
        else:
            place = segment.find(offset, wait=wait)
            if place is None:
                return _NOTHING
            position, first = place
        if max_offset < self.end_offset:
            size = self._position_of(segment, max_offset, wait)
        return self._slice(segment, position, first, size, max_bytes, min_one)

    def _slice(
        self, segment: Segment, position: int, first: int, end: int, max_bytes: int, min_one: bool
    ) -> ReadResult:
        size = end - position
        if size <= 0:
            return _NOTHING
        if max_bytes < first:
            if not min_one:
                return _NOTHING
            max_bytes = first
        size = min(size, max_bytes)
        return ReadResult(_NO_ERROR, (segment.open_file or segment.file()).slice(position, size), size, segment)

    def _read_older(self, offset: int, max_bytes: int, max_offset: int, min_one: bool, wait: bool) -> ReadResult:
        segments = self.segments
        for index in range(self.segment_of(offset), len(segments)):
            segment = segments[index]
            path = segment.path
            try:
                place = segment.find(offset, wait=wait)
            except FileNotFoundError:
                with self.lock:  # whoever renames files of the log has it
                    if segment in self.segments and segment.path == path:
                        raise
                # Compaction or retention took it away in between, or gave it its name: look again.
                return self.read(offset, max_bytes=max_bytes, max_offset=max_offset, min_one=min_one, wait=wait)
            if place is None:
                continue  # compaction left nothing of this segment from the offset on
            end = segment.size
            ends_before = segments[index + 1].base_offset if index + 1 < len(segments) else self.end_offset
            if max_offset < ends_before:
                end = self._position_of(segment, max_offset, wait)
            return self._slice(segment, place[0], place[1], end, max_bytes, min_one)
        return _NOTHING

    def _position_of(self, segment: Segment, offset: int, wait: bool) -> int:
        """Where in a segment the first batch that ends at or above `offset` begins; its size where there is none."""
        if segment is self.active:
            offsets, positions = self._recent
            at = bisect_left(offsets, offset)
            if at < len(offsets) and offsets[at] == offset:
                return positions[at]
        place = segment.find(offset, wait=wait) if offset > segment.base_offset else (0, 0)
        return segment.size if place is None else place[0]

    def aborted_transactions(self, offset: int, read: ReadResult, *, wait: bool = True) -> list[AbortedTransaction]:
        """The aborted transactions that reach into what was read from an offset on, for a read_committed consumer.

        Like Kafka's, the list may name some that begin behind it, as far as the index is coarse. Raises OSError, and
        BlockingIOError where an index has to be read first and `wait` is false.
        """
        return lookup.aborted_transactions(self, offset, read, wait)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where a read_committed consumer may read."""
        return self.producers.last_stable_offset(high_watermark)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after a time; None where all are older. Raises OSError."""
        return lookup.offset_for_timestamp(self, timestamp)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp; None in an empty log. Raises OSError."""
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
        return retention.flush(self, self._flush_lock, up_to)

    def write_epochs(self) -> None:
        """Has what is known of leader epochs on stable storage. For worker threads. Raises OSError."""
        retention.write_epochs(self, self._flush_lock)

    def sync_indexes(self) -> None:
        """Makes the indexes of what is flushed safe: owed before a recovery point goes to disk. Raises OSError."""
        for segment in self.segments:
            if segment.index_dirty and segment.base_offset < self.flushed_offset:
                try:
                    segment.sync_indexes()
                except FileNotFoundError:
                    if segment in self.segments:
                        raise

    def take_names_dirty(self) -> bool:
        """Whether files have been made since their folder was last synced; asks once."""
        dirty, self._names_dirty = self._names_dirty, False
        return dirty

    def mark_names_dirty(self) -> None:
        """Notes that the folder has a new file."""
        self._names_dirty = True

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> None:
        """Drops everything from `offset` on. Raises OSError."""
        with self._flush_lock:
            retention.truncate_to(self, offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Drops everything, and continues at `offset`. Raises OSError."""
        with self._flush_lock:
            retention.truncate_fully_and_start_at(self, offset, now_ms)

    def delete_records_before(self, offset: int) -> None:
        """Moves the log start offset up; the files follow with `maybe_delete_old_segments`."""
        assert offset <= self.end_offset, "no record after the end can be deleted"
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def maybe_delete_old_segments(self, now_ms: int, high_watermark: int | None = None) -> list[Segment]:
        """Takes out the segments that retention no longer keeps, below the high watermark (None: the end of the log).

        They have their `.deleted` names when this returns; the caller removes them after file.delete.delay.ms. Raises
        OSError.
        """
        mark = self.end_offset if high_watermark is None else high_watermark
        return retention.delete_old_segments(self, now_ms, mark)

    def close(self) -> None:
        """Flushes, and writes what a clean start reads: producers, leader epochs, indexes. Raises OSError."""
        retention.close(self)

    def moved(self, directory: str) -> None:
        """Notes that the folder has another name now."""
        self.directory = directory
        self.epochs.directory = directory
        for segment in (*self.segments, *self.retiring):
            segment.moved(directory, segment.suffix)
