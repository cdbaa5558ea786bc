"""The appending part of a log: staging, writing and rolling, on one thread at a time (the event loop, or a worker for a
follower that is far behind).

`append_many` checks and stages each batch, sets its offset and leader epoch (both outside its checksum, so nothing is
encoded again), and `_write` writes all staged batches with one system call. Plain client batches are checked by
compiled code and written from the buffer that they came in (`_append_plain`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from headrace.config.topic import TopicConfig
from headrace.env.disk import is_passing
from headrace.log import client_batches, internal_batches
from headrace.log.append_results import AppendResult, PlainResults, Staged
from headrace.log.flushing import Flushing
from headrace.log.producers import Origin, Refusal
from headrace.log.rolling import RollRule
from headrace.log.segment import RELATIVE_OFFSET_MAX, Segment
from headrace.log.state import LogState
from headrace.log.validate import Accepted, Invalid, Opening, check_client_batch, needs_full_checks
from headrace.wire._produce import COMPILED, NOT_PLAIN, check, stamp
from headrace.wire._walk import largest_timestamp
from headrace.wire.batch import LENGTH_OVERHEAD, TRANSACTIONAL_BIT
from headrace.wire.checksum import crc32c
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import Buffer

_HEADER = Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_unpack_sequence = Struct(">qhi").unpack_from
_SEQUENCE_AT = 43
"""Where the producer's id, its epoch and the sequence lie in a batch."""
_pack_prefix = Struct(">qii").pack  # base offset, length, leader epoch: what the log gives a batch
_PREFIX_BYTES = 16
_SPECIAL_BITS = 0x78  # timestamp type, transactional, control, delete horizon
_NO_ERROR = ErrorCode.NONE
_new_result = AppendResult.__new__
_NO_PARTS: Final[list[Buffer]] = []
_NONE_STAGED: Final[list[Staged]] = []
"""Of the logs that are not appended to now: never changed."""


def behind_prefix(chunk: Buffer | Accepted) -> memoryview:
    """Returns a batch without the bytes that the log sets: see `Producers.refused`."""
    return memoryview(chunk.data if isinstance(chunk, Accepted) else chunk)[_PREFIX_BYTES:]


