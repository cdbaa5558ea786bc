"""The `.snapshot` file: a partition's producers at the offset in the file's name.

version int16 (1), CRC-32C uint32 of all that follows it, count int32, then 46 bytes a producer: producer id int64,
epoch int16, last sequence int32, last offset int64, offset delta int32 (of its last batch), timestamp int64,
coordinator epoch int32, first offset of its open transaction int64 (-1: none).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headrace.wire.checksum import crc32c

_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6

VERSION = 1


class SnapshotEntry(NamedTuple):
    """One producer in a snapshot file."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class SnapshotError(Exception):
    """A producer snapshot that cannot be read; recovery falls back on an older one."""


def encode(entries: list[SnapshotEntry]) -> bytes:
    """The bytes of a snapshot file."""
    body = len(entries).to_bytes(4, "big") + b"".join(_ENTRY.pack(*entry) for entry in entries)
    return VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode(path: str, data: bytes) -> list[SnapshotEntry]:
    """What `encode` wrote. Raises SnapshotError."""
    if len(data) < _HEADER.size:
        raise SnapshotError(f"{path}: has {len(data)} bytes, fewer than its header")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"{path}: version {version} is not known")
    if crc32c(data[_CRC_END:]) != crc:
        raise SnapshotError(f"{path}: its checksum does not match")
    if count < 0 or len(data) != _HEADER.size + count * _ENTRY.size:
        raise SnapshotError(f"{path}: has {len(data)} bytes for {count} entries")
    return [SnapshotEntry(*_ENTRY.unpack_from(data, _HEADER.size + index * _ENTRY.size)) for index in range(count)]
