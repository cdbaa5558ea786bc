"""The snapshots in a metadata directory, as files: read, written, handed out in pieces and received in pieces.

A file has its name only when it is whole and on stable storage. A received snapshot is in a `.part` until then, a
written one in a `.tmp`; a crash leaves the file, and the next start removes it. Nothing here runs on the event loop but
at a start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.broker.storage.storage_format import StorageError, parse_snapshot_name, snapshot_batches, snapshot_name
from headrace.env import Disk, File
from headrace.metadata.delta import InconsistentMetadataError
from headrace.metadata.framing import MetadataRecordError, decode_record, encode_record, record_version
from headrace.metadata.image import ClusterImage
from headrace.metadata.replay import Replay
from headrace.metadata.snapshot import image_records
from headrace.raft import control
from headrace.raft.control import ControlType
from headrace.raft.events import Piece
from headrace.raft.messages import Position
from headrace.raft.voter_set import VoterSet
from headrace.wire.batch import BATCH_OVERHEAD, check_crc, iter_headers, read_header
from headrace.wire.primitives import DecodeError
from headrace.wire.records import CorruptBatch, decode_batch

CANNOT_READ: Final = (CorruptBatch, DecodeError, MetadataRecordError, InconsistentMetadataError)
"""What reading metadata raises where they are damaged."""
NO_VOTER_RECORDS: Final = VoterSet(kraft_version=0)
WRITE_BYTES: Final = 1024 * 1024
"""The bytes of a snapshot that are written at once, beyond its last batch."""
_PART: Final = ".part"
_WRITTEN: Final = ".tmp"


@dataclass(slots=True)
class SnapshotContent:
    """Holds the content of a snapshot: the image of everything below `end`, and the voters it records."""

    end: Position
    image: ClusterImage
    voter_set: VoterSet = NO_VOTER_RECORDS

    @property
    def voters(self) -> VoterSet | None:
        """Who votes as of its end; None: it does not say so, for the voters are static."""
        return self.voter_set if self.voter_set.voters else None


class SnapshotFiles:
    """The snapshot files of one metadata directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def path(self, end: Position) -> str:
        """The file of the snapshot that ends here."""
        return f"{self._directory}/{snapshot_name(end.offset, end.epoch)}"

    def ends(self) -> list[Position]:
        """The ends of all finished snapshots, oldest first. Raises OSError."""
        names = (parse_snapshot_name(name) for name in self._disk.list(self._directory))
        return [Position(epoch, offset) for offset, epoch in sorted(name for name in names if name is not None)]

    def size(self, end: Position) -> int:
        """Bytes in a snapshot. Raises OSError."""
        return self._disk.size(self.path(end))

    # --- whole

    def read(self, end: Position, cluster_id: str) -> SnapshotContent:
        """What a snapshot holds. Raises StorageError with its file, where it is damaged or not whole, OSError."""
        return self._read(self.path(end), end, cluster_id)

    def _read(self, path: str, end: Position, cluster_id: str) -> SnapshotContent:
        content = SnapshotContent(end, ClusterImage(cluster_id=cluster_id))
        replay = Replay(content.image)
        timestamp_ms, at_end, complete = 0, 0, False
        try:
            data = self._disk.read_file(path)
            for at, header in iter_headers(data):
                if not check_crc(data, at, header):
                    raise CorruptBatch(f"the checksum of the batch at byte {at} is wrong")
                at_end = at + header.size
                if not header.is_control:
                    for record in decode_batch(data, at):
                        replay.apply(decode_record(record.value or b""))
                    continue
                for noted in control.decode_controls(data, at):
                    if noted is None:
                        continue
                    content.voter_set = content.voter_set.noting(noted)
                    if noted.type is ControlType.SNAPSHOT_HEADER:
                        timestamp_ms = noted.message.last_contained_log_timestamp
                    complete = complete or noted.type is ControlType.SNAPSHOT_FOOTER
        except CANNOT_READ as error:
            raise StorageError(f"metadata snapshot {path} cannot be read: {error}") from error
        if not complete or at_end != len(data):
            raise StorageError(f"metadata snapshot {path} has no footer: it was not finished")
        replay.advance(offset=end.offset - 1, epoch=end.epoch, timestamp_ms=timestamp_ms)
        content.image = replay.finish()
        return content

    def last_record_ms(self, end: Position) -> int:
        """The time of the last record that a snapshot holds, by its header; 0 where it does not say. Raises OSError."""
        file = self._disk.open(self.path(end))
        try:
            size = read_header(file.read(0, BATCH_OVERHEAD).ljust(BATCH_OVERHEAD, b"\0")).size
            first = decode_batch(file.read(0, max(size, 0)))[0]
            header = control.decode_control(first.key or b"", first.value or b"")
        except (*CANNOT_READ, IndexError):
            return 0
        finally:
            file.close()
        is_header = header is not None and header.type is ControlType.SNAPSHOT_HEADER
        return int(header.message.last_contained_log_timestamp) if header is not None and is_header else 0

    def write(self, image: ClusterImage, voters: VoterSet, now_ms: int) -> int:
        """Writes a snapshot of an image. Returns its size in bytes. Raises OSError."""
        header = [control.snapshot_header(image.timestamp_ms)]
        if voters.kraft_version > 0:
            header += [control.kraft_version(voters.kraft_version), control.voters_record(voters.voters)]
        level = image.features.metadata_version
        values = (encode_record(record, record_version(record, level)) for record in image_records(image))
        batches = snapshot_batches(header, values, epoch=image.epoch, now_ms=now_ms)
        return self._write(Position(image.epoch, image.offset + 1), batches)

    def _write(self, end: Position, batches: Iterator[bytes]) -> int:
        """A megabyte at a time: what does something to all the bytes in one go keeps the event loop waiting, which
        wants Python's lock too."""
        path, size = self.path(end), 0
        written = path + _WRITTEN
        file = self._disk.open(written, create=True)
        try:
            if file.size():
                file.truncate(0)
            while some := list(_some_of(batches, WRITE_BYTES)):
                file.append(some)
                size += sum(map(len, some))
            self._sync(file)
        except OSError:
            with suppress(OSError):  # a full disk needs the room
                self._disk.remove(written)
            raise
        finally:
            file.close()
        self._disk.rename(written, path)
        self._disk.sync_directory(self._directory)
        return size

    def remove_before(self, offset: int) -> None:
        """Removes the snapshots that end below an offset. Raises OSError."""
        for end in self.ends():
            if end.offset < offset:
                self._disk.remove(self.path(end))

    # --- in pieces

    def piece(self, end: Position, position: int, max_bytes: int) -> tuple[bytes, int]:
        """(bytes of a snapshot from a position on, the size of the whole). Raises FileNotFoundError, OSError."""
        file = self._disk.open(self.path(end))
        try:
            return file.read(position, max_bytes), file.size()
        finally:
            file.close()

    def store(self, piece: Piece, cluster_id: str) -> SnapshotContent | None:
        """Writes what was received; the first piece takes the place of all that was received of another snapshot. The
        last one is on stable storage, and was read back with all before it, before the file has its name: then its
        content is returned.

        Raises StorageError where it is no snapshot, OSError.
        """
        part = self.path(piece.snapshot) + _PART
        if piece.position == 0:
            self._remove_unfinished((_PART,))  # the leader has a newer one meanwhile
        file = self._disk.open(part, create=True)
        try:
            if file.size() != piece.position:
                raise StorageError(f"{part} has {file.size()} bytes, and byte {piece.position} follows")
            file.append([piece.data])
            if not piece.is_last:
                return None
            self._sync(file)
        finally:
            file.close()
        content = self._read(part, piece.snapshot, cluster_id)
        self._disk.rename(part, self.path(piece.snapshot))
        self._disk.sync_directory(self._directory)
        return content

    @staticmethod
    def _sync(file: File) -> None:
        """A name alone would survive a crash, and what it names would not."""
        file.sync()

    def remove_parts(self) -> None:
        """Removes what was received or written and is not whole. Raises OSError."""
        self._remove_unfinished((_PART, _WRITTEN))

    def _remove_unfinished(self, kinds: Collection[str]) -> None:
        for name in self._disk.list(self._directory):
            stem, dot, kind = name.rpartition(".")
            if dot + kind in kinds and parse_snapshot_name(stem) is not None:
                self._disk.remove(f"{self._directory}/{name}")


def _some_of(batches: Iterator[bytes], enough_bytes: int) -> Iterator[bytes]:
    while enough_bytes > 0 and (batch := next(batches, None)) is not None:
        enough_bytes -= len(batch)
        yield batch