class LogWriter:
    """Appends to one log: owns the staged batches. See the module."""

    __slots__ = (
        "_checks_fully",
        "_flush_messages",
        "_flushing",
        "_interval_bytes",
        "_max_message_bytes",
        "_on_flush_due",
        "_parts",
        "_rolling",
        "_segment_bytes",
        "_staged",
        "_staged_bytes",
        "_staged_offset",
        "_timestamp_after_max_ms",
        "state",
    )

    def __init__(self, state: LogState, flushing: Flushing) -> None:
        self.state = state
        self._flushing = flushing
        self._on_flush_due: Callable[[LogState], object] | None = None
        self._rolling = RollRule(state.config)
        self._parts = _NO_PARTS
        self._staged = _NONE_STAGED
        self._staged_bytes = 0
        self._staged_offset = 0  # the offset that the next staged batch gets
        self.configure(state.config)

    def configure(self, config: TopicConfig) -> None:
        """Applies a topic's new configuration."""
        self._checks_fully = needs_full_checks(config)
        self._interval_bytes = config.index_interval_bytes
        self._segment_bytes = config.segment_bytes
        self._rolling.configure(config)
        self._max_message_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._flush_messages = config.flush_messages
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms

    def serve(self, *, roll_jitter_ms: int, on_flush_due: Callable[[LogState], object]) -> None:
        """Attaches the log to a running broker: sets the roll jitter and the flush callback."""
        self._rolling.jitter(roll_jitter_ms)
        self._on_flush_due = on_flush_due

    def append(
        self, data: Buffer | Accepted, *, leader_epoch: int, now_ms: int, origin: Origin = "client"
    ) -> AppendResult:
        """Appends the batches in `data`; see `append_many`."""
        return self.append_many((data,), leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)[0]

    def append_many(
        self, chunks: Sequence[Buffer | Accepted], *, leader_epoch: int, now_ms: int, origin: Origin = "client"
    ) -> Sequence[AppendResult]:
        """Appends what several requests bring, in order, with one write; returns a result for each.

        A client's chunk is one batch, checked in full here, or (`Accepted`) before. If it is a writable memoryview its
        sender gives it away: it gets its offset and epoch in place. A coordinator's or controller's chunk may be
        several batches, whose records are not checked; they get offsets and epoch like a client's. Those of a replica
        have their own.
        A refused chunk changes nothing. A full disk refuses with KAFKA_STORAGE_ERROR, and then refuses what its
        producer sent behind it too; any other failure is raised as OSError. Nothing of a failed write stays in the log.
        """
        is_client = origin == "client"
        if is_client and COMPILED and type(chunks) is list and chunks and not self._checks_fully:
            plain = self._append_plain(chunks, leader_epoch, now_ms)
            if plain is not None:
                return plain
        self._parts, self._staged = [], []
        self._staged_offset = self.state.bounds.end_offset
        results: list[AppendResult] = []
        for chunk in chunks:
            try:
                if is_client:
                    results.append(self._stage_client(chunk, leader_epoch, now_ms))
                else:
                    assert not isinstance(chunk, Accepted), "a checked batch comes from a client"
                    results.append(self._stage_internal(memoryview(chunk), leader_epoch, now_ms, origin))
            except Exception as error:
                self._give_up(error, results, (chunk,) if is_client else ())
                results.append(AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error)))
        if self._staged:
            try:
                self._write()
            except Exception as error:
                self._give_up(error, results, ())
        return results

    # Plain batches of clients

    def _append_plain(self, chunks: list[Any], leader_epoch: int, now_ms: int) -> Sequence[AppendResult] | None:
        """Appends clients' batches that are all plain and all fit the active segment; returns None, and does nothing,
        otherwise."""
        state, count = self.state, len(chunks)
        segment = state.segment_list.active
        begin = segment.size
        found = array("q", bytes(24 * (count + 1)))
        found[0] = state.bounds.end_offset
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
            self._write_plain(segment, chunks, found, leader_epoch)
        except Exception as error:
            self._give_up(error, [], chunks)
            return [AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))] * count
        return PlainResults(found, count, state.bounds.log_start_offset, stop - begin)

    def _write_plain(self, segment: Segment, chunks: list[Any], found: array[int], leader_epoch: int) -> None:
        """Writes what was checked, as `_write` does. Raises OSError, and then nothing of it is in the log."""
        state, count, interval = self.state, len(chunks), self._interval_bytes
        begin, stop, end_offset = found[count + 1], found[2 * count + 1], found[count]
        file = segment.file_to_append(stop - begin, interval)
        stamp(chunks, found, leader_epoch)
        position = file.append(chunks)
        assert position == begin, "a segment ends where its file does"
        if leader_epoch > state.epochs.latest:
            state.epochs.assign(leader_epoch, found[0])
        segment.appended_plain(found, count, interval)
        state.appended(found[:count], found[count + 1 : 2 * count + 1], end_offset)
        if end_offset - self._flushing.flushed_offset >= self._flush_messages and self._on_flush_due is not None:
            self._on_flush_due(state)

    def _stage_sequences(self, chunks: Sequence[Any], offsets: array[int]) -> bool:
        """Stages the producers of plain batches; False if one does not follow its producer's last, and then none."""
        producers = self.state.producers
        check_producer, next_offset = client_batches.check_producer, offsets[0]
        for at, chunk in enumerate(chunks):
            producer_id, epoch, sequence = _unpack_sequence(chunk, _SEQUENCE_AT)
            if producer_id < 0:
                continue
            offset, last_offset = offsets[at], offsets[at + 1] - 1
            delta = last_offset - offset
            if check_producer(producers, next_offset, producer_id, epoch, sequence, delta, False) is not None:
                producers.drop()
                return False
            timestamp = offsets[2 * len(chunks) + 2 + at]
            producers.stage(producer_id, epoch, sequence, offset, last_offset, timestamp, False)
        return True

    # Staging

    def _stage_client(self, data: Buffer | Accepted, leader_epoch: int, now_ms: int) -> AppendResult:
        if type(data) is memoryview:
            view = data
        elif type(data) is Accepted:
            return self._stage_accepted(data, leader_epoch, now_ms)
        else:
            view = memoryview(data)  # type: ignore[arg-type]
        size = len(view)
        if self._checks_fully or size < 61:
            return self._check_fully(view, leader_epoch, now_ms)
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
            return self._check_fully(view, leader_epoch, now_ms)
        codec = attributes & 7
        if codec > 4 or (not codec and largest_timestamp(view, 61, size, count, base_timestamp) != max_timestamp):
            return self._check_fully(view, leader_epoch, now_ms)
        state, offset = self.state, self._staged_offset
        if producer_id >= 0:
            refused = client_batches.check_producer(
                state.producers, offset, producer_id, producer_epoch, sequence, delta, False
            )
            if refused is not None:
                return self._refuse(refused)
        last_offset = offset + delta
        segment = state.segment_list.active
        # The common case in one expression; `_must_roll` knows the rules.
        if (
            segment.size + self._staged_bytes + size > self._segment_bytes
            or not 0 <= max_timestamp <= self._rolling.until
            or segment.bytes_since_index > self._interval_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        ) and self._must_roll(size, last_offset, max_timestamp, now_ms):
            self.roll(now_ms=now_ms, first_timestamp=max_timestamp)
        if producer_id >= 0:
            state.producers.stage(producer_id, producer_epoch, sequence, offset, last_offset, max_timestamp, False)
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
        result.log_start_offset = state.bounds.log_start_offset
        result.error_message = None
        result.record_errors = ()
        result.duplicate = False
        self._staged.append((offset, last_offset, size, max_timestamp, leader_epoch, result, None))
        return result

    def _check_fully(self, view: memoryview, leader_epoch: int, now_ms: int) -> AppendResult:
        """Stages a client's batch after all checks, however long they take. Raises OSError if a roll fails."""
        state = self.state
        config = state.config
        opening = Opening(config.max_decompressed_bytes, aside=True)
        checked = check_client_batch(view, config, state.name, now_ms, opening)
        assert checked is not None, "a batch opened aside gets a decision"
        if isinstance(checked, Invalid):
            return client_batches.refusal(checked, state.bounds.log_start_offset)
        return self._stage_accepted(checked, leader_epoch, now_ms)

    def _stage_accepted(self, checked: Accepted, leader_epoch: int, now_ms: int) -> AppendResult:
        """Stages a client's batch that passed its checks. Raises OSError if a roll fails."""
        state = self.state
        producers, start = state.producers, state.bounds.log_start_offset
        found = client_batches.stage(checked, state.config, producers, self._staged_offset, start, leader_epoch, now_ms)
        if isinstance(found, Refusal):
            return self._refuse(found)
        header, staged, parts = found
        offset, last_offset, size, max_timestamp = staged[:4]
        self._roll_before(last_offset, size, max_timestamp, now_ms)
        if header.producer_id >= 0:
            producers.stage(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                offset,
                last_offset,
                max_timestamp,
                header.attributes & TRANSACTIONAL_BIT != 0,
            )
        self._parts.extend(parts)
        self._staged.append(staged)
        self._staged_bytes += size
        self._staged_offset = last_offset + 1
        return staged[5]

    def _refuse(self, refused: Refusal) -> AppendResult:
        state = self.state
        start, stamps = state.bounds.log_start_offset, state.config.log_append_time
        return client_batches.refused_producer(refused, state.name, start, stamps=stamps)

    def _stage_internal(self, view: memoryview, leader_epoch: int, now_ms: int, origin: Origin) -> AppendResult:
        """Stages every batch in `view`, or none of them. Raises OSError if a roll fails.

        Only a replica's batches may be spread over segments: a leader's go into one, so that one write has all of them.
        """
        state = self.state
        producers, offset = state.producers, self._staged_offset
        batches = internal_batches.read_batches(view, origin, offset, producers, state.config, state.topic_partition)
        if isinstance(batches, AppendResult):
            return batches
        is_replica, last_offset = origin == "replica", -1
        if is_replica:
            offset = batches[0][1].base_offset
        else:
            last_offset, newest = offset - 1, -1
            for _, header in batches:
                last_offset += header.last_offset_delta + 1
                newest = max(newest, header.max_timestamp)
            self._roll_before(last_offset, len(view), newest, now_ms)
        result = AppendResult(_NO_ERROR, offset, last_offset, -1, state.bounds.log_start_offset)
        for at, header in batches:
            size = header.batch_length + LENGTH_OVERHEAD
            if is_replica:
                offset, leader_epoch = header.base_offset, header.partition_leader_epoch
                self._roll_before(offset + header.last_offset_delta, size, header.max_timestamp, now_ms)
            staged, parts = internal_batches.stage(
                view[at : at + size], header, offset, leader_epoch, producers, result
            )
            self._parts.extend(parts)
            self._staged.append(staged)
            self._staged_bytes += size
            self._staged_offset = offset = staged[1] + 1
        if is_replica:
            result.last_offset = offset - 1
        return result

    def _roll_before(self, last_offset: int, size: int, max_timestamp: int, now_ms: int) -> None:
        """Starts a new segment if a batch needs one. Raises OSError."""
        segment = self.state.segment_list.active
        # The common case in one expression; `_must_roll` knows the rules.
        if (
            segment.size + self._staged_bytes + size > self._segment_bytes
            or not 0 <= max_timestamp <= self._rolling.until
            or segment.bytes_since_index > self._interval_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        ) and self._must_roll(size, last_offset, max_timestamp, now_ms):
            self.roll(now_ms=now_ms, first_timestamp=max_timestamp)

    def _must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        active = self.state.segment_list.active
        used = active.size + self._staged_bytes
        return self._rolling.must_roll(active, used, size, last_offset, max_timestamp, now_ms)

    # Writing

    def _write(self) -> None:
        """Writes the staged batches. Raises OSError, and then nothing of it is in the log."""
        state, staged, interval = self.state, self._staged, self._interval_bytes
        segment = state.segment_list.active
        position = segment.file_to_append(self._staged_bytes, interval).append(self._parts)
        offsets, positions = array("q"), array("q")
        epochs, latest = state.epochs, state.epochs.latest
        for base_offset, _, size, _, leader_epoch, _, _ in staged:
            if leader_epoch > latest:
                epochs.assign(leader_epoch, base_offset)
                latest = leader_epoch
            offsets.append(base_offset)
            positions.append(position)
            position += size
        segment.appended(staged, interval)
        end_offset = self._staged_offset
        self._parts, self._staged, self._staged_bytes = _NO_PARTS, _NONE_STAGED, 0
        state.appended(offsets, positions, end_offset)
        if end_offset - self._flushing.flushed_offset >= self._flush_messages and self._on_flush_due is not None:
            self._on_flush_due(state)

    def _give_up(self, error: Exception, results: list[AppendResult], unstaged: Sequence[Buffer | Accepted]) -> None:
        """Drops the staged batches, after a defect too; raises the error unless it is passing. A passing one refuses
        them all, and the batch that no segment could be created for (`unstaged`): their producers have to send them
        again first."""
        state, staged, parts = self.state, self._staged, self._parts
        end_offset = state.bounds.end_offset
        self._parts, self._staged = [], []
        self._staged_bytes, self._staged_offset = 0, end_offset
        state.producers.drop()
        if not isinstance(error, OSError) or not is_passing(error):
            raise error
        refused = [each[5] for each in staged]
        refused += [result for result in results if result.duplicate and result.last_offset >= end_offset]
        for result in refused:
            result.__init__(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))  # type: ignore[misc]
        state.producers.refused([*parts[1::2], *(behind_prefix(chunk) for chunk in unstaged)])

    def roll(self, *, now_ms: int | None = None, first_timestamp: int = -1) -> None:
        """Starts a new segment, for a batch of that timestamp if any; an empty active one stays. Raises OSError."""
        state = self.state
        if self._staged:
            self._write()
            self._parts, self._staged = [], []
        listed = state.segment_list
        with listed.lock:
            self._rolling.forget()
            active = listed.active
            if not active.size:
                active.begin(first_timestamp, now_ms)
                return
            active.end()
            state.take_snapshot()
            created_ms = now_ms if now_ms is not None else max(active.max_timestamp, active.created_ms)
            end_offset = state.bounds.end_offset
            assert end_offset > active.base_offset, "a segment with batches holds offsets"
            segment = Segment(state.resources, state.directory, end_offset, size=0, created_ms=created_ms)
            segment.begin(first_timestamp)
            segment.create()
            self._flushing.new_name()
            state.forget_recent()
            listed.replace([*listed.segments, segment])
        if self._on_flush_due is not None:
            self._on_flush_due(state)

    def was_cut(self) -> None:
        """Notes that the log was truncated: another segment may be the active one."""
        self._rolling.forget()
