"""The part of a log that is appended to: staging, writing and rolling, on one thread at a time (the event loop, but for
what a follower has far to catch up).

The way of a batch: `append_many` checks and stages each, gives it its offset and leader epoch (both outside its
checksum, so nothing is rewritten), and `_commit` writes all that was staged with one system call and takes note of it.
Where all that clients bring is plain, it is checked by compiled code and written as it lies (`_append_plain`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from headrace.config.topic import TopicConfig
from headrace.env import Lock
from headrace.env.disk import File, is_passing
from headrace.log import careful, trusted
from headrace.log.epochs import LeaderEpochs
from headrace.log.filenames import SNAPSHOT, offset_name
from headrace.log.flushing import Flushing
from headrace.log.producer_snapshot import encode as encode_snapshot
from headrace.log.producers import Origin, Producers
from headrace.log.resources import Resources
from headrace.log.results import AppendResult, PlainResults
from headrace.log.rolling import RollRule
from headrace.log.segment import RELATIVE_OFFSET_MAX, Segment
from headrace.log.segment_list import SegmentList
from headrace.log.transaction_index import AbortedTransaction
from headrace.log.validate import Accepted, compresses, needs_care, opens_compressed
from headrace.wire._produce import COMPILED, NOT_PLAIN, check, stamp
from headrace.wire._walk import largest_timestamp
from headrace.wire.batch import COMPRESSION_MASK
from headrace.wire.checksum import crc32c
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import Buffer

RECENT_BATCHES_MAX = 256
"""Places of batches at the end of the log that are kept in memory, for consumers that are nearly up to date."""

_HEADER = Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_unpack_sequence = Struct(">qhi").unpack_from
_SEQUENCE_AT = 43
"""Where the producer's id, its epoch and the sequence lie in a batch."""
_pack_prefix = Struct(">qii").pack  # base offset, length, leader epoch: what a batch is given on its way
_PREFIX_BYTES = 16
ANY_BATCH_BIT = 0x80
"""Of the attributes of a batch; no batch has it, and `Log.opened_bits` has it where every batch is looked into."""
_SPECIAL_BITS = 0x78  # timestamp type, transactional, control, delete horizon
_NO_ERROR = ErrorCode.NONE
_new_result = AppendResult.__new__
_NO_RECENT: tuple[array[int], array[int]] = (array("q"), array("q"))
"""Offsets and positions of no batches; a pair, so that a reader on another thread never sees halves of two."""


Staged = tuple[int, int, int, int, int, AppendResult, AbortedTransaction | None]
"""A batch that is checked and has its offset, and is not written yet: base offset, last offset, size, largest
timestamp, leader epoch, the answer to its sender, and what the transaction index gets with it."""


def behind_prefix(chunk: Buffer | Accepted) -> memoryview:
    """What of a batch is not written anew: see `Producers.refused`."""
    return memoryview(chunk.data if isinstance(chunk, Accepted) else chunk)[_PREFIX_BYTES:]


