"""One of a broker's log directories: its lock, its checkpoints, and its partitions."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from headrace.env import Disk, DiskLock, Lock
from headrace.env.disk import is_passing
from headrace.log.checkpoints import (
    CheckpointError,
    TopicPartition,
    decode_clean_shutdown,
    encode_clean_shutdown,
    encode_offsets,
    read_offsets,
)
from headrace.log.filenames import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    CLUSTER_METADATA_TOPIC,
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    PROBE,
    RECOVERY_POINTS,
    parse_directory_name,
)


class LogDirFailed(OSError):
    """The disk under a log directory failed; its partitions are offline."""

    def __init__(self, directory: str, cause: OSError | None = None) -> None:
        super().__init__(f"log directory {directory} failed: {cause}")
        self.directory = directory


class LogDirLocked(Exception):
    """Another broker (ours or Kafka's) uses a log directory."""


class LogDirectory:
    """One log directory of a broker. `failure` is set once its disk has failed; it stays out until the next start."""

    def __init__(self, disk: Disk, path: str, write_lock: Lock) -> None:
        self._disk = disk
        self.path = path
        self.failure: OSError | None = None
        self.clean = False
        self.has_lost = False
        """Whether a log here lacks files: the next start checks all of them closely."""
        self.broker_epoch = -1
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.found: dict[TopicPartition, str] = {}
        self.found_future: dict[TopicPartition, str] = {}
        self.doomed: list[str] = []
        self.partitions = 0
        self.forgotten: set[TopicPartition] = set()
        """Deleted partitions that checkpoints on disk may still have."""
        self._renamed: set[TopicPartition] = set()
        """Partitions with renamed folders, which a power loss may undo."""
        self._lock: DiskLock | None = None
        self._written: dict[str, bytes] = {}
        self._write_lock = write_lock

    def lock(self) -> None:
        """Locks the directory for this broker. Raises LogDirLocked, OSError."""
        self._lock = self._disk.lock(f"{self.path}/{LOCK}")
        if self._lock is None:
            raise LogDirLocked(
                f"log directory {self.path} is in use by another broker: stop it, or give this one other log.dirs"
            )

    def probe(self) -> OSError | None:
        """Writes, syncs and reads a file; returns why the directory cannot be used, or None. For a worker.

        The lock file must still exist: if a file system was unmounted, the mount point is another folder.
        """
        disk, path = self._disk, f"{self.path}/{PROBE}"
        try:
            disk.size(f"{self.path}/{LOCK}")
            disk.write_file_atomically(path, PROBE.encode())
            if disk.read_file(path) != PROBE.encode():
                return OSError(errno.EIO, "what was written is not what is read", path)
            disk.remove(path)
        except OSError as error:
            return None if is_passing(error) else error
        return None

    def unlock(self) -> None:
        """Releases the directory to other brokers."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def load(self) -> None:
        """Reads the checkpoints and the names of the partitions. Raises OSError, CheckpointError."""
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.clean = self._disk.exists(marker)
        if self.clean:
            self.broker_epoch = decode_clean_shutdown(self._disk.read_file(marker))
            self._disk.remove(marker)
            # From here on a crash must not find the marker again.
            self._disk.sync_directory(self.path)
        self.recovery_points = read_offsets(self._disk, f"{self.path}/{RECOVERY_POINTS}")
        self.log_starts = read_offsets(self._disk, f"{self.path}/{LOG_STARTS}")
        self.high_watermarks = read_offsets(self._disk, f"{self.path}/{HIGH_WATERMARKS}")
        self.cleaner_offsets = read_offsets(self._disk, f"{self.path}/{CLEANER_OFFSETS}")
        for name in self._disk.list(self.path):
            self._take(name)
        self.partitions = len(self.found)

    def _take(self, name: str) -> None:
        parsed = parse_directory_name(name)
        if parsed is None:
            return
        topic, partition, state = parsed
        if topic == CLUSTER_METADATA_TOPIC:
            return
        path = f"{self.path}/{name}"
        if state == DELETE_DIRECTORY:
            self.doomed.append(path)
        elif state == FUTURE_DIRECTORY:
            self.found_future[topic, partition] = path
        elif not state and self._disk.is_dir(path):
            self.found[topic, partition] = path

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes a checkpoint, unless the file says the same already. Raises OSError."""
        with self._write_lock:
            data = encode_offsets(dict(offsets))
            if self._written.get(name) != data:
                renamed = list(self._renamed)
                self._disk.write_file_atomically(f"{self.path}/{name}", data)
                self._written[name] = data
                self._renamed.difference_update(renamed)  # that has synced this directory

    def forget(self, key: TopicPartition) -> None:
        """Removes a deleted partition from the checkpoints: the next one of that name must not inherit them."""
        if self.found.pop(key, None) is not None:
            self.partitions -= 1
            self._renamed.add(key)
        if any(key in offsets for offsets in (self.recovery_points, self.log_starts, self.high_watermarks)):
            self.forgotten.add(key)
        for offsets in (self.recovery_points, self.log_starts, self.high_watermarks, self.cleaner_offsets):
            offsets.pop(key, None)

    def fail(self, error: OSError) -> None:
        """Takes the directory out of use after a disk error; the first error is kept."""
        if self.failure is None:
            self.failure = error

    def add(self, key: TopicPartition, path: str) -> None:
        """Adds a partition."""
        self.found[key] = path
        self.partitions += 1

    def lacks_files(self) -> None:
        """Notes that a log in here lacks files."""
        self.has_lost = True

    def begin(self, key: TopicPartition) -> None:
        """Prepares a new partition: no checkpoint on disk may have an earlier one's offsets. Raises OSError."""
        self.forget(key)  # a crash may have come after the end of a topic and before its checkpoint
        if key in self.forgotten:
            gone = set(self.forgotten)
            self.write(RECOVERY_POINTS, self.recovery_points)
            self.write(LOG_STARTS, self.log_starts)
            self.write(HIGH_WATERMARKS, self.high_watermarks)
            self.forgotten -= gone

    def sync_renames_of(self, key: TopicPartition) -> None:
        """Ensures that no power loss restores the earlier folder of a partition. Raises OSError."""
        if key in self._renamed:
            renamed = list(self._renamed)
            self._disk.sync_directory(self.path)
            self._renamed.difference_update(renamed)

    def mark_clean(self, broker_epoch: int) -> None:
        """Notes that every log in here was closed. Raises OSError."""
        self._disk.write_file_atomically(f"{self.path}/{CLEAN_SHUTDOWN}", encode_clean_shutdown(broker_epoch))


__all__ = ["CheckpointError", "LogDirLocked", "LogDirectory"]
