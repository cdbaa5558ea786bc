"""One log on a disk that fails and fills up: the crashes of `log_crash`, and I/O errors and full disks between them.

What the checker demands besides:
- an append that is refused, or fails, is not acknowledged, and nothing of it is visible;
- a full disk is an answer to those who append (KAFKA_STORAGE_ERROR). The log goes on as it was, with all that was
  acknowledged, and takes appends again when there is room;
- after any other error the log goes offline, as its directory does in a broker. The next start, in the same process or
  after the power went, finds it whole: a start that fails itself, or finds no room, has done no harm;
- a sync that failed promises nothing, nor does one after it: the kernel takes the pages for written. What memory still
  shows of the log is not on the disk, and the next start, of the process alone or of the machine, must not count on it.
"""

from __future__ import annotations

import errno
import random

from headrace.config.topic import TopicConfig
from headrace.env.disk import is_full
from headrace.log.append_results import AppendResult
from headrace.log.log import Log
from headrace.sim.disk import PowerCut
from headrace.sim.workloads.log_crash import Appended, LogCrashTest
from headrace.wire.errors import ErrorCode

PLENTY = 1 << 60
REFUSED = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})
"""What a full disk answers, and what a producer hears whose earlier batch was refused with the same write."""


class LogFaultTest(LogCrashTest):
    """Crashes one log on a disk that fails and fills up."""

    def __init__(self, seed: int, config: TopicConfig) -> None:
        self.faults = random.Random(seed + 2)
        self.full_steps = 0
        self.errors = 0
        self.refusals = 0
        self.failed_starts = 0
        super().__init__(seed, config)
        self.disk.tears_failed_writes = True
        self.disk.drops_unsynced = True

    def run(self, steps: int) -> None:
        """Runs that many steps. Raises Broken."""
        for _ in range(steps):
            self._fill_up()
            if not self.full_steps:
                self._arm()
            try:
                self._step()
            except PowerCut:
                self._restart(power_lost=True)
            except OSError as error:
                self._went_wrong(error)
            finally:
                self.disk.fail = None
        self.disk.room_bytes = PLENTY
        self._restart(power_lost=self.rng.random() < 0.5)

    # What goes wrong

    def _fill_up(self) -> None:
        """Now and then the disk is full for some steps."""
        if self.full_steps:
            self.full_steps -= 1
            if not self.full_steps:
                self.disk.room_bytes = PLENTY
        elif self.faults.random() < 0.03:
            self.full_steps = self.faults.randint(2, 15)
            self.disk.room_bytes = self.faults.choice([0, 20, 300, 3000])

    def _arm(self) -> None:
        """Every now and then the power goes some operations from here, or an operation fails."""
        super()._arm()
        if self.disk.fail is None and self.faults.random() < 0.15:
            self._arm_error()

    def _arm_error(self) -> None:
        at = self.disk.operations + self.faults.randint(1, self.faults.choice([2, 8, 30]))
        lasts = self.faults.random() < 0.5

        def fail(_operation: str, path: str) -> OSError | None:
            if self.disk.operations == at or (lasts and self.disk.operations > at):
                return OSError(errno.EIO, "injected", path)
            return None

        self.disk.fail = fail

    def _went_wrong(self, error: OSError) -> None:
        self.disk.fail = None
        if is_full(error):
            self._demand(self.full_steps > 0, f"there is room: {error}")
            self._check()
        else:
            self.errors += 1
            self._restart(power_lost=self.faults.random() < 0.5)

    # What is done to the log

    def _append(self) -> None:
        chunks, expected = self._batches()
        begin, before = self.log.end_offset, len(self.model)
        # As in log_crash; on a full disk nothing else happens on the way.
        self.model += expected
        try:
            results = self.log.writer.append_many(chunks, leader_epoch=7, now_ms=self.now_ms)
        except OSError as error:
            self._demand(not is_full(error), "a full disk is an answer")
            ends = {batch.base_offset for batch in expected}
            self._demand(self.log.end_offset in ends, "a failed append is visible")
            raise
        del self.model[before:]
        for batch, result in zip(expected, results, strict=True):
            self._answered(batch, result)
        end = self.model[-1].last_offset + 1 if len(self.model) > before else begin
        self._demand(self.log.end_offset == end, f"the log ends at {self.log.end_offset}, acknowledged is {end}")
        if len(self.model) - before < len(expected):
            self.refusals += 1
            self._undo_sequences(expected, self.model[before:])
            self._check()

    def _answered(self, batch: Appended, result: AppendResult) -> None:
        if result.error:
            self._demand(self.full_steps > 0 and result.error in REFUSED, f"append refused: {result}")
            return
        base = result.base_offset
        self._demand(not result.duplicate, f"what was never acknowledged is a duplicate: {result}")
        last = base + batch.last_offset - batch.base_offset
        data = base.to_bytes(8, "big") + batch.data[8:]
        self.model.append(Appended(base, last, data, batch.producer, batch.last_sequence))

    def _undo_sequences(self, sent: list[Appended], taken: list[Appended]) -> None:
        """Producers go on after the last batch of theirs that was taken."""
        for batch in reversed(sent):
            if batch.producer >= 0:
                self.sequences[batch.producer] = batch.last_sequence - (batch.last_offset - batch.base_offset)
        for batch in taken:
            if batch.producer >= 0:
                self.sequences[batch.producer] = batch.last_sequence + 1

    def _close(self) -> None:
        try:
            super()._close()
        except OSError as error:
            if not is_full(error):
                raise
            self._restart(power_lost=False)

    def _open(self) -> Log:
        """A start that fails is tried again, with room and without errors."""
        if self.faults.random() < 0.1:
            self._arm_error()
        try:
            return super()._open()
        except OSError as error:
            self._demand(error.errno == errno.EIO or self.full_steps > 0, f"there is room: {error}")
            self.failed_starts += 1
            self.full_steps, self.disk.room_bytes = 0, PLENTY
            self.clean = False
        finally:
            self.disk.fail = None
        self.disk.kill()
        return super()._open()


__all__ = ["LogFaultTest"]