class Appender:
    """Owns where a log ends, what is staged, and the places of its newest batches. `Log` is what others see of it."""

    __slots__ = (
        "_careful",
        "_flush_messages",
        "_flushing",
        "_interval_bytes",
        "_max_message_bytes",
        "_parts",
        "_recent",
        "_rolling",
        "_segment_bytes",
        "_staged",
        "_staged_bytes",
        "_timestamp_after_max_ms",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "log_start_offset",
        "on_flush_due",
        "opened_bits",
        "producers",
        "resources",
        "segment_list",
        "snapshot_offset",
        "staged_offset",
        "topic_partition",
    )

    def __init__(
        self,
        resources: Resources,
        directory: str,
        topic_partition: tuple[str, int],
        config: TopicConfig,
        *,
        segments: list[Segment],
        end_offset: int,
        log_start_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: Producers,
        snapshot_offset: int,
        fresh: bool,
    ) -> None:
        self.resources = resources
        self.directory = directory
        self.topic_partition = topic_partition
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        self.epochs = epochs
        self.producers = producers
        self.snapshot_offset = snapshot_offset  # of the newest producer snapshot on disk
        self.on_flush_due: Callable[[Any], None] | None = None  # given this log; one callback for all
        self.segment_list = SegmentList(segments, resources.lock())
        self._flushing = Flushing(recovery_point, resources.lock(), fresh=fresh)
        self._rolling = RollRule(config)
        self._parts: list[Buffer] = []
        self._staged: list[Staged] = []
        self._staged_bytes = 0
        self.staged_offset = end_offset  # what the next staged batch gets
        self._recent = _NO_RECENT
        self.configure(config)

    @property
    def name(self) -> str:
        """`topic-0`."""
        return f"{self.topic_partition[0]}-{self.topic_partition[1]}"

    def configure(self, config: TopicConfig) -> None:
        """Takes a topic's new configuration."""
        self.config = config
        self._careful = needs_care(config)
        self.opened_bits = COMPRESSION_MASK if opens_compressed(config) else 0
        self.opened_bits |= ANY_BATCH_BIT if compresses(config) else 0
        self._interval_bytes = config.index_interval_bytes
        self._segment_bytes = config.segment_bytes
        self._rolling.configure(config)
        self._max_message_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._flush_messages = config.flush_messages
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms

    def serve(self, *, roll_jitter_ms: int, on_flush_due: Callable[[Any], None]) -> None:
        """Takes its part in a broker: rolls that much earlier, and says when it wants to be flushed."""
        self._rolling.jitter(roll_jitter_ms)
        self.on_flush_due = on_flush_due

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; replaced as a whole."""
        return self.segment_list.segments

    @property
    def bases(self) -> list[int]:
        """The offsets that the segments begin with."""
        return self.segment_list.bases

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segment_list.active

    @property
    def lock(self) -> Lock:
        """Held by whoever replaces segments or renames files; see `SegmentList`."""
        return self.segment_list.lock

    @property
    def flushed_offset(self) -> int:
        """Everything below this offset is on stable storage."""
        return self._flushing.flushed_offset

    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    def segment_of(self, offset: int) -> int:
        """Index (in `segments`) of the segment that holds an offset; 0 for offsets below the first one."""
        return self.segment_list.index_of(offset)

    # Appending

    def append(
        self, data: Buffer | Accepted, *, leader_epoch: int, now_ms: int, origin: Origin = "client"
    ) -> AppendResult:
        """Appends the batches in `data`; see `append_many`."""
        return self.append_many((data,), leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)[0]

    def append_many(
        self, chunks: Sequence[Buffer | Accepted], *, leader_epoch: int, now_ms: int, origin: Origin = "client"
    ) -> Sequence[AppendResult]:
        """Appends what several requests bring, in order, with one write; a result for each.

        A client's chunk is one batch, checked in full here, or (`Accepted`) before. Where it is a memoryview that may
        be written to, it is its sender's no longer: it gets its offset and epoch where it lies. A coordinator's or
        controller's may be several, trusted, and get offsets and epoch like a client's. A replica's have their own.
        A refused chunk changes nothing. A full disk refuses with KAFKA_STORAGE_ERROR, and then what its producer sent
        behind it is refused too; any other failure is raised as OSError. Nothing of a failed write stays in the log.
        """
        is_client = origin == "client"
        self.staged_offset = self.end_offset
        if is_client and COMPILED and type(chunks) is list and chunks and not self._careful:
            plain = self._append_plain(chunks, leader_epoch, now_ms)
            if plain is not None:
                return plain
        results: list[AppendResult] = []
        for chunk in chunks:
            try:
                if is_client:
                    results.append(self._stage_client(chunk, leader_epoch, now_ms))
                else:
                    assert not isinstance(chunk, Accepted), "a checked batch comes from a client"
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

    def _append_plain(self, chunks: list[Any], leader_epoch: int, now_ms: int) -> Sequence[AppendResult] | None:
        """`append_many` for clients' batches of which each is plain, and that all belong into the active segment; None
        where that is not so, and nothing has happened then."""
        count = len(chunks)
        segment = self.segment_list.active
        begin = segment.size
        found = array("q", bytes(24 * (count + 1)))
        found[0] = self.end_offset
        found[count + 1] = begin
        latest = now_ms + self._timestamp_after_max_ms
        sequenced = check(chunks, latest, self._max_message_bytes, crc32c, found)
        if sequenced == NOT_PLAIN:
            return None
        last_offset, stop, newest = found[count] - 1, found[2 * count + 1], found[-1]
        if (
            not begin
            or stop > self._segment_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or (
                (newest > self._rolling.until or segment.bytes_since_index > self._interval_bytes)
                and self._rolling.must_roll(segment, begin, stop - begin, last_offset, newest, now_ms)
            )
            or (sequenced and not self._stage_sequences(chunks, found))
        ):
            return None
        try:
            self._commit_plain(chunks, found, leader_epoch)
        except Exception as error:
            self._give_up(error, [], chunks)
            return [AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))] * count
        return PlainResults(found, count, self.log_start_offset, stop - begin)

    def _commit_plain(self, chunks: list[Any], found: array[int], leader_epoch: int) -> None:
        """Writes what was checked, as `_commit` does. Raises OSError, and then nothing of it is in the log."""
        count = len(chunks)
        begin, stop = found[count + 1], found[2 * count + 1]
        segment, interval = self.segment_list.active, self._interval_bytes
        file = self._file_for(stop - begin)
        stamp(chunks, found, leader_epoch)
        position = file.append(chunks)
        assert position == begin, "a segment ends where its file does"
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, found[0])
        if found[-1] <= segment.newest_timestamp and segment.bytes_since_index + stop - begin <= interval:
            segment.bytes_since_index += stop - begin
        else:
            for at in range(count):
                position, timestamp = found[count + 1 + at], found[2 * count + 2 + at]
                size = found[count + 2 + at] - position
                if timestamp > segment.newest_timestamp or segment.bytes_since_index > interval:
                    segment.note_batch(position, found[at + 1] - 1, size, timestamp, interval)
                else:
                    segment.bytes_since_index += size
        self._written(found[:count], found[count + 1 : 2 * count + 1], stop, found[count])

    def _stage_sequences(self, chunks: Sequence[Any], offsets: array[int]) -> bool:
        """Takes note of plain batches that follow what their producers have sent; nothing where one does not."""
        producers = self.producers
        for at, chunk in enumerate(chunks):
            producer_id, epoch, sequence = _unpack_sequence(chunk, _SEQUENCE_AT)
            if producer_id < 0:
                continue
            offset, last_offset = offsets[at], offsets[at + 1] - 1
            if careful.check_producer(self, producer_id, epoch, sequence, last_offset - offset, False) is not None:
                producers.drop()
                return False
            timestamp = offsets[2 * len(chunks) + 2 + at]
            producers.stage(producer_id, epoch, sequence, offset, last_offset, timestamp, False)
        return True

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
        segment = self.segment_list.active
        used = segment.size + self._staged_bytes
        # The common case in one go; `_must_roll` knows the rules.
        if (
            used + size > self._segment_bytes
            or not 0 <= max_timestamp <= self._rolling.until
            or segment.bytes_since_index > self._interval_bytes
            or self.staged_offset + delta - segment.base_offset > RELATIVE_OFFSET_MAX
        ) and self._must_roll(size, delta, max_timestamp, now_ms):
            self.roll(now_ms=now_ms, first_timestamp=max_timestamp)
        offset = self.staged_offset
        last_offset = offset + delta
        if producer_id >= 0:
            self.producers.stage(producer_id, producer_epoch, sequence, offset, last_offset, max_timestamp, False)
        parts = self._parts
        parts.append(_pack_prefix(offset, length, leader_epoch))
        parts.append(view[16:])
        self._staged_bytes += size
        self.staged_offset = last_offset + 1
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
        self.staged_offset = staged[1] + 1

    def roll_before(self, last_offset: int, size: int, max_timestamp: int, now_ms: int) -> None:
        """Starts a new segment where a batch belongs into one. Raises OSError."""
        segment = self.segment_list.active
        # The common case in one go; `_must_roll` knows the rules.
        if (
            segment.size + self._staged_bytes + size > self._segment_bytes
            or not 0 <= max_timestamp <= self._rolling.until
            or segment.bytes_since_index > self._interval_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        ) and self._must_roll(size, last_offset - self.staged_offset, max_timestamp, now_ms):
            self.roll(now_ms=now_ms, first_timestamp=max_timestamp)

    def _must_roll(self, size: int, delta: int, max_timestamp: int, now_ms: int) -> bool:
        active = self.segment_list.active
        used = active.size + self._staged_bytes
        return self._rolling.must_roll(active, used, size, self.staged_offset + delta, max_timestamp, now_ms)

    def _commit(self) -> None:
        """Writes what is staged. Raises OSError, and then nothing of it is in the log."""
        staged = self._staged
        segment = self.segment_list.active
        interval = self._interval_bytes
        position = self._file_for(self._staged_bytes).append(self._parts)
        offsets, positions = array("q"), array("q")
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
        self._parts = []
        self._staged = []
        self._staged_bytes = 0
        self._written(offsets, positions, position, self.staged_offset)

    def _file_for(self, size: int) -> File:
        """The file of the active segment, ready for so many bytes. Raises OSError."""
        segment = self.segment_list.active
        file = segment.open_file
        if file is None or file.size() != segment.size:
            file = segment.file_to_append()
        if segment.newest_is_unknown or segment.bytes_since_index + size > self._interval_bytes:
            segment.load_indexes()  # what cannot be noted afterwards must not be in the file
        return file

    def _written(self, offsets: array[int], positions: array[int], size: int, end_offset: int) -> None:
        """Batches are in the file of the active segment, which has `size` bytes now."""
        segment = self.segment_list.active
        segment.recently_used = True
        if self._recent is _NO_RECENT:
            self._recent = array("q"), array("q")
        recent_offsets, recent_positions = self._recent
        recent_offsets += offsets
        recent_positions += positions
        if len(recent_offsets) > RECENT_BATCHES_MAX:
            half = len(recent_offsets) - RECENT_BATCHES_MAX // 2
            # Replaced, not cut: a reader on another thread may be looking.
            self._recent = recent_offsets[half:], recent_positions[half:]
        segment.size = size
        self.end_offset = end_offset
        if self.producers.staged:
            self.producers.commit()
        if end_offset - self._flushing.flushed_offset >= self._flush_messages and self.on_flush_due is not None:
            self.on_flush_due(self)

    def _give_up(self, error: Exception, results: list[AppendResult], unstaged: Sequence[Buffer | Accepted]) -> None:
        """Forgets what was staged, after a defect too; raises the error unless it is passing. Then all of
        that is refused, and what no segment could be made for (`unstaged`): their producers owe them from now on."""
        staged, parts = self._staged, self._parts
        self._parts, self._staged = [], []
        self._staged_bytes, self.staged_offset = 0, self.end_offset
        self.producers.drop()
        if not isinstance(error, OSError) or not is_passing(error):
            raise error
        refused = [each[5] for each in staged]
        refused += [result for result in results if result.duplicate and result.last_offset >= self.end_offset]
        for result in refused:
            result.__init__(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))  # type: ignore[misc]
        self.producers.refused([*parts[1::2], *(behind_prefix(chunk) for chunk in unstaged)])

    def roll(self, *, now_ms: int | None = None, first_timestamp: int = -1) -> None:
        """Starts a new segment, for a batch of that timestamp if any; an empty active one stays. Raises OSError."""
        if self._staged:
            self._commit()
        listed = self.segment_list
        with listed.lock:
            self._rolling.forget()
            active = listed.active
            if not active.size:
                active.begin(first_timestamp, now_ms)
                return
            active.finish_indexes()
            active.index_dirty = True  # they are to be synced, and sealed
            active.complete_files()
            self.take_snapshot()
            created_ms = now_ms if now_ms is not None else max(active.max_timestamp, active.created_ms)
            segment = Segment(self.resources, self.directory, self.end_offset, size=0, created_ms=created_ms)
            segment.begin(first_timestamp)
            segment.create()
            self._flushing.new_name()
            self.forget_recent()
            listed.replace([*listed.segments, segment])
        if self.on_flush_due is not None:
            self.on_flush_due(self)

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
