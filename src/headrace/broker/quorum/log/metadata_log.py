"""The metadata log on disk: `__cluster_metadata-0` with its snapshots and quorum-state.

Reading gives the image; appending stamps offsets and the leader's epoch; nothing is known to anyone before `sync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.quorum.log.proposals import batches_of
from headrace.broker.quorum.log.recovery_point import RecoveryPoint
from headrace.broker.quorum.log.snapshot_files import CANNOT_READ, SnapshotContent, SnapshotFiles
from headrace.broker.quorum.voters import Member
from headrace.broker.storage.storage_format import StorageError
from headrace.env import Disk, Lock, LogSink
from headrace.log.log import Log
from headrace.log.read_results import OutOfRange
from headrace.log.segment import Segment
from headrace.metadata.bootstrap import BOOTSTRAP_FILE_NAME
from headrace.metadata.delta import InconsistentMetadataError
from headrace.metadata.framing import decode_record
from headrace.metadata.image import ClusterImage
from headrace.metadata.replay import Replay
from headrace.raft import control
from headrace.raft.control import ControlRecord
from headrace.raft.log_view import LogView
from headrace.raft.messages import Entries, Position
from headrace.raft.quorum_state import QuorumState, QuorumStateError, decode_quorum_state, encode_quorum_state
from headrace.raft.voter_set import NOT_IN_LOG, VoterHistory, VoterSet
from headrace.wire.batch import MAGIC, iter_headers, iter_whole_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.log.producers import Origin

QUORUM_STATE_FILE = "quorum-state"
EMPTY: Final = Position(0, 0)
_READ_BYTES = 4 * 1024 * 1024


class NoRoomError(OSError):
    """A disk without room, or a process without descriptors or memory: nothing was written of a batch."""


@dataclass(slots=True)
class LoadedMetadata:
    """What a metadata directory holds: the image, and what its control records say of the quorum."""

    image: ClusterImage
    sets: VoterHistory
    """Who votes; at first whom the settings name, at kraft.version 0."""
    in_transaction: bool = False
    last_epoch: int = 0
    snapshot: Position = EMPTY
    """The end of the newest snapshot."""
    start: Position = EMPTY
    """Where the log begins: with its first record, or where the oldest snapshot ends."""
    epochs: list[Position] = field(default_factory=list)
    """The epochs of the log from `start` on, with the first offset of each."""
    log_bytes: int = 0

    def take(self, content: SnapshotContent) -> None:
        """Begins with a snapshot."""
        self.snapshot = self.start = content.end
        self.image = content.image
        if content.voters is not None:
            self.sets = VoterHistory(content.voters, content.end.offset - 1 if content.end.offset > 0 else NOT_IN_LOG)

    def view(self, end_offset: int) -> LogView:
        """The shape of the log, for the quorum."""
        return LogView(self.start.offset, end_offset, self.epochs, self.start.epoch, self.snapshot)


class MetadataLog:
    """One metadata directory, opened: its path, its log, and what lies beside it."""

    def __init__(self, disk: Disk, directory: str, log: Log, point: RecoveryPoint, guard: Lock) -> None:
        """`guard` is a new lock: nobody says that the log is synced up to where another thread has just cut it."""
        self.disk = disk
        self.directory = directory
        self.log = log
        self.point = point
        self.files = SnapshotFiles(disk, directory)
        self.root = directory.rpartition("/")[0]
        self._guard = guard

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log.end_offset

    def load(self, cluster_id: str, member: Member) -> LoadedMetadata:
        """Reads the newest snapshot and the log behind it. `member` names the voters of the settings. Unless it votes
        alone, the image is the snapshot's: how far the log is committed, its leader says.

        Raises StorageError where they do not join, or hold what cannot be read: metadata is never guessed.
        """
        self.files.remove_parts()
        snapshots = self.files.ends()
        loaded = LoadedMetadata(ClusterImage(cluster_id=cluster_id), VoterHistory(VoterSet(member.voters, 0)))
        if snapshots:
            loaded.take(self.files.read(snapshots[-1], cluster_id))
        end = loaded.snapshot
        if self.log.log_start_offset > end.offset:
            raise StorageError(
                f"metadata in {self.directory} is incomplete: the log starts at offset {self.log.log_start_offset}, "
                f"but the newest snapshot ends at {end.offset}"
            )
        if self.log.log_start_offset > 0:
            loaded.start = next(each for each in snapshots if each.offset >= self.log.log_start_offset)
        if not self._joins(end):
            # A crash came between a snapshot of the leader's and the end of the log that it takes the place of. A log
            # that ends below it may be one that was emptied: what its recovery point says of that stays.
            if self.log.end_offset >= end.offset:
                self.point.lower(end.offset)
            self.log.truncate_fully_and_start_at(end.offset)
            loaded.start = end
        controls = self._scan(loaded)
        loaded.last_epoch = loaded.epochs[-1].epoch if loaded.epochs else loaded.start.epoch
        for base_offset, records in controls:
            loaded.sets.note_all(base_offset, records)
        if member.is_alone_in(loaded.sets.newest):
            self._replay_log(loaded)
        return loaded

    def _joins(self, snapshot: Position) -> bool:
        """Whether the log has what the newest snapshot ends with, or begins behind it. Raises StorageError, OSError."""
        if self.log.end_offset < snapshot.offset:
            return False
        if self.log.log_start_offset == snapshot.offset:
            return True
        last = snapshot.offset - 1
        try:
            _, header = next(iter_headers(self._read(last, self.log.end_offset, 1)))
        except CANNOT_READ as error:
            raise self._damaged(last, error) from error
        return header.partition_leader_epoch == snapshot.epoch

    def _scan(self, loaded: LoadedMetadata) -> list[tuple[int, list[ControlRecord | None]]]:
        """Takes in the epochs of the log from its start on, and its bytes behind the snapshot. Returns the control
        records behind the snapshot, each batch with its first offset. Raises StorageError where epochs fall, OSError.
        """
        controls: list[tuple[int, list[ControlRecord | None]]] = []
        last, offset = loaded.start.epoch, loaded.start.offset
        while offset < self.log.end_offset:
            try:
                data = self._read(offset, self.log.end_offset, _READ_BYTES)
                for at, header in iter_headers(data):
                    epoch = header.partition_leader_epoch
                    if header.last_offset < loaded.start.offset:
                        continue
                    if epoch < last:
                        raise InconsistentMetadataError(f"epoch {epoch} follows epoch {last}")
                    if epoch > last:
                        loaded.epochs.append(Position(epoch, header.base_offset))
                    last, offset = epoch, header.next_offset
                    if header.last_offset >= loaded.snapshot.offset:
                        loaded.log_bytes += header.size
                        if header.is_control:
                            controls.append((header.base_offset, control.decode_controls(data, at)))
            except CANNOT_READ as error:
                raise self._damaged(offset, error) from error
        return controls

    def _replay_log(self, loaded: LoadedMetadata) -> None:
        """Takes the log behind the snapshot into the image."""
        replay, offset, end = Replay(loaded.image), loaded.snapshot.offset, self.log.end_offset
        while offset < end:
            offset = self.apply(replay, offset, end, _READ_BYTES, end - offset)
        loaded.in_transaction = replay.in_transaction
        loaded.image = replay.finish()

    def _read(self, offset: int, end: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on. Raises StorageError, OSError."""
        result = self.log.reader.read(offset, max_bytes=max_bytes, max_offset=end, min_one=True)
        if isinstance(result, OutOfRange) or result.slice is None or result.slice.size == 0:
            raise StorageError(f"metadata log {self.directory} cannot be read at offset {offset}: {result}")
        return _whole(result.slice.file.read(result.slice.position, result.slice.size))

    def _damaged(self, offset: int, error: Exception) -> StorageError:
        return StorageError(f"metadata log {self.directory} is damaged after offset {offset - 1}: {error}")

    def apply(self, replay: Replay, offset: int, end: int, max_bytes: int, max_records: int) -> int:
        """Replays batches from an offset on, none that ends beyond `end`. Returns the offset behind them.

        A batch is whole or not at all in an image: of one with more than `max_records` the next calls take in the rest,
        and return `offset` until it is there. Raises StorageError where they cannot be read, OSError.
        """
        try:
            if replay.is_inside_batch:
                replay.go_on(max_records)
                return offset if replay.is_inside_batch else replay.offset + 1
            data = self._read(offset, end, max_bytes)
            reached = offset
            for at, header in iter_headers(data):
                if header.last_offset < offset:
                    continue
                is_enough = reached > offset and header.next_offset - offset > max_records
                if is_enough or header.next_offset > end:
                    break
                replay.advance(
                    offset=header.last_offset, epoch=header.partition_leader_epoch, timestamp_ms=header.max_timestamp
                )
                if not header.is_control:
                    replay.begin_batch([record.value or b"" for record in decode_batch(data, at)])
                    replay.go_on(max_records)
                    if replay.is_inside_batch:
                        break
                reached = header.next_offset
            return reached
        except CANNOT_READ as error:
            raise self._damaged(offset, error) from error

    def append(self, entries: Entries, now_ms: int) -> int:
        """Writes entries at the end, as batches; returns their bytes. Raises NoRoomError."""
        assert entries.base_offset == self.log.end_offset, "the machine knows where the log ends"
        origin: Origin = "replica" if isinstance(entries.payload, bytes) else "controller"
        size = 0
        for data in batches_of(entries, now_ms):
            result = self.log.writer.append(data, leader_epoch=entries.epoch, now_ms=now_ms, origin=origin)
            if result.error is ErrorCode.KAFKA_STORAGE_ERROR:
                raise NoRoomError(result.error_message)
            assert not result.error, f"the metadata log refused a batch: {result.error.name} {result.error_message}"
            size += len(data)
        return size

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
        path = f"{self.root}/{BOOTSTRAP_FILE_NAME}"
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
        except CANNOT_READ as error:
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

    def sync(self) -> None:
        """Returns when all that was appended is on stable storage, the names of new files included. Raises OSError."""
        self.log.flush()
        self.log.flushing.sync_names()
        with self._guard:
            self.point.reached(self.log.recovery_point)

    def sync_all(self) -> None:
        """The same, and how far it is synced is known even after a power cut. Raises OSError."""
        self.sync()
        with self._guard:
            self.point.keep(self.log.recovery_point)

    def truncate_to(self, offset: int) -> None:
        """Drops everything from an offset on. Raises OSError."""
        with self._guard:
            self.point.lower(offset)
            self.log.truncate_to(offset)
            self.point.lower(self.log.end_offset)

    def start_at(self, offset: int, now_ms: int) -> None:
        """Drops everything: the log goes on at an offset, where a snapshot ends. Raises OSError."""
        with self._guard:
            self.point.lower(offset)
            self.log.truncate_fully_and_start_at(offset, now_ms=now_ms)

    def close(self, sink: LogSink) -> None:
        """Closes the files.

        A failing disk loses nothing that was acknowledged: the next start reads the log as after a crash.
        """
        try:
            self.log.close()
            self.point.keep(self.log.recovery_point)
        except OSError as error:
            sink.error("metadata log is not closed cleanly", why=error)
        self.point.close()

    def bytes_held(self) -> int:
        """Bytes in the segments of the log."""
        return sum(segment.size for segment in self.log.segments)

    def take_out_before(self, end_offset: int, now_ms: int) -> list[Segment]:
        """Ends the log before `end_offset`, where a snapshot ends: the segments that it replaces. Raises OSError."""
        if end_offset <= self.log.log_start_offset:
            return []
        self.log.writer.roll(now_ms=now_ms)
        self.log.delete_records_before(end_offset)
        return self.log.maybe_delete_old_segments(now_ms)

    def remove(self, replaced: Sequence[Segment], end_offset: int) -> None:
        """Removes segments that were taken out, and the snapshots before `end_offset`. On a worker. Raises OSError."""
        for segment in replaced:
            segment.remove_files()
        self.files.remove_before(end_offset)


def _whole(data: bytes) -> bytes:
    """Drops a batch at the end that is there only in part: the next read begins with it.

    A damaged batch stays, for the caller's check to find.
    """
    end = 0
    for at, header in iter_whole_headers(data):
        if header.magic != MAGIC:
            break
        end = at + header.size
    return data[:end] if end else data
