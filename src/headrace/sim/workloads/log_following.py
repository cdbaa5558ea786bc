"""One log of a follower on a disk that forgets: what `log_crash` has, and transactions, leader epochs, and cuts.

What a leader sends is appended with the leader's offsets and epochs: batches of transactions, their markers, and some
of neither kind. What is not committed may be cut, and others take its place; what is committed may be deleted, or
compacted up to the last stable offset. At each restart, after each cut, and now and then, the checker demands beyond
what `log_crash` does:
- the last stable offset is the first offset of an open transaction, and producers are known by their epochs;
- a reader gets every aborted transaction that reaches into what was read, and none that was committed;
- each leader epoch ends where it ended;
- the first record at or after a time is found;
- a reader that holds a file which compaction replaces reads on in it;
- the producer snapshot that the log takes for its newest is in its folder;
- compaction keeps the last committed value of each key, and a tombstone for as long as delete.retention.ms says;
- a log begins where records were deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.config.topic import TopicConfig
from headrace.log import cleaner
from headrace.log.compaction import OffsetMap
from headrace.log.filenames import SNAPSHOT, offset_name
from headrace.log.lookup import aborted_in
from headrace.log.read_results import Local
from headrace.log.segment import Segment
from headrace.log.transaction_index import AbortedTransaction
from headrace.sim.workloads.log_crash import DIRECTORY, MAP_BYTES, Appended, LogCrashTest, StillClock, _scratch
from headrace.wire.batch import iter_headers, stamp
from headrace.wire.errors import ErrorCode
from headrace.wire.file_slice import FileSlice
from headrace.wire.markers import EndMarker, build_marker
from headrace.wire.records import Record, build_batch, decode_batch

TRANSACTIONAL: Final = 3
"""Producers with transactional ids: 0, 1, 2."""
KEYS: Final = (6, 80)
"""Some come again soon, others are the last of theirs for long."""
TOMBSTONES: Final = 0.2
ENDS: Final = 0.5
"""How often a producer whose transaction is open ends it."""
COMMITS: Final = 0.5


class Ended(NamedTuple):
    """A transaction that has ended, with the offset of its marker."""

    producer: int
    first: int
    marker: int


@dataclass(slots=True)
class Copied(Appended):
    """A batch that came from a leader."""

    epoch: int
    """The producer's."""
    leader_epoch: int
    timestamp: int
    committed: bool | None
    """Of a marker: whether the transaction is committed; None of another batch."""
    in_transaction: bool


class Past:
    """What a log that holds certain batches says of transactions, producers and leader epochs."""

    def __init__(self, batches: Iterable[Copied]) -> None:
        self.open: dict[int, int] = {}
        self.ended: list[Ended] = []
        self.aborted: list[Ended] = []
        self.starts: list[tuple[int, int]] = []
        """(leader epoch, first offset)."""
        self.producers: dict[int, Copied] = {}
        self.undone: set[int] = set()
        """The batches of aborted and of open transactions, by their base offsets."""
        inside: dict[int, list[int]] = {}
        for batch in batches:
            if not self.starts or batch.leader_epoch > self.starts[-1][0]:
                self.starts.append((batch.leader_epoch, batch.base_offset))
            self.producers[batch.producer] = batch
            if batch.in_transaction:
                self.open.setdefault(batch.producer, batch.base_offset)
                inside.setdefault(batch.producer, []).append(batch.base_offset)
            elif batch.committed is not None:
                first = self.open.pop(batch.producer, None)
                if first is not None:
                    self.ended.append(Ended(batch.producer, first, batch.base_offset))
                    if not batch.committed:
                        self.aborted.append(self.ended[-1])
                        self.undone.update(inside[batch.producer])
                inside.pop(batch.producer, None)
        for left in inside.values():
            self.undone.update(left)


