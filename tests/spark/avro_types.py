"""Types of Avro and what Spark's `from_avro` makes of them, for the tests of ours and one that asks Spark itself."""

from __future__ import annotations

from typing import Any


def _logical(kind: str, logical: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


TYPES: list[tuple[Any, str]] = [
    ("boolean", "boolean"),
    ("int", "int"),
    ("long", "bigint"),
    ("float", "float"),
    ("double", "double"),
    ("bytes", "binary"),
    ("string", "string"),
    (_logical("int", "date"), "date"),
    (_logical("int", "time-millis"), "int"),
    (_logical("long", "timestamp-millis"), "timestamp"),
    (_logical("long", "timestamp-micros"), "timestamp"),
    (_logical("long", "local-timestamp-millis"), "timestamp_ntz"),
    (_logical("long", "local-timestamp-micros"), "timestamp_ntz"),
    (_logical("string", "uuid"), "string"),
    (_logical("string", "date"), "string"),
    (_logical("fixed", "duration", name="F", size=12), "binary"),
    (_logical("bytes", "decimal", precision=10, scale=2), "decimal(10,2)"),
    (_logical("bytes", "decimal", precision=10), "decimal(10,0)"),
    (_logical("fixed", "decimal", name="F", size=9, precision=20, scale=2), "decimal(20,2)"),
    (_logical("long", "decimal", precision=5, scale=2), "bigint"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string"),
    ({"type": "array", "items": ["null", "int"]}, "array<int>"),
    ({"type": "map", "values": {"type": "map", "values": "long"}}, "map<string,map<string,bigint>>"),
    (["null", "string"], "string"),
    (["string"], "string"),
    (["int", "long"], "bigint"),
    (["null", "long", "int"], "bigint"),
    (["double", "float"], "double"),
    (["null", _logical("long", "timestamp-millis"), "int"], "bigint"),
    ({"type": "record", "name": "X", "fields": [{"name": "a", "type": "int"}]}, "struct<a:int>"),
]
"""Written as Avro's JSON, and as Spark's DDL."""
