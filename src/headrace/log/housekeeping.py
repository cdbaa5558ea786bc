"""Schedules retention, compaction and the expiry of producers over all logs, and on which thread they run.

The event loop decides by memory alone and changes what it owns; whatever reads or waits for the disk is for workers. A
manager has one of each.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple, Union

from headrace.log import cleaner, retention
from headrace.log.checkpoints import TopicPartition
from headrace.log.compaction import OffsetMap
from headrace.log.directory import LogDirFailed
from headrace.log.filenames import CLEANER_OFFSETS
from headrace.log.log import Log
from headrace.log.log_set import LogSet
from headrace.log.segment import Segment
from headrace.log.verdicts import LogsLost, Verdict, guarded, judge

Work = Callable[[], Union["Then", None]]
"""Work for a worker thread. Its result belongs on the event loop."""

Then = Callable[[], Work | None]
"""Work for the event loop, after some on a worker. Its result belongs on a worker again."""

RETENTION_SLICE = 250
"""The number of logs that one tick checks for retention: a broker with thousands spreads the pass over many ticks."""

EXPIRY_SLICE = 250
"""The number of logs that one tick checks for idle producers..."""
PRODUCERS_AT_ONCE = 10_000
"""...and the number of producers."""

ROLLED_AT_ONCE = 16
"""The number of logs that lose all their data, and roll on the event loop, in one step; others wait for the next."""


class Pass:
    """A pass over all logs, some of them at a time."""

    def __init__(self, logs: LogSet) -> None:
        self._set = logs
        self._queue: list[TopicPartition] = []

    def start(self) -> None:
        """Starts a pass over all logs, unless the last one is still running."""
        if not self._queue:
            self._queue = list(self._set.logs)


class Retention(Pass):
    """Retention of all logs: a worker checks files, the loop takes segments out, a worker renames them."""

    def __init__(self, logs: LogSet) -> None:
        super().__init__(logs)
        self._moved: Callable[[Log], None] = lambda _: None

    def when_moved(self, callback: Callable[[Log], None]) -> None:
        """Sets the callback, on the event loop, for each log whose start offset moved up."""
        self._moved = callback

    def work(self, now_ms: int) -> Work | None:
        """Returns the next slice of the pass, or None."""
        if not self._queue:
            return None
        keys, self._queue = self._queue[-RETENTION_SLICE:], self._queue[:-RETENTION_SLICE]
        logs = [log for log in map(self._set.logs.get, keys) if log is not None]
        return lambda: self._look(logs, now_ms)

    def _look(self, logs: list[Log], now_ms: int) -> Then:
        found: list[tuple[Log, retention.Expired]] = []

        def look(log: Log) -> None:
            found.append((log, retention.expired(log.state, now_ms)))

        guarded(self._set, logs, look)
        return lambda: self._take_out(found, now_ms)

    def _take_out(self, found: list[tuple[Log, retention.Expired]], now_ms: int) -> Work | None:
        held = self._set
        taken: list[Log] = []
        rolled: list[Log] = []

        def take_out(log: Log) -> None:
            # A worker has the lock where it renames files of this log: nobody waits here for that.
            if len(rolled) == ROLLED_AT_ONCE or not log.lock.acquire(blocking=False):
                self._queue.append(log.topic_partition)
                return
            try:
                if log.state.segment_list.swapping is not None:
                    self._queue.append(log.topic_partition)
                    return
                active, start = log.active, log.log_start_offset
                mark = held.high_watermark(log.topic_partition)
                log.take_out(looked[log], now_ms, log.end_offset if mark is None else mark)
                if log.active is not active:
                    rolled.append(log)
            finally:
                log.lock.release()
            if log.log_start_offset > start:
                self._moved(log)
            if log.state.segment_list.retiring:
                taken.append(log)

        looked = {log: old for log, old in found if held.logs.get(log.topic_partition) is log}
        guarded(held, looked, take_out)
        return (lambda: self._retire(taken)) if taken else None

    def _retire(self, logs: list[Log]) -> None:
        held = self._set

        def retire(log: Log) -> None:
            while (segment := log.retire_one()) is not None:
                held.removal.add_files([segment], log.config.file_delete_delay_ms)

        guarded(held, logs, retire)


class ProducerExpiry(Pass):
    """The expiry of idle producers, on the event loop, a slice of the logs in one tick."""

    def some(self, now_ms: int) -> None:
        """Expires the producers of the next slice, by the current expiration time."""
        if not self._queue:
            return
        expiration_ms = self._set.config.producer_id_expiration_ms
        busy: list[TopicPartition] = []
        looked_at = 0
        for _ in range(min(EXPIRY_SLICE, len(self._queue))):
            key = self._queue.pop()
            log = self._set.logs.get(key)
            if log is None:
                continue
            log.producers.expire_after(expiration_ms)
            if not len(log.producers) and log.producers.guards is None:
                continue
            # A worker has the lock where it changes the log's files: nobody waits here for that.
            if not log.lock.acquire(blocking=False):
                busy.append(key)
                continue
            looked_at += len(log.producers)
            try:
                log.producers.remove_expired(now_ms)
            finally:
                log.lock.release()
            if looked_at >= PRODUCERS_AT_ONCE:
                break
        self._queue += busy


class Mark(NamedTuple):
    """The reason why a log is not compacted, and the bad segment at that time."""

    why: str
    segment: Segment
    size: int


class Compaction:
    """Compacts one log at a time, the dirtiest first."""

    def __init__(self, logs: LogSet) -> None:
        self._set = logs
        self._next_s = -inf
        self.is_running = False
        self.stopping = False
        self.cleaned_bytes = 0
        self.uncleanable: dict[Log, Mark] = {}
        self._on_uncleanable: Callable[[Log, str], None] = lambda _log, _why: None

    def work(self) -> Work | None:
        """Returns the compaction of the dirtiest log; None if nothing is dirty, or one runs."""
        held = self._set
        clock = held.env.clock
        if self.is_running or clock.monotonic() < self._next_s or not held.config.log_cleaner_enable:
            return None
        self._forget_marks()
        found: list[cleaner.Dirty] = []
        for home in held.online():
            for log in held.logs_in(home.path):
                if not log.config.compact or log.is_future or log in self.uncleanable:
                    continue
                key = log.topic_partition
                mark = held.high_watermark(key)
                some = cleaner.dirty(log, home.cleaner_offsets.get(key), log.end_offset if mark is None else mark)
                if some is not None:
                    found.append(some)
        if not found:
            self._wait()
            return None
        self.is_running = True
        now_ms = clock.now_ms()
        return lambda: self._compact(found, now_ms)

    def when_uncleanable(self, callback: Callable[[Log, str], None]) -> None:
        """Sets the callback, on a worker, for a log that cannot be compacted, with the reason; once for each."""
        self._on_uncleanable = callback

    def stop(self) -> None:
        """Asks a running compaction to stop soon."""
        self.stopping = True

    def _wait(self) -> None:
        backoff_ms = self._set.config.log_cleaner_backoff_ms
        self._next_s = self._set.env.clock.monotonic() + backoff_ms / 1000

    def _forget_marks(self) -> None:
        """Retries logs whose data changed: retention, a truncation, or the topic's deletion removed the bad batch."""
        for log, mark in list(self.uncleanable.items()):
            is_here = mark.segment in log.segments and mark.segment.size == mark.size
            if not is_here or self._set.logs.get(log.topic_partition) is not log:
                del self.uncleanable[log]

    def _compact(self, found: list[cleaner.Dirty], now_ms: int) -> None:
        try:
            best = self._choose(found, now_ms)
            if best is None:
                self._wait()
            else:
                self._clean(best, now_ms)
        finally:
            self.is_running = False

    def _choose(self, found: list[cleaner.Dirty], now_ms: int) -> cleaner.Candidate | None:
        best: cleaner.Candidate | None = None
        seen: list[cleaner.Candidate] = []

        def examine(log: Log) -> None:
            try:
                candidate = cleaner.examine(dirty[log], now_ms)
            except OSError:
                raise
            except Exception as error:
                self._leave_alone(log, f"{error!r}", dirty[log].segments[0])
                raise
            if candidate is not None and cleaner.worth_it(candidate):
                seen.append(candidate)

        dirty = {each.log: each for each in found}
        try:
            guarded(self._set, dirty, examine)
        except (LogDirFailed, LogsLost):
            self._wait()
            raise
        for candidate in seen:
            if best is None or candidate.ratio > best.ratio:
                best = candidate
        return best

    def _clean(self, found: cleaner.Candidate, now_ms: int) -> None:
        held, log = self._set, found.log
        home = held.directory_of(log)
        rate = held.config.log_cleaner_io_max_bytes_per_second
        throttle = cleaner.CleanerThrottle(
            held.env.clock, rate, lambda: self.stopping or held.logs.get(log.topic_partition) is not log
        )

        def replaced(segments: list[Segment]) -> None:
            held.removal.add_files(segments, log.config.file_delete_delay_ms)

        try:
            env, config = held.env, held.config
            chance = env.entropy.random()
            secret = chance.getrandbits(64), chance.getrandbits(64)
            memory_bytes, load_factor = config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_buffer_load_factor
            offsets = OffsetMap(env.scratch, secret, memory_bytes, load_factor)
            done = cleaner.clean(found, now_ms, throttle, offsets, env.scratch, replaced)
            home.cleaner_offsets[log.topic_partition] = done.end_offset
            held.write_checkpoint(home, CLEANER_OFFSETS, home.cleaner_offsets)
            self.cleaned_bytes += done.bytes_before - done.bytes_after
        except cleaner.Stopped:
            pass  # what changed under it is looked at afresh
        except cleaner.Uncleanable as error:
            self._leave_alone(log, str(error), error.segment)
        except OSError as error:
            self._wait()
            verdict = judge(held, log, error)
            if verdict is Verdict.DIRECTORY:
                raise LogDirFailed(home.path, error) from error
            if verdict is Verdict.LOG:
                raise LogsLost([(log, error)]) from error
        except Exception as error:
            # The caller reports a defect. It must not recur in the next round: the other logs are compacted.
            first = log.segments[log.state.segment_of(found.first_dirty_offset)]
            self._leave_alone(log, f"{error!r}", first)
            raise

    def _leave_alone(self, log: Log, why: str, segment: Segment) -> None:
        """Excludes a log from compaction as long as that segment stays as it is."""
        self.uncleanable[log] = Mark(why, segment, segment.size)
        self._on_uncleanable(log, why)
