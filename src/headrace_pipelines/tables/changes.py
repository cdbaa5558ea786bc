"""A batch of records as what it does to a table, in Arrow: which rows are new to it, and the last one of each key.

The columns of the table are called c0, c1 and so on, so that no name of theirs meets one of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.schemas import TIMESTAMP
from headrace_pipelines.tables.layout import JSON, Layout

PARTITION: Final = pa.field("partition", pa.int32())
OFFSET: Final = pa.field("offset", pa.int64())
WRITTEN: Final = pa.field("timestamp", TIMESTAMP)
DELETED: Final = pa.field("deleted", pa.bool_())
BUCKET: Final = pa.field("bucket", pa.int32())
_ROW: Final = "row"
_REACHED: Final = "reached"


def column_names(layout: Layout) -> list[str]:
    """What the columns of the table are called here."""
    return [f"c{number}" for number in range(len(layout.fields))]


def stored_type(kind: pa.DataType, *, nested_as_json: bool = False) -> pa.DataType:
    """The type of a column in a batch of changes: JSON is text there."""
    return pa.string() if kind == JSON or (nested_as_json and pa.types.is_nested(kind)) else kind


def schema_of(layout: Layout, *, buckets: bool = False, nested_as_json: bool = False) -> pa.Schema:
    """The columns of a batch of changes."""
    kinds = [stored_type(field.type, nested_as_json=nested_as_json) for field in layout.fields]
    columns = [pa.field(name, kind) for name, kind in zip(column_names(layout), kinds, strict=True)]
    return pa.schema([PARTITION, OFFSET, WRITTEN, DELETED, *([BUCKET] if buckets else []), *columns])


def beyond(changes: pa.Table, positions: Mapping[int, int]) -> pa.Table:
    """The changes at or after the next offset of their partition; all of a partition that is not named."""
    if not positions:
        return changes
    known = sorted(positions)
    at = pc.index_in(changes[PARTITION.name], value_set=pa.array(known, PARTITION.type))
    least = pc.take(pa.array([positions[partition] for partition in known], OFFSET.type), at)
    return changes.filter(pc.greater_equal(changes[OFFSET.name], pc.fill_null(least, 0)))


def positions_after(changes: pa.Table, positions: Mapping[int, int]) -> dict[int, int]:
    """The next offsets once these changes, all of them beyond `positions`, are applied."""
    ends = changes.group_by(PARTITION.name).aggregate([(OFFSET.name, "max")])
    reached = zip(ends[PARTITION.name].to_pylist(), ends[f"{OFFSET.name}_max"].to_pylist(), strict=True)
    return {**positions, **{partition: offset + 1 for partition, offset in reached}}


def in_order(changes: pa.Table) -> pa.Table:
    """The changes in an order in which they may be applied one by one: that of each partition.

    Between partitions it is that of the times at which they were written, as far as those go with the offsets.
    """
    keys = changes.select([PARTITION.name, OFFSET.name, WRITTEN.name])
    order = [(PARTITION.name, "ascending"), (OFFSET.name, "ascending")]
    numbered = keys.append_column(_ROW, _numbers(keys)).sort_by(order)
    sizes = pc.value_counts(numbered[PARTITION.name].combine_chunks()).field("counts").to_pylist()
    if len(sizes) > 1:
        times = numbered[WRITTEN.name].cast(pa.int64()).fill_null(0).combine_chunks()
        begins = [0, *accumulate(sizes)]
        reached = [pc.cumulative_max(times.slice(at, size)) for at, size in zip(begins, sizes, strict=False)]
        numbered = numbered.append_column(_REACHED, pa.chunked_array(reached))
        numbered = numbered.sort_by([(_REACHED, "ascending"), *order])
    return changes.take(numbered[_ROW])


def without_hidden(rows: pa.Table, layout: Layout) -> tuple[pa.Table, list[int]]:
    """Returns the rows that no later one of an identical key hides, deletes first, and their places.

    Of each key these are the last one and the last that deletes, for an upsert does not replace all of a row.
    """
    keys = column_names(layout)[: len(layout.key)]
    numbered = rows.select([*keys, DELETED.name]).append_column(_ROW, _numbers(rows))
    deletes = numbered.filter(numbered[DELETED.name])
    gone, last = (
        some.group_by(keys).aggregate([(_ROW, "max")])[f"{_ROW}_max"].combine_chunks().sort()
        for some in (deletes, numbered)
    )
    places = pa.concat_arrays([gone, last.filter(pc.invert(pc.is_in(last, deletes[_ROW])))])
    return rows.take(places), places.to_pylist()


def last_of_each_key(changes: pa.Table, layout: Layout) -> pa.Table:
    """Of each key the change to apply: the last one in its partition.

    A key belongs into one partition. Where it is in several, because partitions were added or a producer chose them,
    the change that was written last counts, by its timestamp.
    """
    keys = column_names(layout)[: len(layout.key)]
    in_order = changes.sort_by([(PARTITION.name, "ascending"), (OFFSET.name, "ascending")])
    latest = last_rows(in_order, [*keys, PARTITION.name])
    in_time = latest.sort_by([(WRITTEN.name, "ascending"), (PARTITION.name, "ascending")])
    return last_rows(in_time, keys)


def _numbers(rows: pa.Table) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(rows))), 1)


def last_rows(rows: pa.Table, keys: list[str]) -> pa.Table:
    """Of the rows with the same keys, the last one; in the order of the rows."""
    numbered = rows.select(keys).append_column(_ROW, _numbers(rows))
    last = numbered.group_by(keys).aggregate([(_ROW, "max")])[f"{_ROW}_max"]
    return rows.take(last.combine_chunks().sort())
