"""Arrow to record batches, without a Python object a record: partitions by key, then whole batches a partition.

The columns are those that Spark's Kafka connector writes: value, and where they are there key, topic, partition,
headers; and timestamp, which otherwise is the time of the encoding. Offset and timestampType are passed over.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrow._rows import Column, Rows, key_partitions, order_by_partition
from headrace.arrow.decode import HEADER_TYPE
from headrace.arrow.sizes import BATCH_BYTES
from headrace.wire.batch import BATCH_OVERHEAD, seal_batch, unsealed
from headrace.wire.primitives import varint
from headrace.wire.records import Compression, compress

_FIELD_OVERHEAD: Final = 64
_ROWS_MAX: Final = (1 << 31) - 1

Encoded = tuple[str, int, bytearray, int]
"""Topic, partition, a whole batch, and how many records it holds."""
Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class _How:
    """The values that all rows of an `encode_batch` share."""

    now_ms: int
    compression: Compression
    batch_bytes: int
    wanted_bytes: Callable[[str], int] | None
    mark_count: int
    marks: bytes


_WRITABLE: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "key": (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.null()),
    "value": (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.null()),
    "topic": (pa.string(), pa.large_string()),
    "partition": (pa.int32(),),
}
_PASSED_OVER: Final = ("offset", "timestampType")
"""Columns of a read record; a written one gets its own. So the sink can write a whole row of a source."""


def check_schema(schema: pa.Schema, topic: str | None) -> None:
    """Raises ValueError, in one sentence, where the columns cannot be written as records."""
    names = set(schema.names)
    if "value" not in names:
        raise ValueError("Records need a column 'value', of bytes or text.")
    if topic is None and "topic" not in names:
        raise ValueError("The rows name no topic to write to: give the option 'topic' or a column 'topic'.")
    for field in schema:
        if field.name in _WRITABLE:
            if field.type not in _WRITABLE[field.name]:
                wanted = _WRITABLE[field.name][0]
                raise ValueError(f"The column {field.name!r} is {field.type}; records need {wanted}.")
        elif field.name == "timestamp":
            if not pa.types.is_timestamp(field.type):
                raise ValueError(f"The column 'timestamp' is {field.type}; records need a timestamp.")
        elif field.name == "headers":
            if not field.type.equals(HEADER_TYPE, check_metadata=False) and not _is_headers(field.type):
                raise ValueError(f"The column 'headers' is {field.type}; records need array<struct<key, value>>.")
        elif field.name not in _PASSED_OVER:
            raise ValueError(
                f"Records have no column {field.name!r}; a row can have the columns "
                "key, value, topic, partition, timestamp and headers."
            )


def _is_headers(kind: pa.DataType) -> bool:
    """Lists of (key text, value bytes), whatever the fields say about nulls."""
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        return False
    key, value = kind.value_type[0], kind.value_type[1]
    texts = (pa.string(), pa.large_string())
    return key.name == "key" and value.name == "value" and key.type in texts and pa.types.is_binary(value.type)


def encode_batch(
    rows: pa.RecordBatch,
    topic: str | None,
    partition_count: Callable[[str], int],
    *,
    now_ms: int,
    compression: Compression = Compression.NONE,
    batch_bytes: int = BATCH_BYTES,
    wanted_bytes: Callable[[str], int] | None = None,
    marks: Headers = (),
) -> Iterator[Encoded]:
    """The rows as whole batches, by topic (that of the argument goes before the column) and partition.

    The schema has passed `check_schema`. Keys choose the partition as Java's clients do, unless the partition column
    says one; rows without either go to one partition at random. Every record gets the `marks` behind its own headers.
    A batch has at most `batch_bytes`, uncompressed, and at most the `wanted_bytes` of its topic, as it is; but for one
    record that is larger.
    Raises ValueError for a row without a topic, or with a partition that is not there.
    """
    how = _How(now_ms, compression, batch_bytes, wanted_bytes, len(marks), encode_headers(marks))
    if topic is not None:
        yield from _encode_topic(rows, topic, partition_count(topic), how)
        return
    topics = rows.column(rows.schema.get_field_index("topic"))
    if topics.null_count:
        raise ValueError("A row has no topic: its column 'topic' is null, and there is no option 'topic'.")
    for name in sorted(topics.unique().to_pylist()):
        part = rows.filter(pc.equal(topics, name))
        yield from _encode_topic(part, name, partition_count(name), how)


def hash_rows(rows: pa.RecordBatch, topic: str | None) -> int:
    """The sum, cut to 64 bits, of a hash of each row: the same for the same rows, in whatever order or batches.

    It is of what the rows themselves say, so of partitions and timestamps only where there are columns of those.
    """
    columns = {name: rows.column(index) for index, name in enumerate(rows.schema.names)}
    total = 0
    for name in [topic] if topic is not None else sorted(columns["topic"].drop_null().unique().to_pylist()):
        part = columns
        if topic is None:
            chosen = rows.filter(pc.equal(columns["topic"], name))
            part = {name: chosen.column(index) for index, name in enumerate(chosen.schema.names)}
        count = len(part["value"])
        if count:
            partitions = part.get("partition")
            places = _all_unchosen(count) if partitions is None else _int32s(partitions.fill_null(-1), count)
            records = _records(part, _column(part.get("key"), count), count, 0)
            total += records.hash_sum(name.encode() + b"\x00", places, count)
    return total & (1 << 64) - 1


def encode_headers(headers: Headers) -> bytes:
    """Headers as they lie in a record: each name and value behind its length, a zigzag varint."""
    fields = [field for name, value in headers for field in (name.encode(), value)]
    return b"".join(varint(2 * len(field)) + field for field in fields)


def _ints(size: int) -> memoryview:
    return memoryview(bytearray(4 * size)).cast("i")


def _encode_topic(rows: pa.RecordBatch, topic: str, count: int, how: _How) -> Iterator[Encoded]:
    total = rows.num_rows
    if not total:
        return
    columns = {name: rows.column(index) for index, name in enumerate(rows.schema.names)}
    keys = _column(columns.get("key"), total)
    chosen = _chosen(columns.get("partition"), topic, count, total)
    key_partitions(keys, count, random.randrange(count), chosen)
    order, starts = _ints(total), _ints(count + 1)
    order_by_partition(chosen, count, order, starts)
    records = _records(columns, keys, total, how.now_ms)
    records.set_marks(how.mark_count, how.marks or b"\x00", len(how.marks))
    largest = rows.nbytes + (_FIELD_OVERHEAD + len(how.marks)) * total
    room = _Room(how, topic)
    for partition in range(count):
        at, last = starts[partition], starts[partition + 1]
        while at < last:
            # no larger than everything that is left can be
            batch = bytearray(min(room.bytes, largest) + BATCH_OVERHEAD + _FIELD_OVERHEAD)
            end = records.encode(order, at, min(last, at + room.rows), batch, BATCH_OVERHEAD)
            if records.done == 0:
                room.bytes *= 4
                continue
            del batch[end:]
            batch = _sealed(batch, records, how.compression)
            if room.suits(end, len(batch), records.done):
                at += records.done
                yield topic, partition, batch, records.done


class _Room:
    """How many bytes the next batch of a topic gets before it is compressed, by what became of the last one."""

    def __init__(self, how: _How, topic: str) -> None:
        self._most = how.batch_bytes
        self._wanted = how.batch_bytes if how.wanted_bytes is None else min(how.wanted_bytes(topic), how.batch_bytes)
        self._bounded = self._wanted < how.batch_bytes
        self.bytes = self._wanted
        self.rows = _ROWS_MAX

    def suits(self, plain: int, length: int, count: int) -> bool:
        """Whether a batch of `plain` bytes that has become `length` may go. If not, the next attempt has fewer rows."""
        if self._bounded and count > 1 and length > self._wanted + BATCH_OVERHEAD + _FIELD_OVERHEAD:
            self.rows = max(min(count * self._wanted // length, count - 1), 1)
            return False
        self.rows = _ROWS_MAX
        self.bytes = max(min(self._wanted * plain // length * 9 // 10, self._most), self._wanted)
        return True


def _sealed(batch: bytearray, records: Rows, compression: Compression) -> bytearray:
    if compression != Compression.NONE:
        body = compress(compression, memoryview(batch)[BATCH_OVERHEAD:])
        batch = unsealed(body)
    return seal_batch(
        batch,
        record_count=records.done,
        last_offset_delta=records.done - 1,
        base_timestamp=records.base_timestamp,
        max_timestamp=records.max_timestamp,
        attributes=compression,
    )


def _column(array: Any, total: int) -> Column:
    """A binary or text column as the native loop takes it; all null where there is none."""
    if array is None or pa.types.is_null(array.type):
        return Column(total, _ints(total + 1), b"\x00", bytes(total + 7 >> 3), 0)
    if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.binary())
    bits, offsets, data = array.buffers()
    at = array.offset
    lengths = memoryview(offsets).cast("B").cast("i")[at : at + len(array) + 1] if offsets is not None else _ints(1)
    content = memoryview(data).cast("B") if data is not None and data.size else b"\x00"
    return Column(len(array), lengths, content, memoryview(bits).cast("B") if array.null_count else None, at)


def _chosen(partitions: Any, topic: str, count: int, total: int) -> memoryview:
    """-1 for every row, or what the partition column says."""
    if partitions is None:
        return _all_unchosen(total)
    given = partitions.drop_null()
    if len(given):
        span = pc.min_max(given).as_py()
        if span["min"] < 0 or span["max"] >= count:
            wrong = span["min"] if span["min"] < 0 else span["max"]
            raise ValueError(f"Topic {topic} has {count} partitions; there is no partition {wrong}.")
    return _int32s(partitions.fill_null(-1), total)


def _all_unchosen(total: int) -> memoryview:
    return memoryview(bytearray(b"\xff" * (4 * total))).cast("i")


def _int32s(array: Any, total: int) -> memoryview:
    """A column of int32 without nulls, copied: it may be written to."""
    raw = memoryview(array.buffers()[1]).cast("B").cast("i")[array.offset : array.offset + total]
    return memoryview(bytearray(raw)).cast("i")


def _records(columns: dict[str, Any], keys: Column, total: int, now_ms: int) -> Rows:
    times = columns.get("timestamp")
    stamps: memoryview = memoryview(bytearray(8)).cast("q")
    if times is not None:
        # a row without a timestamp gets the time of the encoding, as one without the column does
        micros = times.cast(pa.timestamp("us", tz=times.type.tz)).cast(pa.int64()).fill_null(now_ms * 1000)
        stamps = memoryview(micros.buffers()[1]).cast("B").cast("q")[micros.offset : micros.offset + total]
    records = Rows(keys, _column(columns["value"], total), stamps, times is not None, now_ms)
    headers = columns.get("headers")
    if headers is not None:
        names, contents = headers.values.flatten()
        if names.null_count:
            raise ValueError("A header has no key.")
        starts = memoryview(headers.buffers()[1]).cast("B").cast("i")[headers.offset : headers.offset + total + 1]
        bits = memoryview(headers.buffers()[0]).cast("B") if headers.null_count else None
        lists = Column(total, starts, b"\x00", bits, headers.offset)
        records.set_headers(starts, lists, _column(names, len(names)), _column(contents, len(contents)))
    return records
