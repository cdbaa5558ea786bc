"""The rules of compaction: the last record of each key stays, and everything that offsets and producers depend on.

As in Kafka's log cleaner, records are dropped, never moved, so offsets have gaps. A tombstone stays until its batch's
delete horizon (attributes bit 6, the horizon in the base timestamp; KIP-534) has passed, and so do transaction markers
without data. The last batch of an active producer, and the last of the cleaned range, stay even if empty: sequences and
the end of the range are read from them.
"""

from __future__ import annotations

import heapq
import struct
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from headrace.log.producer_batches import marker_kind
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire._walk import MALFORMED, MAP_HEAD, MAP_SLOT, move_keys, retain, take_keys
from headrace.wire.batch import BATCH_OVERHEAD, COMPRESSION_MASK, DELETE_HORIZON_BIT, LOG_APPEND_TIME, BatchHeader
from headrace.wire.markers import ABORT, COMMIT
from headrace.wire.primitives import Buffer
from headrace.wire.records import (
    MAX_DECOMPRESSED_BYTES,
    BodyTooLarge,
    Compression,
    CorruptBatch,
    decompress,
    opened_size,
    rebuild_batch,
)

SLOT_BYTES: Final = 8 * MAP_SLOT
"""The memory of a key in the offset map, and of a slot that is kept free."""
FIRST_SLOTS: Final = 1024
GROWTH: Final = 4
"""The factor by which the map grows: the one before takes a quarter of the memory beside it."""

_LONG_MAX: Final = (1 << 63) - 1

Scratch = Callable[[int], memoryview]
"""Memory for one batch, from `Environment.scratch`."""


def open_body(header: BatchHeader, batch: Buffer, scratch: Scratch) -> Buffer:
    """The records of a batch, decompressed. Raises CorruptBatch."""
    body = memoryview(batch)[BATCH_OVERHEAD : header.size]
    if header.compression == Compression.NONE:
        return body
    size = min(opened_size(header.compression, body, MAX_DECOMPRESSED_BYTES), MAX_DECOMPRESSED_BYTES)
    try:
        return decompress(header.compression, body, size, scratch(size))
    except BodyTooLarge:
        if size == MAX_DECOMPRESSED_BYTES:
            raise
        return decompress(header.compression, body, MAX_DECOMPRESSED_BYTES, scratch(MAX_DECOMPRESSED_BYTES))


def _malformed(header: BatchHeader) -> CorruptBatch:
    return CorruptBatch(
        f"the records of the batch at offset {header.base_offset} are malformed, or not the {header.record_count} that "
        "it announces"
    )


