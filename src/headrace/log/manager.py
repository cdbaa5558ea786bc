"""All logs of one broker: their directories, start, background work and shutdown.

`load` reads only names and checkpoints; a log is opened when it is first asked for. The owner calls `tick` on its event
loop about once a second and runs the returned work on worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.config import BrokerConfig, TopicConfig
from headrace.env import Environment
from headrace.log import deletion
from headrace.log.checkpoints import CheckpointError, TopicPartition
from headrace.log.directory import LogDirectory, LogDirFailed, LogDirLocked
from headrace.log.housekeeping import Compaction, ProducerExpiry, Retention, Work
from headrace.log.loading import load, lock, unlock
from headrace.log.log import Log
from headrace.log.log_set import LogSet
from headrace.log.offset_checkpoints import OffsetCheckpoints
from headrace.log.opening import LogOpening
from headrace.log.producers import Producers
from headrace.log.recovery import LogDamaged
from headrace.log.reindexing import Reindexing
from headrace.log.schedule import Schedule
from headrace.log.verdicts import LogsLost, Verdict, guarded, judge


class LogManager:
    """All logs of one broker. `directories` overrides the configuration's log.dirs."""

    def __init__(self, env: Environment, config: BrokerConfig, directories: Sequence[str] | None = None) -> None:
        self.env = env
        self.held = held = LogSet(env, config, directories or config.log_dirs)
        self.resources = held.resources
        self.directories = held.directories
        self.logs = held.logs
        self.future_logs = held.future_logs
        self.damaged = held.damaged
        self.flushes = held.flushes
        self.removal = held.removal
        self.was_clean = False
        """Whether every directory was stopped cleanly."""
        self._schedule = Schedule(env.clock)
        self.reindexing = Reindexing(env.clock, self.guarded)
        self.opening = LogOpening(held, self.reindexing)
        self.checkpoints = OffsetCheckpoints(held)
        self.retention = Retention(held)
        self.producer_expiry = ProducerExpiry(held)
        self.compaction = Compaction(held)

    @property
    def config(self) -> BrokerConfig:
        """The current configuration."""
        return self.held.config

    def configure(self, config: BrokerConfig) -> None:
        """Applies another configuration."""
        self.held.configure(config)

    # Starting

    def lock(self) -> None:
        """Locks all directories. Raises LogDirLocked, and then holds none; marks a directory whose disk fails."""
        lock(self.held)

    def unlock(self) -> None:
        """Releases the directories to other brokers."""
        unlock(self.held)

    def load(self) -> None:
        """Reads checkpoints and names of all directories: see `loading.load`. Raises OSError, CheckpointError."""
        self.was_clean = load(self.held)

    def online(self) -> list[LogDirectory]:
        """The directories that work."""
        return self.held.online()

    def found(self) -> list[TopicPartition]:
        """Returns the partitions in the directories that are not open, sorted."""
        return sorted(key for directory in self.online() for key in directory.found if key not in self.logs)

    # Logs

    def get(self, topic: str, partition: int) -> Log | None:
        """The open log of a partition."""
        return self.logs.get((topic, partition))

    def has(self, topic: str, partition: int) -> bool:
        """Whether a log of a partition lies here, open or not."""
        key = (topic, partition)
        return key in self.logs or any(key in home.found for home in self.online())

    def __iter__(self) -> Iterator[Log]:
        """Iterates over a copy of the open logs: workers may open more meanwhile."""
        return iter(self.held)

    def get_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        *,
        directory: str | None = None,
    ) -> Log:
        """Opens the log of a partition, or starts one, as `LogOpening.get_or_create` does. Raises LogDamaged and
        LogDirFailed."""
        return self.opening.get_or_create(topic, partition, topic_id, config, directory=directory)

    def new_producers(self) -> Producers:
        """Empty producers, with the bounds that the configuration sets."""
        return self.held.new_producers()

    def mark_stray(self, topic: str, partition: int) -> str | None:
        """Renames the folder of a partition that the metadata does not know to `-stray`; returns its new path."""
        return deletion.mark_stray(self.held, (topic, partition))

    def delete(self, topic: str, partition: int) -> None:
        """Deletes a partition: its folder gets a `-delete` name now, and is removed after file.delete.delay.ms."""
        deletion.delete(self.held, (topic, partition))

    def directory_of(self, log: Log) -> LogDirectory:
        """The log directory that holds a log."""
        return self.held.directory_of(log)

    def logs_in(self, directory: str) -> list[Log]:
        """The open logs (future ones too) of a log directory."""
        return self.held.logs_in(directory)

    def directory_failed(self, directory: str, error: OSError) -> list[TopicPartition]:
        """Takes a log directory out of use; returns the partitions that go offline with it."""
        return self.held.directory_failed(directory, error)

    def lost(self, log: Log) -> None:
        """Takes a log that lacks files out of use. Its remaining files stay for the next start."""
        self.directory_of(log).lacks_files()
        self.held.put_offline(log)

    def judge(self, log: Log, error: OSError) -> Verdict:
        """Classifies an error of a log (`verdicts.judge`)."""
        return judge(self.held, log, error)

    def guarded(self, logs: Iterable[Log], action: Callable[[Log], object]) -> None:
        """Runs an action on logs (`verdicts.guarded`). Raises LogDirFailed, LogsLost."""
        guarded(self.held, logs, action)

    def truncate(self, log: Log, offset: int) -> None:
        """Truncates a log, and before it the checkpoint: a start must not take the truncation for damage. Raises
        OSError."""
        if offset < log.end_offset:
            # A batch is cut as a whole, so the log may end below `offset`, but never before the segment that has it.
            holds = log.segments[log.state.segment_of(offset)]
            self.checkpoints.distrust_from(log, min(offset, holds.base_offset))
        log.truncate_to(offset, now_ms=self.env.clock.now_ms())
        self.checkpoints.forget_start(log)

    def start_at(self, log: Log, offset: int) -> None:
        """Drops a whole log, which continues at another offset, and its checkpoint entries. Raises OSError."""
        self.checkpoints.distrust_from(log, 0)
        log.truncate_fully_and_start_at(offset, now_ms=self.env.clock.now_ms())
        self.checkpoints.forget_start(log)

    def adopt(self, log: Log, old_home: LogDirectory, new_home: LogDirectory) -> None:
        """Makes a log that was copied into another directory the log of its partition."""
        key = log.topic_partition
        self.flushes.forget(self.logs[key])
        clean_offset = old_home.cleaner_offsets.get(key)
        old_home.forget(key)
        self.logs[key] = log
        self.opening.serve(log)
        new_home.add(key, log.directory)
        # Its recovery point comes with the next checkpoint: that syncs its indexes first.
        new_home.recovery_points.pop(key, None)
        if clean_offset is not None:
            new_home.cleaner_offsets[key] = clean_offset

    # Background work

    def watch_high_watermarks(self, of: Callable[[TopicPartition], int | None]) -> None:
        """Sets where high watermarks come from, for checkpoints and retention; None means the end of the log."""
        self.held.watch_high_watermarks(of)

    def tick(self) -> list[Work]:
        """Returns the work that is due, for worker threads; its result is called on the event loop, and may return more
        work.

        Either may raise LogDirFailed: the partitions of that directory go offline; or LogsLost: those logs do. Timers
        use the steady clock; only the ages of records and segments use the wall clock.
        """
        work: list[Work] = []
        now_ms = self.env.clock.now_ms()
        config, is_due = self.config, self._schedule.is_due
        if is_due("retention", config.log_retention_check_interval_ms):
            self.retention.start()
        if is_due("producer expiry", config.producer_id_expiration_check_interval_ms):
            self.producer_expiry.start()
        self.producer_expiry.some(now_ms)
        retention = self.retention.work(now_ms)
        if retention is not None:
            work.append(retention)
        flush_due = self.flushes.take_due(self, self.held.find_open)
        if flush_due:
            work.append(lambda: self._flush(flush_due))
        if self.removal.is_due():
            work.append(self.removal.run)
        if self.reindexing:
            work.append(self.reindexing.run)
        if is_due("recovery points", config.log_flush_offset_checkpoint_interval_ms):
            work.append(self.checkpoints.write_recovery_points)
        if is_due("log starts", config.log_flush_start_offset_checkpoint_interval_ms):
            work.append(self.checkpoints.write_log_starts)
        if is_due("high watermarks", config.replica_high_watermark_checkpoint_interval_ms):
            work.append(self.checkpoints.write_high_watermarks)
        return work

    def cleaner_work(self) -> Work | None:
        """Compaction of the log that needs it most, for a worker thread; None while nothing is dirty, or one runs."""
        return self.compaction.work()

    def stop_background(self) -> None:
        """Asks a running compaction to stop soon; `tick` and `cleaner_work` return nothing from now on."""
        self.compaction.stop()

    @property
    def is_cleaning(self) -> bool:
        """Whether a compaction is running."""
        return self.compaction.is_running

    def _flush(self, due: list[Log]) -> None:
        """Flushes logs; those that it does not come to, or whose disk is full, are due again. Raises LogDirFailed."""
        left = set(due)

        def flush(log: Log) -> None:
            log.flush()
            left.discard(log)

        try:
            self.guarded(due, flush)
        finally:
            for log in left:
                self.flushes.note(log.state)

    # Stopping

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Closes every log and marks the directories clean; one whose disk fails on the way is not marked.

        A broker that was never registered (-1) has written nothing: the marker keeps the epoch of the one before, so
        that it is still eligible to lead (KIP-966).
        """
        for home in self.online():
            for log in self.logs_in(home.path):
                try:
                    log.close()
                except FileNotFoundError:
                    home.lacks_files()
                except OSError as error:
                    home.fail(error)
                    break
                else:
                    if not log.is_future:
                        home.recovery_points[log.topic_partition] = log.recovery_point
        written = self.checkpoints
        for action in (written.write_recovery_points, written.write_log_starts, written.write_high_watermarks):
            try:
                action()
            except LogDirFailed as failed:
                self.directories[failed.directory].fail(failed)
            except LogsLost as failed:
                for log, _ in failed.lost:
                    self.lost(log)
        for home in self.online():
            unopened = any(key not in self.logs for key in home.found)
            unopened = unopened or any(key not in self.future_logs for key in home.found_future)
            try:
                # What was not opened since an unclean start has not been recovered either.
                if (home.clean or not unopened) and not home.has_lost:
                    home.mark_clean(home.broker_epoch if broker_epoch < 0 else broker_epoch)
            except OSError as error:
                home.fail(error)
        self.logs.clear()
        self.future_logs.clear()
        unlock(self.held)


__all__ = ["CheckpointError", "LogDamaged", "LogDirFailed", "LogDirLocked", "LogManager"]
