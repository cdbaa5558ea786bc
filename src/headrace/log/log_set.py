"""The open logs of a broker, their directories, and the objects that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from headrace.config import BrokerConfig
from headrace.env import Environment
from headrace.env.disk import is_passing
from headrace.log.checkpoints import TopicPartition
from headrace.log.directory import LogDirectory, LogDirFailed
from headrace.log.log import Log
from headrace.log.producers import Producers
from headrace.log.recovery_report import LogCorrupt
from headrace.log.removal import Removal
from headrace.log.resources import Resources
from headrace.log.schedule import FlushSchedule
from headrace.log.state import LogState


class LogSet:
    """The logs of one broker. `logs` gets new entries from workers: iterate over a copy."""

    def __init__(self, env: Environment, config: BrokerConfig, directories: Sequence[str]) -> None:
        self.env = env
        self.config = config
        files_max = min(config.log_open_segments_max, env.disk.held_open_max())
        self.resources = Resources(env.disk, env.lock, files_max)
        self.directories = {path: LogDirectory(env.disk, path, env.lock()) for path in directories}
        self.logs: dict[TopicPartition, Log] = {}
        self.future_logs: dict[TopicPartition, Log] = {}
        """The copies of logs that are being moved to another directory."""
        self.damaged: dict[TopicPartition, LogCorrupt] = {}
        """The partitions whose logs must not be served."""
        self.flushes = FlushSchedule(env.clock)
        self.removal = Removal(env.disk, env.clock)
        self.high_watermark: Callable[[TopicPartition], int | None] = lambda _: None
        """The high watermark of a partition; None: the end of its log is used."""

    def configure(self, config: BrokerConfig) -> None:
        """Applies another configuration."""
        self.config = config

    def watch_high_watermarks(self, of: Callable[[TopicPartition], int | None]) -> None:
        """Sets where high watermarks come from, for checkpoints and retention; None means the end of the log."""
        self.high_watermark = of

    def online(self) -> list[LogDirectory]:
        """The directories that work."""
        return [directory for directory in self.directories.values() if directory.failure is None]

    def first_failure(self) -> LogDirFailed:
        """The error to raise if no directory works."""
        first = next(iter(self.directories.values()))
        return LogDirFailed(first.path, first.failure)

    def directory_of(self, log: Log) -> LogDirectory:
        """The log directory that holds a log."""
        return self.directories[log.directory.rpartition("/")[0]]

    def logs_in(self, directory: str) -> list[Log]:
        """The open logs (future ones too) of a log directory."""
        every = [*self.logs.values(), *self.future_logs.values()]
        return [log for log in every if log.directory.rpartition("/")[0] == directory]

    def __iter__(self) -> Iterator[Log]:
        """Iterates over a copy of the open logs: workers may open more meanwhile."""
        return iter(list(self.logs.values()))

    def find_open(self, state: LogState) -> Log | None:
        """The open log with that state."""
        log = self.logs.get(state.topic_partition)
        return log if log is not None and log.state is state else None

    def new_producers(self) -> Producers:
        """Empty producers, with the bounds that the configuration sets."""
        return Producers(
            expiration_ms=self.config.producer_id_expiration_ms,
            producers_max=self.config.producer_ids_max_per_partition,
        )

    def put_offline(self, log: Log) -> None:
        """Takes a log out of use. Its files stay where they are, for the next start."""
        (self.future_logs if log.is_future else self.logs).pop(log.topic_partition, None)
        self.flushes.forget(log)
        log.release()

    def directory_failed(self, directory: str, error: OSError) -> list[TopicPartition]:
        """Takes a log directory out of use; returns the partitions that go offline with it."""
        self.directories[directory].fail(error)
        gone = self.logs_in(directory)
        for log in gone:
            self.put_offline(log)
        return [log.topic_partition for log in gone if not log.is_future]

    def write_checkpoint(self, home: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes a checkpoint; an error that says nothing about the disk leaves the old one. Raises LogDirFailed."""
        try:
            home.write(name, offsets)
        except OSError as error:
            if not is_passing(error):
                raise LogDirFailed(home.path, error) from error
