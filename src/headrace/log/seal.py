"""`.seal`: the sizes and checksums of a segment's derived files when they last matched its batches.

Kafka's indexes have no checksums, and a missing transaction index looks like that of a segment without aborted
transactions. So a file of ours lies beside them, which Kafka ignores: version int16 (1), CRC-32C uint32 of all that
follows, log bytes int64 (what was covered), size int64 (-1: not covered) and CRC-32C uint32 of each of `.txnindex`,
`.index`, `.timeindex` and `leader-epoch-checkpoint`, largest timestamp int64, its relative offset int32.

A seal that is missing or damaged, or that covers more than the log has, proves nothing: the files that depend on it are
then rebuilt from the batches.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headrace.env import Disk
from headrace.wire.checksum import crc32c

VERSION: Final = 1
_HEADER: Final = struct.Struct(">hI")
_BODY: Final = struct.Struct(">qqIqIqIqIqi")


class Sum(NamedTuple):
    """The size of a file and its checksum; a size of -1 means that the file is not covered."""

    size: int = -1
    crc: int = 0

    def is_beginning_of(self, data: bytes) -> bool:
        """Whether a file has begun with what was sealed: entries may have been added since. One that is not covered
        may have any content."""
        return self.size < 0 or (len(data) >= self.size and crc32c(memoryview(data)[: self.size]) == self.crc)


NOT_COVERED: Final = Sum()


def sum_of(data: bytes) -> Sum:
    """The sum of a file with that content; a missing file counts as empty."""
    return Sum(len(data), crc32c(data))


class Seal(NamedTuple):
    """The sizes and checksums of a segment's derived files."""

    log_bytes: int
    transactions: Sum
    offset_index: Sum
    time_index: Sum
    epochs: Sum
    max_timestamp: int
    max_relative_offset: int


def encode(seal: Seal) -> bytes:
    """The bytes of a seal."""
    body = _BODY.pack(
        seal.log_bytes,
        *seal.transactions,
        *seal.offset_index,
        *seal.time_index,
        *seal.epochs,
        seal.max_timestamp,
        seal.max_relative_offset,
    )
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> Seal | None:
    """What `encode` wrote; None where it is something else."""
    if len(data) != _HEADER.size + _BODY.size:
        return None
    version, crc = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if version != VERSION or crc32c(body) != crc:
        return None
    log_bytes, *fields, max_timestamp, max_relative_offset = _BODY.unpack(body)
    transactions, offset_index, time_index, epochs = (Sum(*fields[at : at + 2]) for at in range(0, 8, 2))
    return Seal(log_bytes, transactions, offset_index, time_index, epochs, max_timestamp, max_relative_offset)


def read(disk: Disk, path: str) -> Seal | None:
    """The seal in a file, None where there is none or it is damaged. Raises OSError."""
    try:
        return decode(disk.read_file(path))
    except FileNotFoundError:
        return None


def read_sum(disk: Disk, path: str) -> Sum:
    """The sum of a file as it lies there. Raises OSError."""
    try:
        return sum_of(disk.read_file(path))
    except FileNotFoundError:
        return sum_of(b"")
