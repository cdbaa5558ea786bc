"""The record batch, format v2: its 61-byte header, its checksum, and what may be changed without opening it.

Source: Kafka's message format v2 (KIP-98, KIP-534 for the delete horizon). Numbers are big-endian. The CRC-32C covers
all that follows it, so base offset and leader epoch, which lie before it, are stamped without a new checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from headrace.wire._walk import MALFORMED, largest_timestamp
from headrace.wire.checksum import crc32c
from headrace.wire.primitives import Buffer

BATCH_OVERHEAD: Final = 61
"""Bytes of a batch before its records."""
LENGTH_OVERHEAD: Final = 12
"""Bytes of a batch that its length field does not count: base offset and the length itself."""
MAGIC: Final = 2

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

BATCH_PLACE: Final = Struct(">qi11xi")
"""The beginning of a batch, as far as it says where it ends: base offset, batch length, delta of the last offset."""

_MAX_INT32: Final = 0x7FFFFFFF
_HEADER: Final = Struct(">qiibIhiqqqhii")
_UNCHECKED: Final = Struct(">qiibI")
_CHECKED: Final = Struct(">hiqqqhii")
"""The header in two parts: what its checksum does not cover, itself included, and what it does."""
_CRC_AT: Final = 17
_CHECKED_AT: Final = 21
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_BASE_OFFSET: Final = Struct(">q")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT16: Final = Struct(">h")
_unpack: Final = _HEADER.unpack_from
_pack_offset: Final = _BASE_OFFSET.pack_into
_pack_epoch: Final = _INT32.pack_into


class CorruptBatch(Exception):
    """Bytes that are no batch, or a batch whose records cannot be read; the message has the error."""


class BatchHeader(NamedTuple):
    """The header as it lies in the log, in the order of its fields there. Timestamps are ms since 1970."""

    base_offset: int
    """The offset of the first record; producers send 0, and the leader stamps it."""
    batch_length: int
    """Bytes of the batch after this field: it does not count itself and the base offset, 12 bytes."""
    partition_leader_epoch: int
    """The epoch of the leader that appended the batch, which stamps it; -1 from producers. Followers keep it."""
    magic: int
    """2. Formats 0 and 1 have another layout, and a batch of theirs is not accepted."""
    crc: int
    """CRC-32C of all that follows: a leader may stamp the fields before it without a new checksum."""
    attributes: int
    """Bits 0 to 2: the codec. 3: timestamps of the log's append time. 4: transactional. 5: a control batch, whose
    record is a marker. 6: the base timestamp is the delete horizon."""
    last_offset_delta: int
    """The last offset less the base offset. Compaction removes records and leaves it, so it may be more than the record
    count less 1."""
    base_timestamp: int
    """The timestamp to which records give differences; -1 if they have none. Since KIP-534 the delete horizon, if the
    attributes say so."""
    max_timestamp: int
    """The greatest timestamp of the records, or the append time of all; -1 if they have none."""
    producer_id: int
    """The id from InitProducerId; -1: no idempotence, and epoch and sequence are -1 too."""
    producer_epoch: int
    """The epoch of that id: batches of an older one are refused."""
    base_sequence: int
    """The sequence number of the first record in its partition, by which the leader finds gaps and repetitions. After
    2^31 - 1 comes 0."""
    record_count: int
    """Records in the batch; 0 after compaction has removed all and kept the batch for its producer's state."""

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + 12

    @property
    def compression(self) -> int:
        """The codec's id; see `headrace.wire.records.Compression`. 5 to 7 are unassigned."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`; with the latter `max_timestamp` is the timestamp of every record."""
        return (self.attributes & TIMESTAMP_TYPE_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which the cleaner may drop tombstones and markers (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2**31 - 1 to 0. `NO_SEQUENCE` where there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return self.base_sequence + self.last_offset_delta & _MAX_INT32


_new: Final = tuple.__new__


def read_header(buf: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at`, unchecked. Raises struct.error where fewer than `BATCH_OVERHEAD` bytes are left."""
    return _new(BatchHeader, _unpack(buf, at))


def iter_headers(buf: Buffer, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch; raises `CorruptBatch` at a batch that is no v2 batch or not wholly there."""
    size = len(buf)
    while at < size:
        if size - at < BATCH_OVERHEAD:
            raise CorruptBatch(f"{size - at} bytes are left at byte {at}, less than the header of a batch")
        header = read_header(buf, at)
        if header.magic != MAGIC:
            raise CorruptBatch(f"the batch at byte {at} has magic {header.magic}, not 2")
        if header.batch_length < BATCH_OVERHEAD - LENGTH_OVERHEAD or header.size > size - at:
            raise CorruptBatch(f"the batch at byte {at} says {header.size} bytes, and {size - at} are there")
        yield at, header
        at += header.size


def iter_whole_headers(buf: Buffer, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch up to the first that is not wholly there, as a limit of bytes leaves the last.

    It ends as well before one whose length cannot be true, and looks at nothing but lengths: to tell damage from a cut
    is the caller's part, who knows how much was asked for.
    """
    size = len(buf)
    while size - at >= BATCH_OVERHEAD:
        header = read_header(buf, at)
        if not BATCH_OVERHEAD <= header.size <= size - at:
            return
        yield at, header
        at += header.size


def checksum(buf: Buffer, at: int, size: int) -> int:
    """The CRC-32C that a batch of `size` bytes at `at` ought to carry."""
    return crc32c(memoryview(buf)[at + _CHECKED_AT : at + size])


def check_crc(buf: Buffer, at: int, header: BatchHeader) -> bool:
    """Whether the checksum of the batch at `at`, which lies wholly in `buf`, is right."""
    return crc32c(memoryview(buf)[at + 21 : at + header.batch_length + 12]) == header.crc


def stamp(buf: bytearray | memoryview, at: int, base_offset: int, leader_epoch: int) -> None:
    """Write where the batch lies in its log, in place; the checksum does not cover these two fields."""
    _pack_offset(buf, at, base_offset)
    _pack_epoch(buf, at + 12, leader_epoch)


def set_max_timestamp(buf: bytearray | memoryview, at: int, timestamp_type: int, timestamp_ms: int) -> None:
    """Write the timestamp type and the max timestamp in place, and the new checksum.

    With `LOG_APPEND_TIME` readers take this as the timestamp of every record of the batch.
    """
    header = read_header(buf, at)
    if header.timestamp_type == timestamp_type and header.max_timestamp == timestamp_ms:
        return
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT | (timestamp_type << 3)
    _INT16.pack_into(buf, at + _ATTRIBUTES_AT, attributes)
    _BASE_OFFSET.pack_into(buf, at + _MAX_TIMESTAMP_AT, timestamp_ms)
    _UINT32.pack_into(buf, at + _CRC_AT, checksum(buf, at, header.size))


def set_log_append_time(buf: bytearray | memoryview, at: int, timestamp_ms: int) -> None:
    """Make the time of the append the timestamp of every record, in place, with the new checksum."""
    set_max_timestamp(buf, at, LOG_APPEND_TIME, timestamp_ms)


def records_are_whole(buf: Buffer, at: int, header: BatchHeader) -> bool:
    """Whether an uncompressed batch holds as many records as it announces, and nothing else."""
    end = at + header.batch_length + 12
    return largest_timestamp(buf, at + 61, end, header.record_count, header.base_timestamp) != MALFORMED


def sealed(records: Buffer, record_count: int, timestamp_ms: int) -> bytes:
    """The batch of encoded records that have one timestamp and no producer: the short way of `seal_batch`."""
    header = _CHECKED.pack(
        0, record_count - 1, timestamp_ms, timestamp_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, record_count
    )
    checked = header + records
    length = len(checked) + _CHECKED_AT - LENGTH_OVERHEAD
    return _UNCHECKED.pack(0, length, NO_LEADER_EPOCH, MAGIC, crc32c(checked)) + checked


def unsealed(records: Buffer) -> bytearray:
    """Encoded (perhaps compressed) records with room for the header before them, for `seal_batch`."""
    return bytearray(BATCH_OVERHEAD) + records


def seal_batch(
    batch: bytearray,
    *,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Write the header into the first `BATCH_OVERHEAD` bytes of a batch whose records follow; returns it."""
    size = len(batch)
    _HEADER.pack_into(
        batch, 0, base_offset, size - LENGTH_OVERHEAD, leader_epoch, MAGIC, 0, attributes, last_offset_delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    _UINT32.pack_into(batch, _CRC_AT, checksum(batch, 0, size))
    return batch
