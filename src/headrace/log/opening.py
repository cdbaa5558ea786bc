"""Opens the log of a partition on first use, or creates one, and checks the topic id of its folder."""

from __future__ import annotations

from headrace.config import TopicConfig
from headrace.env.disk import is_passing
from headrace.log.checkpoints import TopicPartition, encode_partition_metadata
from headrace.log.deletion import delete
from headrace.log.directory import LogDirectory, LogDirFailed
from headrace.log.filenames import PARTITION_METADATA, directory_name, stray_directory_name
from headrace.log.log import Log
from headrace.log.log_set import LogSet
from headrace.log.recovery import NO_TOPIC_ID, LogDamaged, create_log, open_log
from headrace.log.reindexing import Reindexing


class LogOpening:
    """Opens the logs of one broker. See the module."""

    def __init__(self, logs: LogSet, reindexing: Reindexing) -> None:
        self._set = logs
        self._reindexing = reindexing
        self._random = logs.env.entropy.random()
        self._note_flush = logs.flushes.note  # one object for all logs

    def get_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        *,
        directory: str | None = None,
    ) -> Log:
        """Opens the log of a partition, or creates one in `directory` (None: the one with the fewest partitions).

        A folder with another topic id is left from a deleted topic of that name, and is set aside. So is a folder with
        data whose topic id a crash has torn: nothing in it was ever flushed, and it may be of a deleted topic. Raises
        LogDamaged if the log must not be served, LogDirFailed if its disk fails. Safe on worker threads for different
        partitions.
        """
        held, key = self._set, (topic, partition)
        log = held.logs.get(key)
        if log is not None:
            if NO_TOPIC_ID in (topic_id, log.topic_id) or topic_id == log.topic_id:
                return log
            # A worker was late and remade the folder of a topic that had been deleted; the name has a new topic now.
            delete(held, key)
            log = None
        if key in held.damaged:
            # Its recovery has checked it; reading it all again, here on the event loop, finds nothing new.
            raise LogDamaged(held.damaged[key])
        home = next((home for home in held.online() if key in home.found), None)
        if home is None and (lost := next((each for each in held.directories.values() if key in each.found), None)):
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
                home = held.directories[directory] if directory is not None else self._emptiest()
                log = self._create(home, key, topic_id, config)
                if stray:
                    log.replaces_stray(stray)
        except LogDamaged as damage:
            held.damaged[key] = damage.corrupt
            raise
        except OSError as error:
            if home is None:
                raise  # no directory works any more, and each has been reported
            if is_passing(error):
                raise
            if isinstance(error, FileNotFoundError):
                raise  # this log lacks files; serving it has its directory probed
            held.directory_failed(home.path, error)
            raise LogDirFailed(home.path, error) from error
        self.serve(log)
        held.logs[key] = log
        return log

    def serve(self, log: Log) -> None:
        """Makes an open log part of the broker: its segments do not roll all at once, and it asks for flushes."""
        log.serve(roll_jitter_ms=self._jitter(log.config), on_flush_due=self._note_flush)

    def _jitter(self, config: TopicConfig) -> int:
        jitter_ms = min(config.segment_jitter_ms, config.roll_ms)
        return self._random.randrange(jitter_ms) if jitter_ms else 0

    def _open(self, home: LogDirectory, key: TopicPartition, path: str, config: TopicConfig) -> Log:
        log = open_log(
            self._set.resources,
            path,
            key,
            config,
            clean=home.clean,
            recovery_point=home.recovery_points.get(key, 0),
            log_start_offset=home.log_starts.get(key, 0),
            now_ms=self._set.env.clock.now_ms(),
            producers=self._set.new_producers(),
        )
        self._reindexing.add(log)
        return log

    def _may_be_named(self, log: Log) -> bool:
        """Returns whether a log may take any topic id: it is empty, or older than topic ids."""
        has_file = self._set.env.disk.exists(f"{log.directory}/{PARTITION_METADATA}")
        return log.topic_id == NO_TOPIC_ID and not (has_file and log.end_offset)

    def _name(self, log: Log, topic_id: bytes) -> None:
        """Writes the topic id durably: the log's data may be durable, and the next start must not take it for another
        topic's."""
        path = f"{log.directory}/{PARTITION_METADATA}"
        self._set.env.disk.write_file_atomically(path, encode_partition_metadata(topic_id))
        log.named(topic_id)

    def _settle_renames(self, key: TopicPartition) -> None:
        """No power loss brings back what lay here under the name of a partition that is about to be made: it may be in
        another directory, and longer. Raises OSError where that may pass."""
        for home in self._set.online():
            try:
                home.sync_renames_of(key)
            except OSError as error:
                if is_passing(error):
                    raise
                self._set.directory_failed(home.path, error)

    def _create(self, home: LogDirectory, key: TopicPartition, topic_id: bytes, config: TopicConfig) -> Log:
        path = f"{home.path}/{directory_name(*key)}"
        disk = self._set.env.disk
        home.begin(key)
        disk.make_dirs(path)
        disk.write_file(f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
        log = create_log(
            self._set.resources,
            path,
            key,
            config,
            topic_id=topic_id,
            now_ms=self._set.env.clock.now_ms(),
            producers=self._set.new_producers(),
        )
        home.add(key, path)
        return log

    def _emptiest(self) -> LogDirectory:
        online = self._set.online()
        cordoned = set(self._set.config.cordoned_log_dirs)
        candidates = [home for home in online if home.path not in cordoned and "*" not in cordoned] or online
        if not candidates:
            raise self._set.first_failure()
        return min(candidates, key=lambda home: home.partitions)

    def _set_aside(self, home: LogDirectory, key: TopicPartition, log: Log) -> str:
        """Renames a folder that belongs to a topic that is gone; returns its new path."""
        log.release()
        new = f"{home.path}/{stray_directory_name(*key, self._set.env.entropy.uuid())}"
        with log.lock:
            log.rename_folder(new)
        home.forget(key)
        return new
