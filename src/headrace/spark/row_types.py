"""The columns of a row as Spark's DDL has them. Spark asks for them first, in a process of its own, and that one need
not import Arrow, which takes a tenth of a second: neither this module nor `options` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.spark.value_formats import RAW, ValueFormat

RECORD_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""The columns of Spark's own Kafka connector."""
HEADERS: Final = "headers"
CORRUPT: Final = "_corrupt_record"
EVENT_TIME: Final = "event_time"
"""Columns beside those."""
_TYPES: Final = {
    **RECORD_TYPES,
    HEADERS: "array<struct<`key`: string, `value`: binary>>",
    CORRUPT: "string",
    EVENT_TIME: "timestamp",
}


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Which columns a row has, in their order, and how values are decoded."""

    columns: tuple[str, ...] = tuple(RECORD_TYPES)
    value: ValueFormat = RAW
    fail_fast: bool = False
    event_time: str = ""


WHOLE_ROW: Final = RowOptions()
"""All columns of the connector, with raw values."""


def row_ddl(row: RowOptions) -> str:
    """The row as Spark's DDL."""
    return ", ".join(f"`{name}` {_value_type(row) if name == 'value' else _TYPES[name]}" for name in row.columns)


def _value_type(row: RowOptions) -> str:
    if row.value.name == "string":
        return "string"
    if row.value.fields is None:
        return _TYPES["value"]
    from headrace.spark.schemas import ddl

    return ddl(row.value.fields)
