"""`.txnindex`: the aborted transactions whose marker lies in a segment. Most segments have none, and no file.

Entries of 34 bytes: version int16 (0), producer id int64, first offset, last offset (the marker's), last stable offset
after the abort, each int64; last offsets rise.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction; offsets are absolute."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndexError(Exception):
    """A transaction index that cannot be read: names the file and the entry."""


def encode(entries: list[AbortedTransaction]) -> bytes:
    """The bytes of a transaction index."""
    return b"".join(_ENTRY.pack(VERSION, *entry) for entry in entries)


def decode(path: str, data: bytes) -> list[AbortedTransaction]:
    """What `encode` wrote; an unfinished entry at the end is left out. Raises TransactionIndexError."""
    entries: list[AbortedTransaction] = []
    for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        version, producer_id, first_offset, last_offset, last_stable_offset = _ENTRY.unpack_from(data, at)
        if version != VERSION or first_offset >= last_offset or (entries and last_offset <= entries[-1].last_offset):
            raise TransactionIndexError(f"{path}: entry {len(entries)} is not one")
        entries.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))
    return entries
