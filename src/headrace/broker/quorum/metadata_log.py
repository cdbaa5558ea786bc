"""The metadata log on disk: `__cluster_metadata-0` with its snapshots and quorum-state.

Reading gives the image; appending stamps offsets and the leader's epoch; nothing is known to anyone before `sync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.broker.storage.storage_format import StorageError, parse_snapshot_name, snapshot_bytes, snapshot_name
from headrace.env import Disk
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.metadata.bootstrap import BOOTSTRAP_FILE_NAME
from headrace.metadata.delta import InconsistentMetadataError
from headrace.metadata.framing import MetadataRecordError, decode_record, encode_record, record_version
from headrace.metadata.image import ClusterImage
from headrace.metadata.replay import Replay
from headrace.metadata.snapshot import image_records
from headrace.raft import control
from headrace.raft.control import ControlRecord, ControlType, Voter
from headrace.raft.messages import Position
from headrace.raft.quorum_state import QuorumState, QuorumStateError, decode_quorum_state, encode_quorum_state
from headrace.wire.batch import BatchHeader, iter_headers
from headrace.wire.primitives import DecodeError
from headrace.wire.records import CorruptBatch, decode_batch

QUORUM_STATE_FILE = "quorum-state"
_READ_BYTES = 4 * 1024 * 1024
_CANNOT_READ = (CorruptBatch, DecodeError, MetadataRecordError, InconsistentMetadataError)


@dataclass(slots=True)
class LoadedMetadata:
    """What a metadata directory holds: the image, and what its control records say of the quorum."""

    image: ClusterImage
    in_transaction: bool = False
    last_epoch: int = 0
    kraft_version: int = 0
    voters: tuple[Voter, ...] = ()
    voters_are_in_log: bool = False
    snapshot_end: int = 0
    snapshot_epoch: int = 0
    epochs: list[Position] = field(default_factory=list)
    """The epochs of the log behind the snapshot, with the first offset of each."""
    log_bytes: int = 0

    def note(self, record: ControlRecord) -> None:
        """Takes in a control record that tells of the quorum."""
        if record.type is ControlType.KRAFT_VERSION:
            self.kraft_version = record.message.kraft_version
        elif record.type is ControlType.KRAFT_VOTERS:
            self.voters = control.voters_of(record.message)


class MetadataLog:
    """One metadata directory, opened: its path, its log, and what lies beside it."""

    def __init__(self, disk: Disk, directory: str, log: Log) -> None:
        self.disk = disk
        self.directory = directory
        self.log = log

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log.end_offset

    def snapshots(self) -> list[tuple[int, int]]:
        """(end offset, epoch) of every finished snapshot, oldest first."""
        names = (parse_snapshot_name(name) for name in self.disk.list(self.directory))
        return sorted(name for name in names if name is not None)

    def load(self, cluster_id: str, *, committed_only: bool = False) -> LoadedMetadata:
        """Reads the newest snapshot and the log behind it. With `committed_only` the image is the snapshot's: how far
        the log is committed, its leader says.

        Raises StorageError where they do not join, or hold what cannot be read: metadata is never guessed.
        """
        loaded = LoadedMetadata(ClusterImage(cluster_id=cluster_id))
        snapshots = self.snapshots()
        if snapshots:
            self._load_snapshot(*snapshots[-1], loaded)
        start = loaded.snapshot_end
        if self.log.log_start_offset > start:
            raise StorageError(
                f"metadata in {self.directory} is incomplete: the log starts at offset {self.log.log_start_offset}, "
                f"but the newest snapshot ends at {start}"
            )
        if self.log.end_offset < start:
            self.log.truncate_fully_and_start_at(start)
        self._load_log(start, loaded, committed_only)
        return loaded

    def _load_snapshot(self, end_offset: int, epoch: int, loaded: LoadedMetadata) -> None:
        path = f"{self.directory}/{snapshot_name(end_offset, epoch)}"
        replay = Replay(loaded.image)
        timestamp_ms, complete = 0, False
        try:
            data = self.disk.read_file(path)
            for at, header in iter_headers(data):
                for record in decode_batch(data, at):
                    if not header.is_control:
                        replay.apply(decode_record(record.value or b""))
                    elif (noted := control.decode_control(record.key or b"", record.value or b"")) is not None:
                        loaded.note(noted)
                        if noted.type is ControlType.SNAPSHOT_HEADER:
                            timestamp_ms = noted.message.last_contained_log_timestamp
                        complete = complete or noted.type is ControlType.SNAPSHOT_FOOTER
        except _CANNOT_READ as error:
            raise StorageError(f"metadata snapshot {path} cannot be read: {error}") from error
        if not complete:
            raise StorageError(f"metadata snapshot {path} has no footer: it was not finished")
        replay.advance(offset=end_offset - 1, epoch=epoch, timestamp_ms=timestamp_ms)
        loaded.image = replay.finish()
        loaded.last_epoch = epoch
        loaded.snapshot_end, loaded.snapshot_epoch = end_offset, epoch
        loaded.voters_are_in_log = end_offset > 0 and bool(loaded.voters)

    def _load_log(self, start: int, loaded: LoadedMetadata, committed_only: bool) -> None:
        replay = None if committed_only else Replay(loaded.image)
        offset, end = start, self.log.end_offset
        while offset < end:
            data = self._read(offset, end, _READ_BYTES)
            loaded.log_bytes += len(data)
            offset = self._load_batches(data, offset, start, replay, loaded)
        if replay is not None:
            loaded.in_transaction = replay.in_transaction
            loaded.image = replay.finish()

    def _read(self, offset: int, end: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on. Raises StorageError, OSError."""
        result = self.log.read(offset, max_bytes=max_bytes, max_offset=end, min_one=True)
        if result.slice is None or result.slice.size == 0:
            raise StorageError(f"metadata log {self.directory} cannot be read at offset {offset}: {result.error.name}")
        return result.slice.file.read(result.slice.position, result.slice.size)

    def _load_batches(self, data: bytes, offset: int, start: int, replay: Replay | None, loaded: LoadedMetadata) -> int:
        try:
            for at, header in iter_headers(data):
                if header.last_offset < start:
                    continue
                if header.is_control:
                    for record in decode_batch(data, at):
                        noted = control.decode_control(record.key or b"", record.value or b"")
                        if noted is not None:
                            loaded.note(noted)
                            loaded.voters_are_in_log |= noted.type is ControlType.KRAFT_VOTERS
                if header.partition_leader_epoch < loaded.last_epoch:
                    raise InconsistentMetadataError(
                        f"epoch {header.partition_leader_epoch} follows epoch {loaded.last_epoch}"
                    )
                if header.partition_leader_epoch > loaded.last_epoch:
                    loaded.epochs.append(Position(header.partition_leader_epoch, header.base_offset))
                loaded.last_epoch = header.partition_leader_epoch
                if replay is not None:
                    _replay(replay, data, at, header)
                offset = header.next_offset
        except _CANNOT_READ as error:
            raise self._damaged(offset, error) from error
        return offset

    def _damaged(self, offset: int, error: Exception) -> StorageError:
        return StorageError(f"metadata log {self.directory} is damaged after offset {offset - 1}: {error}")

    def apply(self, replay: Replay, offset: int, end: int, max_bytes: int) -> None:
        """Replays batches from an offset on, at least one of them, and none that ends beyond `end`.

        Raises StorageError where they cannot be read, OSError.
        """
        try:
            data = self._read(offset, end, max_bytes)
            for at, header in iter_headers(data):
                if header.last_offset >= offset and header.next_offset <= end:
                    _replay(replay, data, at, header)
        except _CANNOT_READ as error:
            raise self._damaged(offset, error) from error

    def batches(self, offset: int, end: int, max_bytes: int) -> bytes:
        """The whole batches from an offset on, as far as they end at or below `end`: at least one, and then as many as
        `max_bytes` hold. Raises StorageError, OSError. On a worker."""
        data = self._read(offset, end, max_bytes)
        size = 0
        for at, header in iter_headers(data):
            if header.next_offset > end:
                break
            size = at + header.size
        return data[:size]

    def read_bootstrap(self) -> list[Any] | None:
        """The records that formatting left for a fresh log, None where there are none. Raises StorageError."""
        path = f"{self.directory.rpartition('/')[0]}/{BOOTSTRAP_FILE_NAME}"
        if not self.disk.exists(path):
            return None
        data = self.disk.read_file(path)
        try:
            return [
                decode_record(record.value or b"")
                for at, header in iter_headers(data)
                if not header.is_control
                for record in decode_batch(data, at)
            ]
        except _CANNOT_READ as error:
            raise StorageError(f"{path} cannot be read: {error}") from error

    def read_quorum_state(self) -> QuorumState | None:
        """The last election, None before the first. Raises StorageError."""
        path = f"{self.directory}/{QUORUM_STATE_FILE}"
        if not self.disk.exists(path):
            return None
        try:
            return decode_quorum_state(self.disk.read_file(path))
        except QuorumStateError as error:
            raise StorageError(f"{path}: {error}") from error

    def write_quorum_state(self, state: QuorumState, data_version: int) -> None:
        """Remembers an election, on disk when it returns."""
        self.disk.write_file_atomically(
            f"{self.directory}/{QUORUM_STATE_FILE}", encode_quorum_state(state, data_version)
        )

    def write_snapshot(self, image: ClusterImage, kraft_version: int, voters: tuple[Voter, ...], now_ms: int) -> int:
        """Writes a snapshot of an image; safe on a worker thread. Returns its size in bytes."""
        header = [control.snapshot_header(image.timestamp_ms)]
        if kraft_version > 0:
            header += [control.kraft_version(kraft_version), control.voters_record(voters)]
        level = image.features.metadata_version
        values = [encode_record(record, record_version(record, level)) for record in image_records(image)]
        content = snapshot_bytes(header, values, epoch=image.epoch, now_ms=now_ms)
        name = snapshot_name(image.offset + 1, image.epoch)
        self.disk.write_file_atomically(f"{self.directory}/{name}", content)
        return len(content)

    def sync(self) -> None:
        """Returns when all that was appended is on stable storage, the names of new files included. Raises OSError."""
        self.log.flush()
        self.log.sync_names()

    def take_out_before(self, end_offset: int, now_ms: int) -> list[Segment]:
        """Ends the log before `end_offset`, where a snapshot ends: the segments that it replaces. Raises OSError."""
        self.log.roll(now_ms=now_ms)
        self.log.delete_records_before(end_offset)
        return self.log.maybe_delete_old_segments(now_ms)

    def remove(self, replaced: Sequence[Segment], end_offset: int) -> None:
        """Removes segments that were taken out, and the snapshots before `end_offset`. On a worker. Raises OSError."""
        for segment in replaced:
            segment.remove_files()
        for offset, epoch in self.snapshots():
            if offset < end_offset:
                self.disk.remove(f"{self.directory}/{snapshot_name(offset, epoch)}")


def _replay(replay: Replay, data: bytes, at: int, header: BatchHeader) -> None:
    if not header.is_control:
        for record in decode_batch(data, at):
            replay.apply(decode_record(record.value or b""))
    replay.advance(offset=header.last_offset, epoch=header.partition_leader_epoch, timestamp_ms=header.max_timestamp)
