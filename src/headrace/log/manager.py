"""All logs of one broker: where they live, how they start, what is done to them in the background, how they end.

`load` looks at names and checkpoints alone; a log is opened when it is first asked for. The owner calls `tick` on its
event loop about once a second and runs what that returns on worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from headrace.config import BrokerConfig, TopicConfig
from headrace.env import Environment
from headrace.env.disk import is_passing
from headrace.log.checkpoints import CheckpointError, TopicPartition, encode_partition_metadata
from headrace.log.directory import LogDirectory, LogDirFailed, LogDirLocked
from headrace.log.filenames import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    delete_directory_name,
    directory_name,
    stray_directory_name,
)
from headrace.log.housekeeping import Compaction, ProducerExpiry, Retention, Work
from headrace.log.log import Log
from headrace.log.producers import Producers
from headrace.log.recovery import NO_TOPIC_ID, LogDamaged, create_log, open_log
from headrace.log.recovery_report import LogCorrupt
from headrace.log.reindexing import Reindexing
from headrace.log.removal import Removal
from headrace.log.resources import Resources
from headrace.log.schedule import FlushSchedule, Schedule
from headrace.log.state import LogState
from headrace.log.verdicts import LogsLost, guarded


class LogManager:
    """See the module. `directories` overrides the configuration's log.dirs."""

    def __init__(self, env: Environment, config: BrokerConfig, directories: Sequence[str] | None = None) -> None:
        self.env = env
        self.config = config
        files_max = min(config.log_open_segments_max, env.disk.held_open_max())
        self.resources = Resources(env.disk, env.lock, files_max)
        self.directories = {path: LogDirectory(env.disk, path, env.lock()) for path in directories or config.log_dirs}
        self.logs: dict[TopicPartition, Log] = {}
        self.future_logs: dict[TopicPartition, Log] = {}
        self.damaged: dict[TopicPartition, LogCorrupt] = {}
        self.was_clean = False
        self._random = env.entropy.random()
        self._schedule = Schedule(env.clock)
        self.flushes = FlushSchedule(env.clock)
        self.removal = Removal(env.disk, env.clock)
        self.reindexing = Reindexing(env.clock, self.guarded)
        self.retention = Retention(self)
        self.producer_expiry = ProducerExpiry(self)
        self.compaction = Compaction(self)
        self.high_watermark: Callable[[TopicPartition], int | None] = lambda _: None

    # Starting

    def lock(self) -> None:
        """Takes all directories. Raises LogDirLocked, and then holds none; a directory whose disk fails is marked."""
        for directory in self.directories.values():
            try:
                self.env.disk.make_dirs(directory.path)
                directory.lock()
            except LogDirLocked:
                self.unlock()
                raise
            except OSError as error:
                directory.fail(error)

    def unlock(self) -> None:
        """Lets other brokers in."""
        for directory in self.directories.values():
            directory.unlock()

    def load(self) -> None:
        """Reads checkpoints and names of all directories. Raises OSError when none of them works.

        Raises CheckpointError for a checkpoint that cannot be read: an operator may delete it, and pays with a scan.
        """
        for directory in self.online():
            try:
                directory.load()
            except OSError as error:
                directory.fail(error)
                continue
            for path in directory.doomed:
                self.removal.add_tree(path, 0)
        if not self.online():
            first = next(iter(self.directories.values()))
            raise LogDirFailed(first.path, first.failure)
        self._settle_duplicates()
        self.was_clean = all(directory.clean for directory in self.online())

    def _settle_duplicates(self) -> None:
        """A crash at the end of a move leaves a partition in two directories: the longer log stays."""
        disk = self.env.disk
        homes: dict[TopicPartition, list[LogDirectory]] = {}
        for home in self.online():
            for key in home.found:
                homes.setdefault(key, []).append(home)
        for key, owners in homes.items():
            if len(owners) > 1:
                sizes = [sum(size for _, size in disk.list_sizes(home.found[key])) for home in owners]
                kept = owners[sizes.index(max(sizes))]
                for home in owners:
                    if home is not kept:
                        new = f"{home.path}/{delete_directory_name(*key, self.env.entropy.uuid())}"
                        disk.rename(home.found[key], new)
                        self.removal.add_tree(new, 0)
                        home.forget(key)

    def online(self) -> list[LogDirectory]:
        """The directories that work."""
        return [directory for directory in self.directories.values() if directory.failure is None]

    def found(self) -> list[TopicPartition]:
        """Partitions that lie in the directories and are not open, sorted."""
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
        """The open logs as of now: workers open more meanwhile."""
        return iter(list(self.logs.values()))

    def get_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        *,
        directory_id: bytes | None = None,
        directory: str | None = None,
    ) -> Log:
        """Opens the log of a partition, or starts one in `directory` (None: the one with the fewest partitions).

        A folder of another topic id is what a deleted topic of that name left: it is set aside. So is one that holds
        something and whose topic id a crash has torn: nothing in it was ever flushed, and it may be of a deleted topic.
        Raises LogDamaged where the log must not be served, LogDirFailed where its disk fails. Safe on worker threads
        for different partitions.
        """
        key = (topic, partition)
        log = self.logs.get(key)
        if log is not None:
            if NO_TOPIC_ID in (topic_id, log.topic_id) or topic_id == log.topic_id:
                return log
            # A worker was late and remade the folder of a topic that had been deleted; the name has a new topic now.
            self.delete(topic, partition)
            log = None
        if key in self.damaged:
            # Whoever recovered it found out; reading it all again, here on the event loop, tells nothing new.
            raise LogDamaged(self.damaged[key])
        home = next((home for home in self.online() if key in home.found), None)
        if home is None and (lost := next((each for each in self.directories.values() if key in each.found), None)):
            # An empty log in its place would be a hole where acknowledged records were.
            raise LogDirFailed(lost.path, lost.failure)
        stray = ""
        try:
            if home is not None:
                log = self._open(home, key, home.found[key], config)
                if topic_id not in (NO_TOPIC_ID, log.topic_id):
                    if self._may_be_named(log):
                        self._name(log, topic_id)
                    else:
                        stray = self._set_aside(home, key, log)
                        log = None
            if log is None:
                self._settle_renames(key)
                home = self.directories[directory] if directory is not None else self._emptiest()
                log = self._create(home, key, topic_id, config)
                if stray:
                    log.replaces_stray(stray)
        except LogDamaged as damage:
            self.damaged[key] = damage.corrupt
            raise
        except OSError as error:
            if home is None:
                raise  # no directory works any more, and each has said so
            if is_passing(error):
                raise
            if isinstance(error, FileNotFoundError):
                raise  # this log lacks files; whoever serves it has its directory probed
            self.directory_failed(home.path, error)
            raise LogDirFailed(home.path, error) from error
        log.serve(roll_jitter_ms=self._jitter(config), on_flush_due=self.flushes.note)
        self.logs[key] = log
        return log

    def _jitter(self, config: TopicConfig) -> int:
        jitter_ms = min(config.segment_jitter_ms, config.roll_ms)
        return self._random.randrange(jitter_ms) if jitter_ms else 0

    def new_producers(self) -> Producers:
        """An empty memory of producers, with the bounds that the configuration sets."""
        return Producers(
            expiration_ms=self.config.producer_id_expiration_ms,
            producers_max=self.config.producer_ids_max_per_partition,
        )

    def _open(self, home: LogDirectory, key: TopicPartition, path: str, config: TopicConfig) -> Log:
        log = open_log(
            self.resources,
            path,
            key,
            config,
            clean=home.clean,
            recovery_point=home.recovery_points.get(key, 0),
            log_start_offset=home.log_starts.get(key, 0),
            now_ms=self.env.clock.now_ms(),
            producers=self.new_producers(),
        )
        self.reindexing.add(log)
        return log

    def _may_be_named(self, log: Log) -> bool:
        """Whether a log is of whatever topic has its name: it is empty, or of a time before topics had ids."""
        has_file = self.env.disk.exists(f"{log.directory}/{PARTITION_METADATA}")
        return log.topic_id == NO_TOPIC_ID and not (has_file and log.end_offset)

    def _name(self, log: Log, topic_id: bytes) -> None:
        """Safe at once: what the log holds may be so, and the next start must not take it for another topic's."""
        path = f"{log.directory}/{PARTITION_METADATA}"
        self.env.disk.write_file_atomically(path, encode_partition_metadata(topic_id))
        log.named(topic_id)

    def _settle_renames(self, key: TopicPartition) -> None:
        """No power loss brings back what lay here under the name of a partition that is about to be made: it may be in
        another directory, and longer. Raises OSError where that may pass."""
        for home in self.online():
            try:
                home.sync_renames_of(key)
            except OSError as error:
                if is_passing(error):
                    raise
                self.directory_failed(home.path, error)

    def _create(self, home: LogDirectory, key: TopicPartition, topic_id: bytes, config: TopicConfig) -> Log:
        path = f"{home.path}/{directory_name(*key)}"
        disk = self.env.disk
        home.begin(key)
        disk.make_dirs(path)
        disk.write_file(f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
        log = create_log(
            self.resources,
            path,
            key,
            config,
            topic_id=topic_id,
            now_ms=self.env.clock.now_ms(),
            producers=self.new_producers(),
        )
        home.add(key, path)
        return log

    def _emptiest(self) -> LogDirectory:
        online = self.online()
        cordoned = set(self.config.cordoned_log_dirs)
        candidates = [home for home in online if home.path not in cordoned and "*" not in cordoned] or online
        if not candidates:
            first = next(iter(self.directories.values()))
            raise LogDirFailed(first.path, first.failure)
        return min(candidates, key=lambda home: home.partitions)

    def _set_aside(self, home: LogDirectory, key: TopicPartition, log: Log) -> str:
        """Renames a folder that belongs to a topic that is gone; returns its new path."""
        log.release()
        new = f"{home.path}/{stray_directory_name(*key, self.env.entropy.uuid())}"
        with log.lock:
            log.rename_folder(new)
        home.forget(key)
        return new

    def mark_stray(self, topic: str, partition: int) -> str | None:
        """Renames the folder of a partition that the metadata does not know to `-stray`; returns its new path."""
        key = (topic, partition)
        for home in self.online():
            path = home.found.get(key)
            if path is not None:
                new = f"{home.path}/{stray_directory_name(*key, self.env.entropy.uuid())}"
                self.env.disk.rename(path, new)
                home.forget(key)
                return new
        return None

    def delete(self, topic: str, partition: int) -> None:
        """Takes a partition away: its folder gets a `-delete` name now, and goes after file.delete.delay.ms."""
        key = (topic, partition)
        log = self.logs.pop(key, None)
        self.damaged.pop(key, None)
        future = self.future_logs.pop(key, None)
        for gone in (log, future):
            if gone is not None:
                self.flushes.forget(gone)
                gone.release()
        with ExitStack() as held:
            for each in (log, future):
                if each is not None:
                    # A worker that renames files of this log must not do so half-way, under its folder's old name.
                    held.enter_context(each.lock)
            self._doom_folders(key, log, future)

    def _doom_folders(self, key: TopicPartition, log: Log | None, future: Log | None) -> None:
        for home in self.directories.values():
            if home.failure is not None:
                home.forget(key)  # its folder stays: the next start finds it, and takes it for a stray
        for home in self.online():
            delay_ms = log.config.file_delete_delay_ms if log is not None else 0
            for each in (home.found.get(key), home.found_future.pop(key, None)):
                if each is None:
                    continue
                new = f"{home.path}/{delete_directory_name(*key, self.env.entropy.uuid())}"
                gone = next((gone for gone in (log, future) if gone is not None and gone.directory == each), None)
                try:
                    if gone is None:
                        self.env.disk.rename(each, new)
                    else:
                        # What workers still do to it must not reach a topic created again under the same name.
                        gone.rename_folder(new)
                except FileNotFoundError:
                    continue  # somebody took it away already
                except OSError as error:
                    if is_passing(error):
                        return  # it stays found: a topic made under the same name sets it aside first
                    self.directory_failed(home.path, error)
                    break
                self.removal.add_tree(new, delay_ms)
            home.forget(key)

    def directory_of(self, log: Log) -> LogDirectory:
        """The log directory that holds a log."""
        return self.directories[log.directory.rpartition("/")[0]]

    def logs_in(self, directory: str) -> list[Log]:
        """The open logs (future ones too) of a log directory."""
        every = [*self.logs.values(), *self.future_logs.values()]
        return [log for log in every if log.directory.rpartition("/")[0] == directory]

    def directory_failed(self, directory: str, error: OSError) -> list[TopicPartition]:
        """Takes a log directory out of use; returns the partitions that go offline with it."""
        home = self.directories[directory]
        home.fail(error)
        gone = self.logs_in(directory)
        for log in gone:
            target = self.future_logs if log.is_future else self.logs
            target.pop(log.topic_partition, None)
            self.flushes.forget(log)
            log.release()
        return [log.topic_partition for log in gone if not log.is_future]

    def lost(self, log: Log) -> None:
        """Takes one log out of use that lacks files. What is left of it stays where it is, for the next start."""
        self.directory_of(log).has_lost = True
        (self.future_logs if log.is_future else self.logs).pop(log.topic_partition, None)
        self.flushes.forget(log)
        log.release()

    # Background work

    def watch_high_watermarks(self, of: Callable[[TopicPartition], int | None]) -> None:
        """Where high watermarks come from, for checkpoints and retention; None means the end of the log."""
        self.high_watermark = of

    def tick(self) -> list[Work]:
        """What is due now, for worker threads; what work returns is called on the event loop, and may return more work.

        Either may raise LogDirFailed: the partitions of that directory go offline; or LogsLost: those logs do. What is
        due goes by the steady clock; the wall clock tells the ages of records and segments alone.
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
        flush_due = self.flushes.take_due(self, self._find_open)
        if flush_due:
            work.append(lambda: self._flush(flush_due))
        if self.removal.is_due():
            work.append(self.removal.run)
        if self.reindexing:
            work.append(self.reindexing.run)
        if is_due("recovery points", config.log_flush_offset_checkpoint_interval_ms):
            work.append(self.checkpoint_recovery_points)
        if is_due("log starts", config.log_flush_start_offset_checkpoint_interval_ms):
            work.append(self.checkpoint_log_starts)
        if is_due("high watermarks", config.replica_high_watermark_checkpoint_interval_ms):
            work.append(self.checkpoint_high_watermarks)
        return work

    def _find_open(self, state: LogState) -> Log | None:
        log = self.logs.get(state.topic_partition)
        return log if log is not None and log.state is state else None

    def cleaner_work(self) -> Work | None:
        """Compaction of the log that needs it most, for a worker thread; None while nothing is dirty, or one runs."""
        return self.compaction.work()

    def stop_background(self) -> None:
        """Has a running compaction give up soon; `tick` and `cleaner_work` find nothing any more."""
        self.compaction.stopping = True

    def adopt(self, log: Log, old_home: LogDirectory, new_home: LogDirectory) -> None:
        """Makes a log that was copied into another directory the log of its partition."""
        key = log.topic_partition
        self.flushes.forget(self.logs[key])
        clean_offset = old_home.cleaner_offsets.get(key)
        old_home.forget(key)
        self.logs[key] = log
        log.serve(roll_jitter_ms=self._jitter(log.config), on_flush_due=self.flushes.note)
        new_home.add(key, log.directory)
        # Its recovery point comes with the next checkpoint: that syncs its indexes first.
        new_home.recovery_points.pop(key, None)
        if clean_offset is not None:
            new_home.cleaner_offsets[key] = clean_offset

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

    def guarded(self, logs: Iterable[Log], action: Callable[[Log], object]) -> None:
        """See `verdicts.guarded`."""
        guarded(self, logs, action)

    # Checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Writes how far each log is safe, where the indexes up to there can be made safe. Raises LogDirFailed, and
        LogsLost in the end."""
        lost: LogsLost | None = None
        for home in self.online():
            logs = [log for log in self.logs_in(home.path) if not log.is_future]
            points = {log.topic_partition: log.recovery_point for log in logs}
            moved = [
                log for log in logs if home.recovery_points.get(log.topic_partition) != points[log.topic_partition]
            ]
            unsafe = set(moved)

            def sync(log: Log, unsafe: set[Log] = unsafe) -> None:
                log.flushing.sync_indexes()
                unsafe.discard(log)

            try:
                self.guarded(moved, sync)
            except LogsLost as failed:
                lost = failed
            for log in logs:
                if log not in unsafe:  # else its indexes could not be written
                    self._note(log, home, home.recovery_points, points[log.topic_partition])
            self.write_checkpoint(home, RECOVERY_POINTS, home.recovery_points)
        if lost is not None:
            raise lost

    def truncate(self, log: Log, offset: int) -> None:
        """Cuts a log, and before it the checkpoint: a start must not miss what was cut on purpose. Raises OSError."""
        if offset < log.end_offset:
            # A batch is cut as a whole, so the log may end below `offset`, but never before the segment that has it.
            holds = log.segments[log.state.segment_of(offset)]
            self._distrust_from(log, min(offset, holds.base_offset))
        log.truncate_to(offset, now_ms=self.env.clock.now_ms())
        self._forget_start(log)

    def start_at(self, log: Log, offset: int) -> None:
        """Drops a whole log, which goes on at another offset, and what the checkpoints say of it. Raises OSError."""
        self._distrust_from(log, 0)
        log.truncate_fully_and_start_at(offset, now_ms=self.env.clock.now_ms())
        self._forget_start(log)

    def _distrust_from(self, log: Log, offset: int) -> None:
        """The checkpoint calls nothing safe from an offset on; the next one may."""
        home, key = self.directory_of(log), log.topic_partition
        if home.recovery_points.get(key, 0) > offset:
            home.recovery_points[key] = offset
            self.write_checkpoint(home, RECOVERY_POINTS, home.recovery_points)

    def _forget_start(self, log: Log) -> None:
        home, key = self.directory_of(log), log.topic_partition
        if home.log_starts.get(key, 0) > log.log_start_offset:
            home.log_starts.pop(key)
            self.write_checkpoint(home, LOG_STARTS, home.log_starts)

    def checkpoint_log_starts(self) -> None:
        """Writes where each log starts, where its first segment does not say so. Raises LogDirFailed."""
        for home in self.online():
            for log in self.logs_in(home.path):
                start = log.log_start_offset
                self._note(log, home, home.log_starts, start if start > log.bases[0] else None)
            self.write_checkpoint(home, LOG_STARTS, home.log_starts)

    def checkpoint_high_watermarks(self) -> None:
        """Writes how far each partition is replicated. Raises LogDirFailed."""
        for home in self.online():
            for log in self.logs_in(home.path):
                if not log.is_future:
                    mark = self.high_watermark(log.topic_partition)
                    self._note(log, home, home.high_watermarks, log.end_offset if mark is None else mark)
            self.write_checkpoint(home, HIGH_WATERMARKS, home.high_watermarks)

    def _note(self, log: Log, home: LogDirectory, offsets: dict[TopicPartition, int], offset: int | None) -> None:
        """Takes an offset of a log down for a checkpoint (None: takes it out), unless the log was deleted meanwhile, or
        has moved out of the directory: the next log of that name must not be taken for it."""
        key = log.topic_partition
        with log.lock:  # whoever moves it or takes it away has that
            if self.logs.get(key) is not log or self.directory_of(log) is not home:
                return
            if offset is None:
                offsets.pop(key, None)
            else:
                offsets[key] = offset

    def write_checkpoint(self, home: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes a checkpoint; an error that says nothing about the disk leaves the old one. Raises LogDirFailed."""
        try:
            home.write(name, offsets)
        except OSError as error:
            if not is_passing(error):
                raise LogDirFailed(home.path, error) from error

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
                    home.has_lost = True
                except OSError as error:
                    home.fail(error)
                    break
                else:
                    if not log.is_future:
                        home.recovery_points[log.topic_partition] = log.recovery_point
        for action in (self.checkpoint_recovery_points, self.checkpoint_log_starts, self.checkpoint_high_watermarks):
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
        self.unlock()


__all__ = ["CheckpointError", "LogDamaged", "LogDirFailed", "LogDirLocked", "LogManager"]
