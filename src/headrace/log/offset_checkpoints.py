"""A broker's offset checkpoints: recovery points, log starts and high watermarks, one file of each per directory."""

from __future__ import annotations

from headrace.log.checkpoints import TopicPartition
from headrace.log.directory import LogDirectory
from headrace.log.filenames import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from headrace.log.log import Log
from headrace.log.log_set import LogSet
from headrace.log.verdicts import LogsLost, guarded


class OffsetCheckpoints:
    """Writes the checkpoints. See the module."""

    def __init__(self, logs: LogSet) -> None:
        self.held = logs

    def write_recovery_points(self) -> None:
        """Writes the recovery points of logs whose indexes up to there can be synced. Raises LogDirFailed, and LogsLost
        in the end."""
        lost: LogsLost | None = None
        for home in self.held.online():
            logs = [log for log in self.held.logs_in(home.path) if not log.is_future]
            points = {log.topic_partition: log.recovery_point for log in logs}
            moved = [
                log for log in logs if home.recovery_points.get(log.topic_partition) != points[log.topic_partition]
            ]
            unsafe = set(moved)

            def sync(log: Log, unsafe: set[Log] = unsafe) -> None:
                log.flushing.sync_indexes()
                unsafe.discard(log)

            try:
                guarded(self.held, moved, sync)
            except LogsLost as failed:
                lost = failed
            for log in logs:
                if log not in unsafe:  # else its indexes could not be written
                    self._note(log, home, home.recovery_points, points[log.topic_partition])
            self.held.write_checkpoint(home, RECOVERY_POINTS, home.recovery_points)
        if lost is not None:
            raise lost

    def distrust_from(self, log: Log, offset: int) -> None:
        """Writes a checkpoint in which a log is safe at most up to an offset; the next one may raise it. Raises
        OSError."""
        home, key = self.held.directory_of(log), log.topic_partition
        if home.recovery_points.get(key, 0) > offset:
            home.recovery_points[key] = offset
            self.held.write_checkpoint(home, RECOVERY_POINTS, home.recovery_points)

    def forget_start(self, log: Log) -> None:
        """Removes a log's start from the checkpoint if that would move its start up."""
        home, key = self.held.directory_of(log), log.topic_partition
        if home.log_starts.get(key, 0) > log.log_start_offset:
            home.log_starts.pop(key)
            self.held.write_checkpoint(home, LOG_STARTS, home.log_starts)

    def write_log_starts(self) -> None:
        """Writes where each log starts, where its first segment does not say so. Raises LogDirFailed."""
        for home in self.held.online():
            for log in self.held.logs_in(home.path):
                start = log.log_start_offset
                self._note(log, home, home.log_starts, start if start > log.bases[0] else None)
            self.held.write_checkpoint(home, LOG_STARTS, home.log_starts)

    def write_high_watermarks(self) -> None:
        """Writes how far each partition is replicated. Raises LogDirFailed."""
        for home in self.held.online():
            for log in self.held.logs_in(home.path):
                if not log.is_future:
                    mark = self.held.high_watermark(log.topic_partition)
                    self._note(log, home, home.high_watermarks, log.end_offset if mark is None else mark)
            self.held.write_checkpoint(home, HIGH_WATERMARKS, home.high_watermarks)

    def _note(self, log: Log, home: LogDirectory, offsets: dict[TopicPartition, int], offset: int | None) -> None:
        """Takes an offset of a log down for a checkpoint (None: takes it out), unless the log was deleted meanwhile, or
        has moved out of the directory: the next log of that name must not be taken for it."""
        key = log.topic_partition
        with log.lock:  # held by who moves or removes it
            if self.held.logs.get(key) is not log or self.held.directory_of(log) is not home:
                return
            if offset is None:
                offsets.pop(key, None)
            else:
                offsets[key] = offset
