"""One log of a follower, and a worker that reads cold data for a fetch, while others change the log between two of its
reads.

The worker holds no lock while it waits for the disk. Meanwhile a segment is compacted and swapped, or deleted; or the
partition gets another leader, and its log is truncated and gets other batches. The worker's result is of the log as it
was before or as it is after; and what it has cached is valid for the next reader.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.config import BrokerConfig, topic_config
from headrace.config.topic import TopicConfig
from headrace.log.read_results import Local
from headrace.sim.lock import SimLock
from headrace.sim.run import Result
from headrace.sim.trace import Trace
from headrace.sim.workloads.log_crash import Appended, Broken
from headrace.sim.workloads.log_following import LogFollowingTest
from headrace.sim.world import Objection
from headrace.wire.batch import iter_whole_headers
from headrace.wire.records import CorruptBatch, decode_batch

STEPS: Final = 250
READS: Final = 0.15
"""How often a cold read comes before a step."""
OPERATIONS: Final = 6
"""Others have their turn before one of the first operations of such a read, or after it."""
CUT: Final = 0.7
"""How often the log is cut, if the batch that is read may be."""
FROM_THE_END: Final = 0.5
"""How often what was appended last is read: the rest may not be cut."""


class LogReadingTest(LogFollowingTest):
    """Reads cold parts of a log while others change it."""

    def __init__(self, seed: int, config: TopicConfig) -> None:
        self._chance = random.Random(f"{seed}/reading")
        self._locks: list[SimLock] = []
        self._operations_left = 0
        """Before others have their turn."""
        self._was_cut = self._has_changed = False
        super().__init__(seed, config)

    def _lock(self) -> SimLock:
        lock = super()._lock()
        self._locks.append(lock)
        return lock

    def _step(self) -> None:
        if self._chance.random() < READS:
            self._read_cold()
        super()._step()

    def _read_cold(self) -> None:
        log, rng = self.log, self._chance
        start, end = max(log.log_start_offset, log.bases[0]), log.end_offset
        if start >= end:
            return
        offset = max(start, end - rng.randint(1, 12)) if rng.random() < FROM_THE_END else rng.randrange(start, end)
        log.segments[log.state.segment_of(offset)].release()
        before = self._first_from(offset)
        self._was_cut = self._has_changed = False
        self._operations_left = rng.randrange(OPERATIONS)
        self.disk.between = lambda: self._let_others_in(offset)
        data = b""
        try:
            found = log.reader.read(offset, max_bytes=rng.choice((1, 700, 5000)), max_offset=end)
            assert isinstance(found, Local), "the offset is in the log"
            log.reader.aborted_transactions(offset, found)
            data = b"" if found.slice is None else found.slice.read()
        except OSError:
            self._demand(self._has_changed, f"offset {offset} cannot be read, and nothing has changed")
        finally:
            self.disk.between = None
        if not self._was_cut and log.log_start_offset <= offset:
            self._check_read(offset, data, self._has_changed)
        if before is not None:
            self._read_again(before.last_offset + 1)  # first: its place may be remembered
        self._read_again(offset)

    def _first_from(self, offset: int) -> Appended | None:
        return next((batch for batch in self.model if batch.last_offset >= offset), None)

    def _read_again(self, offset: int) -> None:
        """What the loop reads when the worker is done."""
        log = self.log
        if max(log.log_start_offset, log.bases[0]) <= offset < log.end_offset:
            found = log.reader.read(offset, max_bytes=1, max_offset=log.end_offset)
            assert isinstance(found, Local), "the offset is in the log"
            self._check_read(offset, b"" if found.slice is None else found.slice.read(), False)

    def _check_read(self, offset: int, data: bytes, may_be_less: bool) -> None:
        """The first batch read is the one that has an offset, or of a compacted log one behind it. `may_be_less`: the
        log has changed meanwhile, and may have nothing there any more."""
        wanted = self._first_from(offset)
        first = next(((at, header) for at, header in iter_whole_headers(data)), None)
        if first is None:
            is_possible = may_be_less or self.config.compact
            self._demand(is_possible and not data, f"nothing, or no whole batch, is read at offset {offset}")
            return
        at, header = first
        if not self.config.compact:
            is_same = wanted is not None and data[at : at + header.size] == wanted.data
            self._demand(is_same, f"what is read at offset {offset} is not what was appended")
            return
        self._demand(header.last_offset >= offset, f"what is read at offset {offset} ends at {header.last_offset}")
        try:
            there = [] if header.is_control else [(each.offset, each.value) for each in decode_batch(data, at)]
        except CorruptBatch as error:
            self._demand(False, f"what is read at offset {offset} is no batch: {error}")
            return
        for record, value in there:
            self._demand(self._value_at(record) == [value], f"offset {record} holds another record")

    def _value_at(self, offset: int) -> list[bytes | None]:
        batch = self._first_from(offset)
        return [] if batch is None else [each.value for each in decode_batch(batch.data) if each.offset == offset]

    # --- the others

    def _let_others_in(self, offset: int) -> None:
        """Before an operation of the read. Who holds a lock keeps them out."""
        self._operations_left -= 1
        if self._operations_left < 0 and not any(lock.is_held for lock in self._locks):
            self.disk.between = None
            self._change(offset)
            self._has_changed = True

    def _change(self, offset: int) -> None:
        rng = self._chance
        uncommitted = [batch.base_offset for batch in self.model if self.committed <= batch.base_offset <= offset]
        if uncommitted and rng.random() < CUT:
            self._cut_at(rng.choice(uncommitted))
            self._was_cut = True
            self._append()
            self._append()
            self._roll()
            self._append()
            return
        keep = self._clean if self.config.compact else self._delete_some
        for step in rng.choices((self._append, self._roll, keep), weights=(1, 1, 2), k=2):
            step()

    def _roll(self) -> None:
        self.log.writer.roll(now_ms=self.now_ms)


def settings(*, compact: bool) -> TopicConfig:
    """Segments of a few batches."""
    return replace(
        topic_config(BrokerConfig.load({}, lambda _: None), {}),
        segment_bytes=4000,
        index_interval_bytes=300,
        segment_index_bytes=400,
        cleanup_policy=frozenset({"compact" if compact else "delete"}),
        delete_retention_ms=3000,
        retention_ms=-1,
    )


def run_log_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of one log; every second one is compacted."""
    trace = Trace(lambda: 0.0, say)
    test = LogReadingTest(seed, settings(compact=seed % 2 == 1))
    objection: Objection | None = None
    try:
        test.run(STEPS)
    except (Broken, AssertionError) as error:
        objection = Objection(str(error))
        objection.__cause__ = error
    trace.note("log", test.log.end_offset, test.log.log_start_offset, test.crashes)
    return Result(seed, trace.digest, test.now_ms / 1000, len(test.model), 0, 0, test.crashes, objection)
