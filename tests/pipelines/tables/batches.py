"""Batches of changes as the tests write them, and two tables to apply them to."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from headrace_pipelines.tables.changes import schema_of
from headrace_pipelines.tables.layout import Layout, layout_of

T0 = datetime(2026, 11, 21, tzinfo=UTC)
PRICES = layout_of("id BIGINT", "name STRING, price DOUBLE")

Change = tuple[int, int, Any, tuple[Any, ...] | None]
"""Partition, offset, key (a tuple where it has several columns), and the value's columns; None deletes."""


def batch(*changes: Change, layout: Layout = PRICES, buckets: int = 0, nested_as_json: bool = True) -> pa.Table:
    """Changes as a target takes them, a second apart."""
    schema = schema_of(layout, buckets=bool(buckets), nested_as_json=nested_as_json)
    rows = []
    for number, (partition, offset, key, value) in enumerate(changes):
        keys = key if isinstance(key, tuple) else (key,)
        values = (None,) * len(layout.value) if value is None else value
        bucket = (zlib.crc32(repr(keys).encode()) % buckets,) if buckets else ()
        rows.append((partition, offset, T0 + timedelta(seconds=number), value is None, *bucket, *keys, *values))
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema)