class OffsetMap:
    """The last offset of each key in the dirty part of a log, for as many keys as its memory holds.

    Keys are held as digests, as in Kafka's cleaner; `wire._walk` fills the table and looks keys up.
    """

    __slots__ = ("_keys_max", "_load_factor", "_scratch", "_sizes", "end_offset", "table")

    def __init__(self, scratch: Scratch, secret: tuple[int, int], memory_bytes: int, load_factor: float) -> None:
        """`secret`: two random words for the digests; `load_factor`: the share of the slots that may be taken."""
        slots = max(memory_bytes // SLOT_BYTES, 2)
        self._sizes = [slots]
        while self._sizes[-1] > FIRST_SLOTS * GROWTH:
            self._sizes.append(self._sizes[-1] // GROWTH)
        self._load_factor = load_factor
        self._scratch = scratch
        self.table = self._new_table()
        self.table[0], self.table[1] = secret
        self.end_offset = -1
        """The offset up to which the dirty part has been added."""

    def _new_table(self) -> memoryview:
        slots = self._sizes.pop()
        self._keys_max = min(max(int(slots * self._load_factor), 1), slots - 1)
        return self._scratch(8 * MAP_HEAD + SLOT_BYTES * slots).cast("Q")

    def __len__(self) -> int:
        return int(self.table[2])

    def add(self, header: BatchHeader, body: Buffer, from_offset: int) -> bool:
        """Adds the keys of one batch from an offset on; returns False if the memory does not hold them all, and
        `end_offset` is then inside the batch. Raises CorruptBatch."""
        at, end = 0, len(body)
        found = array("q", (0, 0))
        while True:
            at = take_keys(body, at, end, header.base_offset, from_offset, self._keys_max, self.table, found)
            if at == MALFORMED:
                raise _malformed(header)
            if at == end:
                break
            if not self._sizes:
                self.end_offset = max(self.end_offset, found[1])
                return False
            small, self.table = self.table, self._new_table()
            move_keys(small, self.table)
        if found[0] != header.record_count:
            raise _malformed(header)
        self.end_offset = max(self.end_offset, header.next_offset)
        return True


class Transactions:
    """The aborted transactions of a range, and the markers without remaining data. Fed in offset order."""

    def __init__(self) -> None:
        self._aborted: list[tuple[int, AbortedTransaction]] = []
        self._open_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # by producer; with whether it has data
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose marker stays because they have data: the new transaction index."""

    def add_aborted(self, entries: Iterable[AbortedTransaction]) -> None:
        """Adds aborted transactions, before their first batch is read."""
        for entry in entries:
            heapq.heappush(self._aborted, (entry.first_offset, entry))

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0][0] <= offset:
            _, entry = heapq.heappop(self._aborted)
            self._open_aborted.setdefault(entry.producer_id, (entry, False))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Returns whether a data batch belongs to an aborted transaction."""
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
        """Returns whether a control batch ends a transaction without remaining data."""
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
    """The parameters of one round of cleaning."""

    offsets: OffsetMap
    now_ms: int
    delete_retention_ms: int
    range_end: int
    """The end of the cleaned range: the batch that ends there stays."""
    scratch: Scratch
    """Memory for an open batch, and for its remaining records."""
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each active producer the last offset of its last data batch in the range (-1: none), and its epoch.

    Kafka keeps only the producer's very last batch, and loses a sequence if that batch is not on disk yet and a crash
    takes it.
    """


def clean_batch(header: BatchHeader, batch: Buffer, rules: Rules, transactions: Transactions) -> Buffer | None:
    """Returns the batch to keep: itself, a smaller or an empty one; None to drop it.

    Raises CorruptBatch if its records cannot be read.
    """
    horizon = header.base_timestamp if header.has_delete_horizon else None
    passed = horizon is not None and horizon <= rules.now_ms
    ends_nothing = header.is_control and transactions.is_marker_of_nothing(header, batch)
    if ends_nothing and passed if header.is_control else transactions.is_aborted(header):
        return _emptied(header) if _must_stay(header, rules) else None
    # A control batch stays as it is, or goes.
    end_offset = header.base_offset if header.is_control else rules.offsets.end_offset
    records = _Records(header, open_body(header, batch, rules.scratch), end_offset, not passed, rules)
    if not records.kept:
        return _emptied(header) if _must_stay(header, rules) else None
    dying = ends_nothing if header.is_control else records.null_values > 0
    if dying and horizon is None:
        return records.written(rules.now_ms + rules.delete_retention_ms)
    return batch if records.kept == header.record_count else records.written(None)


class _Records:
    """The decoded records of one batch, and which of them stay."""

    def __init__(self, header: BatchHeader, body: Buffer, end_offset: int, tombstones: bool, rules: Rules) -> None:
        """`tombstones`: whether null values stay. Raises CorruptBatch."""
        self._header = header
        self._body = body
        self._end_offset = end_offset
        self._tombstones = tombstones
        self._rules = rules
        self._found = array("q", bytes(40))
        self._size = self._walk(0, None)
        count, self.kept, self.null_values, self._smallest, self._largest = self._found
        if self._size == MALFORMED or count != header.record_count:
            raise _malformed(header)

    def _walk(self, shift: int, out: memoryview | None) -> int:
        base_offset, table = self._header.base_offset, self._rules.offsets.table
        body, end, end_offset = self._body, len(self._body), self._end_offset
        return retain(body, 0, end, base_offset, end_offset, self._tombstones, shift, table, out, self._found)

    def written(self, horizon: int | None) -> Buffer:
        """Encodes a batch of the remaining records, with that delete horizon unless it is None. Raises CorruptBatch."""
        header = self._header
        shift = 0
        if horizon is not None:
            shift = horizon - header.base_timestamp
            if max(shift, self._largest - shift) > _LONG_MAX or min(shift, self._smallest - shift) < -_LONG_MAX:
                raise _beyond(header)
            self._size = self._walk(shift, None)
        out = self._rules.scratch(self._size)
        size = self._walk(shift, out)
        assert size == self._size, "what stays is what was counted"
        stamped = header.timestamp_type == LOG_APPEND_TIME
        try:
            return rebuild_batch(
                header,
                out,
                record_count=self.kept,
                attributes=header.attributes | (0 if horizon is None else DELETE_HORIZON_BIT),
                base_timestamp=header.base_timestamp + shift,
                max_timestamp=header.max_timestamp if stamped else header.base_timestamp + self._largest,
            )
        except (OverflowError, struct.error) as error:
            # Base timestamp and delta come from the client, and their sum was never checked.
            raise _beyond(header) from error


def _beyond(header: BatchHeader) -> CorruptBatch:
    return CorruptBatch(f"the batch at offset {header.base_offset} has a timestamp beyond 64 bits")


def _emptied(header: BatchHeader) -> Buffer:
    """Encodes a batch without records that keeps its offsets and sequences."""
    return rebuild_batch(
        header,
        b"",
        record_count=0,
        attributes=header.attributes & ~COMPRESSION_MASK,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
    )


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
