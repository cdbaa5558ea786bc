"""Record batches to Arrow, without a Python object a record.

The row is that of Spark's Kafka connector: key, value, topic, partition, offset, timestamp, timestampType, headers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from sys import byteorder
from typing import Any, Final

import pyarrow as pa

from headrace.arrow._columns import Columns, HeaderCount
from headrace.arrow.sizes import GROUP_BYTES, GROUP_ROWS
from headrace.client.reading import Fetched, visible_batches
from headrace.wire.batch import BATCH_OVERHEAD, MAGIC, BatchHeader, CorruptBatch, check_crc
from headrace.wire.primitives import Buffer
from headrace.wire.records import MAX_DECOMPRESSED_BYTES, batch_body

HEADER_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
)
HEADERS_FIELD: Final = pa.field("headers", HEADER_TYPE)
COLUMN_NAMES: Final = (*(field.name for field in FIELDS), "headers")

_SMALLEST_RECORD: Final = 7

Group = list[tuple[BatchHeader, Buffer]]


def schema_of(columns: Collection[str]) -> pa.Schema:
    """The schema of these columns, in the connector's order. Raises ValueError for a name that is none of them."""
    unknown = sorted(set(columns) - set(COLUMN_NAMES))
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}; the columns are {', '.join(COLUMN_NAMES)}")
    return pa.schema([field for field in (*FIELDS, HEADERS_FIELD) if field.name in columns])


