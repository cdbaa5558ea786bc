"""What compaction keeps of a log: the last record of each key, and everything that offsets and producers depend on.

As Kafka's log cleaner decides it: records are dropped, never moved, so offsets have gaps. A tombstone stays until its
batch's delete horizon (attributes bit 6, the horizon in the base timestamp; KIP-534) has passed, so do transaction
markers without data. The last batch of an active producer, and the last of the cleaned range, stay even when empty:
sequences and the end of the range are read from them.
"""

from __future__ import annotations

import hashlib
import heapq
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.log.transaction_index import AbortedTransaction
from headrace.log.trusted import ABORT, COMMIT, marker_kind
from headrace.wire.batch import DELETE_HORIZON_BIT, BatchHeader
from headrace.wire.primitives import Buffer
from headrace.wire.records import Compression, CorruptBatch, Record, decode_batch, rebuild_batch

ENTRY_BYTES = 160
"""Memory that one key of the offset map takes, about."""

KEY_BYTES_MAX = 16
"""Longer keys are held as a digest, of a length that no held key has."""

_DIGEST_BYTES = 20


def _held(key: bytes) -> bytes:
    return key if len(key) <= KEY_BYTES_MAX else hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()


class OffsetMap:
    """The last offset of each key in the dirty part of a log, of as many keys as its memory holds."""

    __slots__ = ("_offsets", "end_offset", "keys_max")

    def __init__(self, memory_bytes: int) -> None:
        self.keys_max = max(memory_bytes // ENTRY_BYTES, 1)
        self._offsets: dict[bytes, int] = {}
        self.end_offset = -1
        """Everything below this has been taken in."""

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, records: list[Record], from_offset: int) -> bool:
        """Takes in the keys of one batch; False, and nothing taken in, when the memory does not hold them all."""
        if len(self._offsets) + len(records) > self.keys_max and self._offsets:
            return False
        offsets = self._offsets
        for record in records:
            if record.key is not None and record.offset >= from_offset:
                offsets[_held(record.key)] = record.offset
        return True

    def latest(self, key: bytes) -> int:
        """The last offset of a key, -1 where it is not in the dirty part."""
        return self._offsets.get(_held(key), -1)


class Transactions:
    """Which batches belong to aborted transactions, and which markers have no data left. Read in offset order."""

    def __init__(self) -> None:
        self._aborted: list[tuple[int, AbortedTransaction]] = []
        self._open_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # by producer; with whether it has data
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose marker stays because data of theirs was seen: the new transaction index."""

    def add_aborted(self, entries: Iterable[AbortedTransaction]) -> None:
        """Announces aborted transactions of a segment that comes next."""
        for entry in entries:
            heapq.heappush(self._aborted, (entry.first_offset, entry))

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0][0] <= offset:
            _, entry = heapq.heappop(self._aborted)
            self._open_aborted.setdefault(entry.producer_id, (entry, False))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._open_aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._open_aborted[header.producer_id] = (found[0], True)
        return True

    def is_marker_of_nothing(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether a control batch ends a transaction of which no data is left."""
        self._begin_up_to(header.last_offset)
        kind = marker_kind(header, batch)
        if kind == ABORT:
            found = self._open_aborted.pop(header.producer_id, None)
            if found is None or not found[1]:
                return True
            self.kept.append(found[0])
            return False
        if kind == COMMIT:
            if header.producer_id in self._committed:
                self._committed.discard(header.producer_id)
                return False
            return True
        return header.record_count == 0


@dataclass(slots=True)
class Rules:
    """What decides over one round of cleaning."""

    offsets: OffsetMap
    now_ms: int
    delete_retention_ms: int
    range_end: int
    """The end of the cleaned range: the batch that ends there stays."""
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each active producer: the last offset of its last data batch in the range (-1: none), and its epoch.

    Kafka keeps the last batch of all, and loses a sequence when that one is not on disk yet and a crash takes it.
    """


def clean_batch(header: BatchHeader, batch: Buffer, rules: Rules, transactions: Transactions) -> Buffer | None:
    """The batch as it is to stay: itself, a smaller one, an empty one; None where nothing stays.

    Raises CorruptBatch where its records cannot be read.
    """
    now_ms = rules.now_ms
    horizon = header.base_timestamp if header.has_delete_horizon else None
    if header.is_control:
        empty_marker = transactions.is_marker_of_nothing(header, batch)
        discard = empty_marker and horizon is not None and horizon <= now_ms
        records = kept = decode_batch(batch)
        dying = empty_marker
    else:
        discard = transactions.is_aborted(header)
        records = decode_batch(batch)
        kept = [] if discard else _kept(records, rules, horizon)
        dying = any(record.value is None for record in kept)
    if discard:
        kept = []
    if not kept and not _must_stay(header, rules):
        return None
    if horizon is None and dying and kept:
        attributes = header.attributes | DELETE_HORIZON_BIT
        return _rebuilt(header, kept, attributes=attributes, base_timestamp=now_ms + rules.delete_retention_ms)
    if len(kept) == len(records):
        return batch
    if not kept:
        return _rebuilt(header, kept, compression=Compression.NONE)
    return _rebuilt(header, kept)


def _rebuilt(header: BatchHeader, kept: list[Record], **fields: int) -> bytes:
    try:
        return rebuild_batch(header, kept, **fields)
    except (OverflowError, struct.error) as error:
        # Base timestamp and delta come from the client, and nobody has added them up before.
        raise CorruptBatch(f"the batch at offset {header.base_offset} has a timestamp beyond 64 bits") from error


def _kept(records: list[Record], rules: Rules, horizon: int | None) -> list[Record]:
    keep_tombstones = horizon is None or rules.now_ms < horizon
    offsets = rules.offsets
    end_offset = offsets.end_offset
    kept: list[Record] = []
    for record in records:
        if record.offset >= end_offset:
            kept.append(record)
        elif record.key is not None and record.offset >= offsets.latest(record.key):
            if keep_tombstones or record.value is not None:
                kept.append(record)
    return kept


def _must_stay(header: BatchHeader, rules: Rules) -> bool:
    if header.next_offset == rules.range_end:
        return True
    known = rules.producers.get(header.producer_id) if header.producer_id >= 0 else None
    if known is None:
        return False
    last_offset, epoch = known
    if last_offset >= 0:
        return header.last_offset == last_offset
    return header.is_control and header.producer_epoch == epoch