class LogFollowingTest(LogCrashTest):
    """Crashes one log of a follower at any step."""

    def __init__(self, seed: int, config: TopicConfig) -> None:
        self.leader_epoch = 1
        self.committed = 0
        """The high watermark: nothing below is cut."""
        super().__init__(seed, config)

    @property
    def _copied(self) -> list[Copied]:
        return [batch for batch in self.model if isinstance(batch, Copied)]

    def _step(self) -> None:
        self.now_ms += self.rng.randint(0, 20)
        dice = self.rng.random()
        if dice < 0.03:
            self._cut()
        elif dice < 0.08:
            self.leader_epoch += 1
        elif dice < 0.18:
            self._look()
        elif dice < 0.30:
            self.promised = max(self.promised, self.log.flush())
            self.committed = self.rng.randint(self.committed, max(self.committed, self.promised))
        elif dice < 0.38 and self.config.compact:
            self._clean()
        else:
            super()._step()

    # What is done to the log

    def _append(self) -> None:
        chunks, expected = self._batches()
        self.model += expected
        for chunk in chunks:
            result = self.log.writer.append(chunk, leader_epoch=-1, now_ms=self.now_ms, origin="replica")
            self._demand(result.error is ErrorCode.NONE, f"append refused: {result}")

    def _batches(self) -> tuple[list[bytes], list[Appended]]:
        chunks: list[bytes] = []
        expected: list[Appended] = []
        offset = self.log.end_offset
        past = Past(self._copied)
        for _ in range(self.rng.randint(1, 3)):
            producer = self.rng.randrange(-1, TRANSACTIONAL)
            batch = self._batch(past, offset, producer)
            expected.append(batch)
            chunks.append(batch.data)
            offset = batch.last_offset + 1
            past = Past([*self._copied, *(each for each in expected if isinstance(each, Copied))])
        return chunks, expected

    def _batch(self, past: Past, offset: int, producer: int) -> Copied:
        before = past.producers.get(producer)
        epoch = before.epoch if before is not None else 0
        is_open = producer in past.open
        if is_open and self.rng.random() < ENDS:
            committed = self.rng.random() < COMMITS
            epoch += self.rng.random() < 0.3  # as after a timeout, or with every end since KIP-890
            data = bytearray(build_marker(EndMarker(producer, epoch, 0, committed), self.now_ms))
            stamp(data, 0, offset, self.leader_epoch)
            return Copied(
                offset, offset, bytes(data), producer, -1, epoch, self.leader_epoch, self.now_ms, committed, False
            )
        sequence = -1
        if producer >= 0:
            is_same = before is not None and (before.committed is None or before.last_sequence >= 0)
            sequence = before.last_sequence + 1 if before is not None and is_same else self._sequence(producer, epoch)
        in_transaction = producer >= 0 and (is_open or self.rng.random() < 0.8)
        count = self.rng.randint(1, 4)
        timestamp = max(self.now_ms - self.rng.choice((0, 0, 500)), 1)
        records = [Record(0, timestamp, self._key(), self._value(offset + index), []) for index in range(count)]
        data = bytearray(
            build_batch(
                records,
                compression=self.rng.choice([0, 0, 4]),
                producer_id=producer,
                producer_epoch=epoch if producer >= 0 else -1,
                base_sequence=sequence,
                transactional=in_transaction,
            )
        )
        stamp(data, 0, offset, self.leader_epoch)
        last = sequence + count - 1 if producer >= 0 else -1
        return Copied(
            offset,
            offset + count - 1,
            bytes(data),
            producer,
            last,
            epoch,
            self.leader_epoch,
            timestamp,
            None,
            in_transaction,
        )

    def _key(self) -> bytes:
        return b"k%d" % self.rng.randrange(self.rng.choice(KEYS))

    def _sequence(self, producer: int, epoch: int) -> int:
        """The next sequence of a producer: under a new epoch it begins at 0."""
        same = [b for b in self._copied if b.producer == producer and b.committed is None and b.epoch == epoch]
        return same[-1].last_sequence + 1 if same else 0

    def _value(self, offset: int) -> bytes | None:
        if self.config.compact and self.rng.random() < TOMBSTONES:
            return None
        return b"%d " % offset + self.rng.randbytes(self.rng.choice([10, 100, 400]))

    def _cut(self) -> None:
        """A new leader does not have the end of this log; its own comes under a later epoch."""
        ends = [batch.base_offset for batch in self.model if batch.base_offset >= self.committed]
        if ends:
            self._cut_at(self.rng.choice(ends))

    def _cut_at(self, offset: int) -> None:
        self.promised = min(self.promised, offset)
        self.leader_epoch += 1
        # As the manager does: first the checkpoint, for a batch, or its segment, is cut as a whole.
        holds = self.log.segments[self.log.state.segment_of(offset)].base_offset
        self.checkpoint = (min(self.checkpoint[0], holds), self.checkpoint[1])
        self.log.truncate_to(offset, now_ms=self.now_ms)
        self.model = [batch for batch in self.model if batch.base_offset < offset]
        self._demand(self.log.end_offset == offset, f"the log ends at {self.log.end_offset}, and was cut at {offset}")
        self._look()

    def _delete_some(self) -> None:
        if self.config.compact:
            return
        start = self.log.log_start_offset
        target = self.rng.randint(start, max(start, self.committed))
        self.log.delete_records_before(target)
        self.checkpoint = (self.checkpoint[0], target)
        self.log_start = target
        for segment in self.log.maybe_delete_old_segments(self.now_ms, self.committed):
            segment.remove_files()

    def _clean(self) -> None:
        # A marker that is cut comes again, as its coordinator has decided; here it may be the other one.
        ended = [each.first for each in Past(self._copied).ended if each.marker >= self.committed]
        found = cleaner.candidate(self.log, self.clean_offset, min([self.committed, *ended]), self.now_ms)
        if found is None:
            return
        held = self._hold()
        replaced: list[Segment] = []
        throttle = cleaner.CleanerThrottle(StillClock(), 1e12, lambda: False)
        offsets = OffsetMap(_scratch, (1, 2), MAP_BYTES, 0.9)
        done = cleaner.clean(found, self.now_ms, throttle, offsets, _scratch, replaced.extend)
        for segment in replaced:
            segment.remove_files()
        self.clean_offset = done.end_offset
        for held_slice, data in held:
            self._demand(held_slice.read() == data, "a reader that holds a compacted file reads something else")

    def _hold(self) -> list[tuple[FileSlice, bytes]]:
        """What slow readers hold of each segment, and what they read there now."""
        held: list[tuple[FileSlice, bytes]] = []
        for base in self.log.bases:
            offset = max(base, self.log.log_start_offset)
            if offset < self.log.end_offset:
                found = self.log.reader.read(offset, max_bytes=700, max_offset=self.log.end_offset, min_one=True)
                assert isinstance(found, Local), "the offset is in the log"
                if found.slice is not None:
                    held.append((found.slice, found.slice.read()))
        return held

    # What must hold

    def _check(self) -> None:
        super()._check()
        self.committed = min(self.committed, self.log.end_offset)
        self._look()

    def _check_producers(self, survivors: list[Appended]) -> None:
        past = Past(batch for batch in survivors if isinstance(batch, Copied))
        for producer in range(TRANSACTIONAL):
            batch = past.producers.get(producer)
            if batch is None or batch.base_offset < self.log.bases[0]:
                continue
            known = self.log.producers.get(producer)
            self._demand(known is not None and known.epoch == batch.epoch, f"producer {producer} is known by {known}")
            if batch.committed is None:
                last = known.batches[-1].last_sequence if known is not None and known.batches else None
                text = f"producer {producer} is known by {last}, not {batch.last_sequence}"
                self._demand(last == batch.last_sequence, text)

    def _look(self) -> None:
        """What is true at any time."""
        past = Past(self._copied)
        self._check_producers(self.model)
        self._check_stable(past)
        self._check_aborted(past)
        self._check_snapshot()
        if not self.config.compact:
            self._check_epochs(past)
            self._check_times()

    def _check_snapshot(self) -> None:
        """Older snapshots go because of the newest: without it, producers whose batches are deleted are forgotten."""
        newest = self.log.state.snapshot_offset
        there = newest < 0 or offset_name(newest, SNAPSHOT) in self.disk.list(DIRECTORY)
        self._demand(there, f"the newest producer snapshot, of offset {newest}, is not in the folder")

    def _check_stable(self, past: Past) -> None:
        log = self.log
        stable, end = log.last_stable_offset(log.end_offset), log.end_offset
        # What is deleted of a transaction no longer says where it began.
        left = [
            min(b.base_offset for b in self._copied if b.producer == producer and b.base_offset >= max(first, kept))
            if any(b.producer == producer and b.base_offset >= max(first, kept) for b in self._copied)
            else end
            for kept in (log.bases[0],)
            for producer, first in past.open.items()
        ]
        possible = {min([end, *past.open.values()]), min([end, *left])}
        possible = {max(each, min(log.log_start_offset, end)) for each in possible}
        self._demand(stable in possible, f"the last stable offset is {stable}, not {sorted(possible)}")

    def _check_aborted(self, past: Past) -> None:
        log, start = self.log, max(self.log.log_start_offset, self.log.bases[0])
        known = {(each.producer, each.marker): each for each in past.aborted}
        for segment in log.segments:
            for entry in aborted_in(log.state, segment):
                truth = known.get((entry.producer_id, entry.last_offset))
                self._demand(truth is not None and self._hides_nothing(entry, truth, past), f"{entry} was not aborted")
        if log.end_offset <= start:
            return
        offset = self.rng.randint(start, log.end_offset - 1)
        max_bytes = self.rng.choice([1, 700, 5000])
        found = log.reader.read(offset, max_bytes=max_bytes, max_offset=log.end_offset, min_one=True)
        assert isinstance(found, Local), "the offset is in the log"
        if found.slice is not None:
            self._check_reported_aborted(past, offset, found)

    def _hides_nothing(self, entry: AbortedTransaction, truth: Ended, past: Past) -> bool:
        """Whether an entry names records of its transaction alone. Where compaction took the marker of the one before,
        which was aborted, too, both may be named as one."""
        before = [
            batch.base_offset
            for batch in self._copied
            if batch.producer == truth.producer and entry.first_offset <= batch.base_offset < truth.first
            if batch.in_transaction
        ]
        return not before or (self.config.compact and past.undone >= set(before))

    def _check_reported_aborted(self, past: Past, offset: int, found: Local) -> None:
        assert found.slice is not None
        data = found.slice.read()
        aborted = {(each.producer_id, each.last_offset) for each in self.log.reader.aborted_transactions(offset, found)}
        for _, header in iter_headers(data) if self._is_whole(data) else []:
            if header.base_offset < offset or header.is_control or not header.is_transactional:
                continue
            inside = next(
                (
                    each
                    for each in past.aborted
                    if each.producer == header.producer_id and each.first <= header.base_offset < each.marker
                ),
                None,
            )
            text = f"a reader of offset {offset} does not get {inside}"
            self._demand(
                inside is None or header.record_count == 0 or (inside.producer, inside.marker) in aborted, text
            )

    @staticmethod
    def _is_whole(data: bytes) -> bool:
        at = 0
        while at + 12 <= len(data):
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        return at == len(data)

    def _check_epochs(self, past: Past) -> None:
        log = self.log
        start = max(log.log_start_offset, log.bases[0])
        ends = [*(first for _, first in past.starts[1:]), log.end_offset]
        for (epoch, _), end in zip(past.starts, ends, strict=False):
            if end > start:
                found = log.end_offset_for_epoch(epoch)
                self._demand(found == (epoch, end), f"leader epoch {epoch} ended at {end}, and the log says {found}")
        if past.starts:
            beyond = log.end_offset_for_epoch(past.starts[-1][0] + 1)
            self._demand(beyond == (-1, -1), f"the log knows {beyond}, and no batch is of that epoch")

    def _check_times(self) -> None:
        log = self.log
        start = max(log.log_start_offset, log.bases[0])
        there = [batch for batch in self._copied if batch.last_offset >= start]
        if not there:
            return
        time = self.rng.choice(there).timestamp
        wanted = next((max(b.base_offset, start) for b in there if b.timestamp >= time), None)
        found = log.reader.offset_for_timestamp(time)
        got = None if found is None else found.offset
        self._demand(got == wanted, f"the first record at or after {time} is {wanted}, and {got} is found")
        newest = max(batch.timestamp for batch in there)
        most = log.reader.max_timestamp_offset()
        self._demand(most is not None and most.timestamp == newest, f"the latest time is {newest}, and {most} is found")

    def _check_compacted(self, data: bytes, survivors: list[Appended]) -> None:
        copied = [batch for batch in survivors if isinstance(batch, Copied)]
        undone = Past(copied).undone
        appended: dict[int, Record] = {}
        last: dict[bytes, Record] = {}
        for batch in copied:
            if batch.committed is not None:
                continue
            for record in decode_batch(batch.data):
                appended[record.offset] = record
                assert record.key is not None
                if batch.base_offset not in undone:
                    last[record.key] = record
        found: dict[bytes, int] = {}
        before = -1
        for at, header in iter_headers(data):
            for record in [] if header.is_control else decode_batch(data, at):
                same = appended.get(record.offset)
                is_same = same is not None and (same.key, same.value) == (record.key, record.value)
                self._demand(is_same, f"offset {record.offset} holds another record")
                self._demand(record.offset > before, f"offset {record.offset} follows {before}")
                before = record.offset
                assert record.key is not None
                if last.get(record.key, record).offset >= record.offset:
                    found[record.key] = record.offset
        for key, record in last.items():
            is_due = record.value is None and record.timestamp + self.config.delete_retention_ms <= self.now_ms
            is_kept = found.get(key) == record.offset
            # What a tombstone that is gone stood for must be gone, too.
            is_gone = is_due and key not in found
            self._demand(is_kept or is_gone, f"the last value of {key!r} is gone")