def decode_fetched(
    fetched: Fetched,
    schema: pa.Schema,
    *,
    committed: bool = False,
    group_rows: int = GROUP_ROWS,
    group_bytes: int = GROUP_BYTES,
    limit: int = MAX_DECOMPRESSED_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records of a fetched piece from its position up to its end, as Arrow batches of about `group_rows`.

    Control batches are left out, and with `committed` the batches of aborted transactions. Raises `CorruptBatch` with
    topic, partition and offset where a checksum is wrong or a body cannot be read.
    """
    end = fetched.end if fetched.end is not None else 1 << 62
    group: Group = []
    rows = size = 0
    for header, batch in visible_batches(fetched, committed=committed):
        if header.next_offset <= fetched.position or header.record_count == 0:
            continue
        if header.base_offset >= end:
            break
        where = f"topic {fetched.topic} partition {fetched.partition} offset {header.base_offset}"
        if header.magic != MAGIC or header.size < BATCH_OVERHEAD:
            raise CorruptBatch(f"{where}: a batch of format {header.magic}, {header.size} bytes, cannot be read")
        if not check_crc(batch, 0, header):
            raise CorruptBatch(f"{where}: the checksum of the batch is wrong")
        try:
            body = batch_body(batch, 0, header, limit)
        except CorruptBatch as error:
            raise CorruptBatch(f"{where}: {error}") from None
        group.append((header, body))
        rows += header.record_count
        size += len(body)
        if rows >= group_rows or size >= group_bytes:
            yield from decode_group(fetched.topic, fetched.partition, group, fetched.position, end, schema)
            group, rows, size = [], 0, 0
    if group:
        yield from decode_group(fetched.topic, fetched.partition, group, fetched.position, end, schema)


def decode_group(
    topic: str, partition: int, group: Sequence[tuple[BatchHeader, Buffer]], start: int, end: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """One Arrow batch of the records with offsets in [start, end) of decompressed bodies; none where there are none."""
    size = sum(len(body) for _, body in group)
    rows = sum(min(header.record_count, len(body) // _SMALLEST_RECORD) for header, body in group)
    buffers = _Buffers(rows, size, _count_headers(topic, partition, group) if "headers" in schema.names else None)
    columns = Columns(buffers.views)
    for header, body in group:
        done = columns.add(
            body,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.timestamp_type,
            start,
            end,
        )
        if not done:
            raise _malformed(topic, partition, header)
    if columns.row:
        try:
            arrays = buffers.arrays(columns, topic, partition, schema.names)
        except pa.ArrowInvalid:
            where = f"topic {topic} partition {partition} offset {group[0][0].base_offset}"
            raise CorruptBatch(f"{where}: the key of a header at or after it is not UTF-8") from None
        yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _malformed(topic: str, partition: int, header: BatchHeader) -> CorruptBatch:
    return CorruptBatch(
        f"topic {topic} partition {partition} offset {header.base_offset}: "
        f"the {header.record_count} records that the batch announces cannot be read"
    )


def _count_headers(topic: str, partition: int, group: Sequence[tuple[BatchHeader, Buffer]]) -> int:
    total = 0
    count = HeaderCount()
    for header, body in group:
        found = count.measure(body, header.record_count)
        if found < 0:
            raise _malformed(topic, partition, header)
        total += found
    return total


def _raw(size: int) -> pa.ResizableBuffer:
    return pa.allocate_buffer(max(size, 8), resizable=True)


def _repeated(kind: pa.DataType, rows: int, *one: pa.Buffer) -> pa.Array:
    """A column of one item, whose buffers are `one`; `pa.scalar` would import pandas, half a second of each process."""
    return pa.repeat(pa.Array.from_buffers(kind, 1, [None, *one])[0], rows)


class _Buffers:
    """The memory of one Arrow batch under construction, large enough for all there can be; `arrays` trims it."""

    def __init__(self, rows: int, size: int, entries: int | None) -> None:
        self.raw: dict[str, Any] = {
            "key_offsets": _raw(4 * (rows + 1)),
            "key_data": _raw(size),
            "value_offsets": _raw(4 * (rows + 1)),
            "value_data": _raw(size),
            "offsets": _raw(8 * rows),
            "timestamps": _raw(8 * rows),
            "types": _raw(4 * rows),
        }
        self.bits = {"key_bits": bytearray(rows + 7 >> 3), "value_bits": bytearray(rows + 7 >> 3)}
        casts: dict[str, Any] = dict.fromkeys(("key_offsets", "value_offsets", "types"), "i")
        casts |= {"offsets": "q", "timestamps": "q"}
        if entries is not None:
            self.raw |= {
                "header_starts": _raw(4 * (rows + 1)),
                "name_offsets": _raw(4 * (entries + 1)),
                "name_data": _raw(size),
                "content_offsets": _raw(4 * (entries + 1)),
                "content_data": _raw(size),
            }
            self.bits |= {"header_bits": bytearray(rows + 7 >> 3), "content_bits": bytearray(entries + 7 >> 3)}
            casts |= {"header_starts": "i", "name_offsets": "i", "content_offsets": "i"}
        self.views: dict[str, Any] = {"rows": rows, "entries": entries or 0}
        for name, buffer in self.raw.items():
            self.views[name] = memoryview(buffer).cast("B").cast(casts.get(name, "B"))
        self.views |= self.bits

    def _take(self, name: str, size: int) -> pa.Buffer:
        buffer = self.raw[name]
        self.views.pop(name)
        buffer.resize(size, shrink_to_fit=True)
        return buffer

    def _bits(self, name: str, nulls: int) -> pa.Buffer | None:
        return pa.py_buffer(self.bits[name]) if nulls else None

    def arrays(self, columns: Columns, topic: str, partition: int, names: Collection[str]) -> dict[str, pa.Array]:
        """The columns as arrays; the construction is over."""
        rows = columns.row
        timestamp = pa.timestamp("us", tz="UTC")
        made: dict[str, pa.Array] = {
            "key": pa.Array.from_buffers(
                pa.binary(),
                rows,
                [
                    self._bits("key_bits", columns.key_nulls),
                    self._take("key_offsets", 4 * (rows + 1)),
                    self._take("key_data", columns.key_end),
                ],
                columns.key_nulls,
            ),
            "value": pa.Array.from_buffers(
                pa.binary(),
                rows,
                [
                    self._bits("value_bits", columns.value_nulls),
                    self._take("value_offsets", 4 * (rows + 1)),
                    self._take("value_data", columns.value_end),
                ],
                columns.value_nulls,
            ),
            "offset": pa.Array.from_buffers(pa.int64(), rows, [None, self._take("offsets", 8 * rows)], 0),
            "timestamp": pa.Array.from_buffers(timestamp, rows, [None, self._take("timestamps", 8 * rows)], 0),
            "timestampType": pa.Array.from_buffers(pa.int32(), rows, [None, self._take("types", 4 * rows)], 0),
        }
        if "topic" in names:
            name = topic.encode()
            ends = pa.py_buffer((0).to_bytes(4, byteorder) + len(name).to_bytes(4, byteorder))
            made["topic"] = _repeated(pa.string(), rows, ends, pa.py_buffer(name))
        if "partition" in names:
            made["partition"] = _repeated(pa.int32(), rows, pa.py_buffer(partition.to_bytes(4, byteorder)))
        if "headers" in names:
            made["headers"] = self._headers(columns)
        return made

    def _headers(self, columns: Columns) -> pa.Array:
        entries = columns.entry
        keys = pa.Array.from_buffers(
            pa.string(),
            entries,
            [None, self._take("name_offsets", 4 * (entries + 1)), self._take("name_data", columns.name_end)],
            0,
        )
        values = pa.Array.from_buffers(
            pa.binary(),
            entries,
            [
                self._bits("content_bits", columns.content_nulls),
                self._take("content_offsets", 4 * (entries + 1)),
                self._take("content_data", columns.content_end),
            ],
            columns.content_nulls,
        )
        keys.validate(full=True)
        items = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE.value_type))
        starts = self._take("header_starts", 4 * (columns.row + 1))
        bits = self._bits("header_bits", columns.header_nulls)
        return pa.Array.from_buffers(HEADER_TYPE, columns.row, [bits, starts], columns.header_nulls, children=[items])
