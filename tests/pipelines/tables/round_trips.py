"""A table through a topic into another one, without a broker and without Spark: what is between them is a list."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from headrace.arrow.decode import HEADERS_FIELD
from headrace.spark.schemas import TIMESTAMP
from headrace_pipelines.tables.changes import BUCKET, DELETED, OFFSET, PARTITION, WRITTEN, schema_of
from headrace_pipelines.tables.decoding import KEY, VALUE, RecordDecoder
from headrace_pipelines.tables.following import Target, Topic
from headrace_pipelines.tables.layout import Layout
from headrace_pipelines.tables.moments import Position, look_back_of
from headrace_pipelines.tables.row_format import Limits
from headrace_pipelines.tables.watching import Acknowledged, Source, Watcher

TOPIC = Topic("rows")
RECORDS = pa.schema(
    [KEY, VALUE, ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", TIMESTAMP), HEADERS_FIELD]
)

Record = tuple[bytes | None, bytes | None]


def records_of(source: Source, page_rows: int = 4) -> list[Record]:
    """What a run from a table sends that begins anew."""
    found: list[Record] = []

    def send(rows: pa.RecordBatch) -> None:
        columns = (rows[name].cast(pa.binary()).to_pylist() for name in ("key", "value"))
        found.extend(zip(*columns, strict=True))

    source.check()
    with TemporaryDirectory() as directory:
        ledger = Acknowledged(send, Position(Path(directory)))
        for _ in Watcher(source, ledger, look_back_of("0"), page_rows).look():
            pass
    return found


def as_fetched(records: Sequence[Record]) -> pa.RecordBatch:
    """Records as the workers have them."""
    keys, values = zip(*records, strict=True) if records else ((), ())
    count = len(records)
    columns = [keys, values, [0] * count, range(count), [0] * count, [None] * count]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, RECORDS, strict=True)], schema=RECORDS)


def decoder_of(layout: Layout, target: Target) -> RecordDecoder:
    """What the workers do for a target."""
    limits = Limits(nul=target.takes_nul, endless=target.takes_endless)
    return RecordDecoder(layout, target.nested_as_json, limits)


def decoded_of(decoder: RecordDecoder, fetched: pa.RecordBatch) -> pa.RecordBatch:
    """What the driver gets of records."""
    decoded = decoder.decode(fetched["key"], fetched["value"], fetched["headers"])
    columns = [fetched[name] for name in ("partition", "offset", "timestamp")]
    return pa.RecordBatch.from_arrays(
        [*columns, *decoded.columns], schema=pa.schema([PARTITION, OFFSET, WRITTEN, *decoded.schema])
    )


def changes_of(records: Sequence[Record], layout: Layout, target: Target) -> pa.Table:
    """The changes that a target takes; all records are readable."""
    decoded = decoded_of(decoder_of(layout, target), as_fetched(records))
    assert decoded["reason"].null_count == len(records), decoded["reason"].drop_null().to_pylist()
    changes = pa.Table.from_batches([decoded]).drop_columns(["reason"])
    if target.buckets:
        buckets = [zlib.crc32(key or b"") % target.buckets for key, _ in records]
        place = changes.schema.get_field_index(DELETED.name) + 1
        changes = changes.add_column(place, BUCKET, pa.array(buckets, BUCKET.type))
    schema = schema_of(layout, buckets=bool(target.buckets), nested_as_json=target.nested_as_json)
    return changes.cast(schema)


def carry(source: Source, layout: Layout, target: Target) -> list[Record]:
    """All rows of one table into another; the records between them."""
    records = records_of(source)
    target.open(TOPIC, "run")
    target.apply(changes_of(records, layout, target))
    return records
