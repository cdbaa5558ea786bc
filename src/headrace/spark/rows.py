"""The rows that a read delivers: which columns, of which types, and how they come out of decoded records."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headrace.arrow.decode import COLUMN_NAMES, FIELDS, HEADERS_FIELD, schema_of
from headrace.spark.row_types import CORRUPT, EVENT_TIME, RowOptions
from headrace.spark.schemas import TIMESTAMP

_MS_MAX: Final = (1 << 63) // 1000 - 1
"""Milliseconds that are still a timestamp in microseconds."""


class MalformedValueError(Exception):
    """A value that does not decode, in a read that is to end then."""


def row_schema(row: RowOptions) -> pa.Schema:
    """The columns as Arrow has them, and as Spark expects them."""
    added = (pa.field(CORRUPT, pa.string()), pa.field(EVENT_TIME, TIMESTAMP))
    fields = {field.name: field for field in (*FIELDS, HEADERS_FIELD, *added)}
    if row.value.name == "string":
        fields["value"] = pa.field("value", pa.string())
    elif row.value.name != "raw":
        fields["value"] = pa.field("value", row.value.fields)
    return pa.schema([fields[name] for name in row.columns])


class Rows:
    """Makes the rows of a read out of decoded records: values typed, columns chosen."""

    def __init__(self, row: RowOptions) -> None:
        self.schema = row_schema(row)
        self._row = row
        chosen = set(row.columns)
        fields = [field.name for field in row.value.fields or ()]
        self._timed_by_value = EVENT_TIME in chosen and row.event_time in fields
        self._decoder = None
        if chosen & {"value", CORRUPT}:
            self._decoder = row.value.decoder()
        elif self._timed_by_value:
            self._decoder = row.value.decoder(only=row.event_time)
        needed = {name for name in COLUMN_NAMES if name in chosen and (name != "value" or row.value.name == "raw")}
        if self._decoder is not None:
            needed |= {"value", "offset"}
        if EVENT_TIME in chosen and not self._timed_by_value:
            needed.add("timestamp")
        self.fetched = schema_of(needed)
        """What of the records has to be there."""

    def of(self, records: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
        """The rows of records that have the columns `fetched`. Raises `MalformedValueError` in the mode FAILFAST."""
        if self.fetched.equals(self.schema):
            return records
        made = {name: records.column(name) for name in self.fetched.names}
        if EVENT_TIME in self.schema.names and not self._timed_by_value:
            made[EVENT_TIME] = made["timestamp"]
        if self._decoder is not None:
            from headrace.spark.values import decode_values

            raw = made["value"]
            decoded = decode_values(raw, self._decoder)
            if decoded.corrupt is not None and self._row.fail_fast:
                row = decoded.corrupt.is_valid().index(True).as_py()
                raise self._malformed(raw.slice(row, 1), f"topic {topic} partition {partition}", made["offset"][row])
            made["value"] = decoded.column
            made[CORRUPT] = pa.nulls(len(raw), pa.string()) if decoded.corrupt is None else decoded.corrupt
            if self._timed_by_value:
                place = decoded.column.type.get_field_index(self._row.event_time)
                made[EVENT_TIME] = _times(decoded.column, place)
        return pa.RecordBatch.from_arrays([made[name] for name in self.schema.names], schema=self.schema)

    def _malformed(self, value: pa.Array, where: str, offset: pa.Scalar) -> MalformedValueError:
        assert self._decoder is not None
        why = self._decoder.why(value).rstrip(".")
        return MalformedValueError(
            f"{where} offset {offset.as_py()}: the value is malformed, {why}. "
            f"Set the option mode to PERMISSIVE to have such values in the column {CORRUPT}."
        )


def _times(values: pa.StructArray, place: int) -> pa.Array:
    """A field as an event's time; null where it is null, or further away than a timestamp goes."""
    # it takes the time of a tenth of a query's start to import, and most reads do without
    import pyarrow.compute as pc

    field = pc.struct_field(values, [place])
    if pa.types.is_timestamp(field.type):
        return field
    reachable = pc.and_(pc.less_equal(field, _MS_MAX), pc.greater_equal(field, -_MS_MAX))
    near = pc.if_else(reachable, field, pa.scalar(None, pa.int64()))
    return near.cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
