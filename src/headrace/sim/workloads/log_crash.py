"""One log on a disk that forgets: appends, flushes, rolls, deletions and compactions, cut short anywhere by a crash.

The workload keeps a model of what it appended. After each restart the checker demands:
- what is there is a prefix of what was appended, byte for byte (on a compacted topic: some of it, and the last value of
  every key);
- that prefix reaches at least the last offset that `flush` promised;
- each batch is found by its offsets, and idempotent producers go on from where the prefix ends;
- no offset is given twice: appends go on at the end.
The same seed does the same, in every process.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from headrace.config.topic import TopicConfig
from headrace.env.clock import Clock
from headrace.log import cleaner
from headrace.log.compaction import OffsetMap
from headrace.log.log import Log
from headrace.log.read_results import Local
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.log.segment import Segment
from headrace.sim.disk import SimDisk
from headrace.sim.lock import SimLock
from headrace.sim.workloads.cut_short import CutShort
from headrace.wire.batch import iter_headers, iter_whole_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, build_batch, decode_batch

DIRECTORY = "/data/t-0"
PRODUCERS = 3
KEYS = 12
MAP_BYTES = 1 << 20


class Broken(AssertionError):
    """A promise was not kept; the message has the seed."""


@dataclass(slots=True)
class Appended:
    """One batch of the model, as it must lie in the log."""

    base_offset: int
    last_offset: int
    data: bytes
    producer: int
    last_sequence: int


def _scratch(size: int) -> memoryview:
    return memoryview(bytearray(size))


class StillClock:
    """A clock that does not move, for a cleaner that is not paced."""

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        pass


class LogCrashTest(CutShort):
    """Crashes one log at any step."""

    cut_chance = 0.08
    cut_within = 30

    def __init__(self, seed: int, config: TopicConfig) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.config = config
        self.disk = SimDisk(random.Random(seed + 1))
        self.disk.writes_pages = random.Random(f"{seed}/pages").random() < 0.5
        self.disk.make_dirs(DIRECTORY)
        self.disk.sync_directory("/data")
        self.now_ms = 1_000_000
        self.model: list[Appended] = []
        self.promised = 0
        self.log_start = 0
        self.checkpoint = (0, 0)  # recovery point and log start offset as the manager's files would have them
        self.clean_offset: int | None = None
        self.clean = False
        self.sequences = [0] * PRODUCERS
        self.crashes = 0
        self.log = self._open()

    def _step(self) -> None:
        self.now_ms += self.rng.randint(0, 50)
        self.disk.now_ms = self.now_ms
        dice = self.rng.random()
        if dice < 0.70:
            self._append()
        elif dice < 0.80:
            self.promised = max(self.promised, self.log.flush())
        elif dice < 0.84:
            self.log.writer.roll(now_ms=self.now_ms)
        elif dice < 0.88:
            self.log.flushing.sync_indexes()
            self.checkpoint = (self.log.recovery_point, self.log.log_start_offset)
        elif dice < 0.91:
            self._delete_some()
        elif dice < 0.95 and self.config.compact:
            self._clean()
        elif dice < 0.97:
            self._restart(power_lost=False)
        elif dice < 0.98:
            self._close()

    # What is done to the log

    def _append(self) -> None:
        chunks, expected = self._batches()
        # In the model before the write: a crash in its middle may leave any prefix of it.
        self.model += expected
        results = self.log.writer.append_many(chunks, leader_epoch=7, now_ms=self.now_ms)
        for result, batch in zip(results, expected, strict=True):
            self._demand(result.error is ErrorCode.NONE, f"append refused: {result}")
            self._demand(result.base_offset == batch.base_offset, f"{result} instead of {batch.base_offset}")

    def _batches(self) -> tuple[list[bytes], list[Appended]]:
        """What one append brings, and how it lies in the log when all of it is taken."""
        chunks, expected = [], []
        offset = self.log.end_offset
        for _ in range(self.rng.randint(1, 3)):
            producer = self.rng.randrange(PRODUCERS + 1) - 1
            count = self.rng.randint(1, 4)
            records = [
                Record(0, self.now_ms, b"k%d" % self.rng.randrange(KEYS), self._value(offset + index), [])
                for index in range(count)
            ]
            data = build_batch(
                records,
                compression=self.rng.choice([0, 0, 4]),
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=self.sequences[producer] if producer >= 0 else -1,
            )
            if producer >= 0:
                self.sequences[producer] += count
            stamped = offset.to_bytes(8, "big") + data[8:12] + b"\0\0\0\7" + data[16:]
            last = self.sequences[producer] - 1 if producer >= 0 else -1
            expected.append(Appended(offset, offset + count - 1, stamped, producer, last))
            chunks.append(data)
            offset += count
        return chunks, expected

    def _value(self, offset: int) -> bytes | None:
        if self.config.compact and self.rng.random() < 0.1:
            return None
        return b"%d " % offset + self.rng.randbytes(self.rng.choice([10, 100, 400]))

    def _delete_some(self) -> None:
        if self.config.compact:
            return
        start = self.log.log_start_offset
        target = self.rng.randint(start, max(start, self.log.flushing.flushed_offset))
        self.log.delete_records_before(target)
        # As the manager does: the new start is on disk before files go.
        self.checkpoint = (self.checkpoint[0], target)
        self.log_start = target
        for segment in self.log.maybe_delete_old_segments(self.now_ms):
            segment.remove_files()

    def _clean(self) -> None:
        found = cleaner.candidate(self.log, self.clean_offset, self.log.end_offset, self.now_ms)
        if found is None:
            return
        clock: Clock = StillClock()
        replaced: list[Segment] = []
        throttle = cleaner.CleanerThrottle(clock, 1e12, lambda: False)
        offsets = OffsetMap(_scratch, (1, 2), MAP_BYTES, 0.9)
        done = cleaner.clean(found, self.now_ms, throttle, offsets, _scratch, replaced.extend)
        for segment in replaced:
            segment.remove_files()
        self.clean_offset = done.end_offset

    def _close(self) -> None:
        self.log.close()
        self.promised = self.log.end_offset
        self.checkpoint = (self.log.recovery_point, self.log.log_start_offset)
        self.disk.sync_directory(DIRECTORY)
        self.clean = True
        self._restart(power_lost=False)

    # What must hold

    def _open(self) -> Log:
        log = open_log(
            Resources(self.disk, self._lock),
            DIRECTORY,
            ("t", 0),
            self.config,
            clean=self.clean,
            recovery_point=self.checkpoint[0],
            log_start_offset=self.checkpoint[1],
            now_ms=self.now_ms,
        )
        self.clean = False
        return log

    def _lock(self) -> SimLock:
        """Makes a lock of the log's."""
        return SimLock()

    def _restart(self, *, power_lost: bool) -> None:
        self.crashes += 1
        end = self.log.end_offset
        self.disk.fail = None
        is_kept = not power_lost and not self.disk.has_dropped
        if power_lost:
            self.disk.crash()
        else:
            self.disk.kill()
        self.log = self._open()
        if is_kept:
            # The process alone died: whatever an append has returned for is in the page cache.
            self._demand(self.log.end_offset >= end, f"the log ends at {self.log.end_offset}, and was at {end}")
        self._check()

    def _demand(self, holds: bool, message: str) -> None:
        if not holds:
            raise Broken(f"seed {self.seed}, restart {self.crashes}: {message}")

    def _check(self) -> None:
        log = self.log
        end = log.end_offset
        self._demand(end >= self.promised, f"the log ends at {end}, and {self.promised} was promised")
        survivors = [batch for batch in self.model if batch.last_offset < end]
        expected_end = survivors[-1].last_offset + 1 if survivors else 0
        holes = self.config.compact and end > expected_end
        self._demand(holes or end == expected_end, f"the log ends at {end}, inside of a batch or beyond {expected_end}")
        self._demand(log.log_start_offset >= self.log_start, f"starts at {log.log_start_offset}, not {self.log_start}")
        data = self._read_all()
        if self.config.compact:
            # A segment whose name did not survive leaves a hole in what was not flushed: no one can tell it from what
            # compaction leaves.
            there = {header.base_offset for _, header in iter_headers(data)}
            survivors = [b for b in survivors if b.base_offset < self.promised or b.base_offset in there]
            self._check_compacted(data, survivors)
        else:
            start = log.bases[0]
            wanted = b"".join(batch.data for batch in survivors if batch.base_offset >= start)
            self._demand(data == wanted, "what is in the log is not what was appended")
        self.model = survivors
        self.promised = min(self.promised, end)
        self._check_producers(survivors)
        self._check_lookups(survivors)

    def _read_all(self) -> bytes:
        parts = []
        offset, end = self.log.bases[0], self.log.end_offset
        # Below the log start offset too: those batches are in the files until their segment goes.
        while offset < end:
            place = self.log.reader.place_of(offset)
            if place is None:
                break  # compaction left nothing behind this offset
            segment, position, first = place
            size = min(segment.size - position, max(self.rng.choice([1, 500, 5000]), first))
            data = segment.file().read(position, size)
            asked = offset
            for at, header in iter_whole_headers(data):
                parts.append(data[at : at + header.size])
                offset = header.next_offset
            self._demand(offset > asked, f"what is read at offset {asked} is no batch")
        return b"".join(parts)

    def _check_compacted(self, data: bytes, survivors: list[Appended]) -> None:
        appended: dict[int, Record] = {}
        last: dict[bytes, Record] = {}
        for batch in survivors:
            for record in decode_batch(batch.data):
                appended[record.offset] = record
                assert record.key is not None
                last[record.key] = record
        found: dict[bytes, Record] = {}
        before = -1
        for at, _ in iter_headers(data):
            for record in decode_batch(data, at):
                same = appended.get(record.offset)
                self._demand(
                    same is not None and same.key == record.key and same.value == record.value,
                    f"offset {record.offset} holds another record",
                )
                self._demand(record.offset > before, f"offset {record.offset} follows {before}")
                before = record.offset
                assert record.key is not None
                found[record.key] = record
        for key, record in last.items():
            kept = found.get(key)
            if record.value is None and (kept is None or kept.value is None):
                continue
            self._demand(kept is not None and kept.offset == record.offset, f"the last value of {key!r} is gone")

    def _check_producers(self, survivors: list[Appended]) -> None:
        last = {batch.producer: batch for batch in survivors if batch.producer >= 0}
        for producer in range(PRODUCERS):
            batch = last.get(producer)
            self.sequences[producer] = batch.last_sequence + 1 if batch is not None else 0
            if batch is None or batch.base_offset < self.log.bases[0]:
                continue
            known = self.log.producers.get(producer)
            self._demand(
                known is not None and bool(known.batches) and known.batches[-1].last_sequence == batch.last_sequence,
                f"producer {producer} is known by {known and known.batches}, not {batch.last_sequence}",
            )

    def _check_lookups(self, survivors: list[Appended]) -> None:
        start = max(self.log.log_start_offset, self.log.bases[0])
        readable = [batch for batch in survivors if batch.last_offset >= start]
        if self.config.compact:
            return
        for batch in self.rng.sample(readable, min(3, len(readable))):
            offset = max(self.rng.randint(batch.base_offset, batch.last_offset), start)
            result = self.log.reader.read(offset, max_bytes=1, max_offset=self.log.end_offset, min_one=True)
            assert isinstance(result, Local), "the offset is in the log"
            got = result.slice.read() if result.slice is not None else b""
            self._demand(got == batch.data, f"offset {offset} is not where it was")
