"""Avro values: read by fastavro one by one, made a column field by field.

The types are those of Spark's `from_avro` (4.2), and every field can be null. What differs: a time of day is a number,
also one in microseconds, as Spark's own type for it is off by default; a time in nanoseconds is a bigint also on Spark
4.3; and a union of other types than int with long, or float with double, is refused, as are a type that contains itself
and one that takes no bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from headrace.spark.columns import Build, list_column, map_column, nullable, plain, struct_column
from headrace.spark.schemas import DECIMAL_DIGITS_MAX, TIMESTAMP, TIMESTAMP_NTZ, list_of, map_of, struct_of
from headrace.spark.values import MalformedError, as_hex, in_pieces, spread

AVRO_ROWS: Final = 64 * 1024
"""Rows made a column at once."""
PRIMITIVES: Final = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type of Avro: what it is in Arrow, the schema that fastavro reads it by, and how a column is made of that."""

    type: pa.DataType
    read: Any
    build: Build


def avro_type(text: str) -> pa.StructType:
    """The fields of the record whose schema, Avro's JSON, this is. Raises ValueError with a reason that goes into a
    sentence.
    """
    return _record_of(text).type


class AvroDecoder:
    """Values that are each one record, written by the schema and nothing behind it."""

    def __init__(self, text: str, only: str | None = None) -> None:
        """`only` names the one field that is wanted, where not all are."""
        from fastavro import parse_schema, schemaless_reader

        kind = _record_of(text, only)
        self.type = kind.type
        self._build = kind.build
        self._schema = _bounded(parse_schema(kind.read))
        self._reader = schemaless_reader

    def decode(self, values: pa.Array) -> pa.Array:
        rows: list[Any] = []
        read, schema = self._reader, self._schema
        for value in values.to_pylist():
            stream = BytesIO(value)
            try:
                row = read(stream, schema)
            except (EOFError, LookupError, ValueError):
                row = None
            rows.append(row if stream.tell() == len(value) else None)
        sound = pa.array([row is not None for row in rows], pa.bool_())
        if sound.true_count == len(rows):
            return self._column(rows)
        return spread(self._column([row for row in rows if row is not None]), sound)

    def why(self, value: pa.Array) -> str:
        data = value[0].as_py()
        stream = BytesIO(data)
        try:
            row = self._reader(stream, self._schema)
        except KeyError as error:
            return f"it does not fit the schema (a union has no type {error})"
        except (EOFError, IndexError, ValueError) as error:
            if isinstance(error, ValueError) or stream.tell() < len(data):
                return f"it does not fit the schema ({error})"
            return "it ends before its record does"
        if left := len(data) - stream.tell():
            return f"{left} bytes are left behind its record"
        try:
            self._made([row])
        except MalformedError as error:
            return str(error)
        raise ValueError("nothing is wrong with the value")

    def shown(self, values: pa.Array) -> pa.Array:
        return as_hex(values)

    def _column(self, rows: list[Any]) -> pa.Array:
        return in_pieces(len(rows), AVRO_ROWS, lambda low, high: self._made(rows[low:high]), self.type)

    def _made(self, rows: list[Any]) -> pa.Array:
        try:
            return self._build(rows)
        except (pa.ArrowException, OverflowError) as error:
            raise MalformedError(f"it does not fit the schema ({error})") from None


def _bounded(schema: Any) -> Any:
    """A schema as fastavro has parsed it, the same, but a union looks its types up by their numbers alone.

    In a list a number below zero is a place from the end. fastavro's C adds the length to it by itself, so that has to
    be nothing.
    """
    if isinstance(schema, list):
        by_number = dict(enumerate(map(_bounded, schema)))
        lookup = {"__getitem__": by_number.__getitem__, "__len__": lambda _: 0}
        # a type of its own, so that no Python runs for a value
        return type("Union", (list,), lookup)(by_number.values())
    if isinstance(schema, dict):
        for field in schema.get("fields", ()):
            field["type"] = _bounded(field["type"])
        for inner in schema.keys() & {"items", "values"}:
            schema[inner] = _bounded(schema[inner])
    return schema


def _record_of(text: str, only: str | None = None) -> _Kind:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        schema = json.loads(text)
    except ValueError:
        raise ValueError("it is not valid JSON") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("it is not a record")
    try:
        parsed = parse_schema(schema)
    except UnknownType as error:
        raise ValueError(f"there is no type {error.name!r}") from None
    except SchemaParseException as error:
        raise ValueError(f"it is not an Avro schema ({error})") from None
    except (AttributeError, KeyError, TypeError, RecursionError):
        raise ValueError("it is not an Avro schema") from None
    return _Walk().record(parsed, (), only)


class _Walk:
    """One pass over a schema as fastavro has parsed it: full names, and a type written out where it is named first."""

    def __init__(self) -> None:
        self._named: dict[str, _Kind] = {}

    def record(self, schema: Any, inside: tuple[str, ...], only: str | None = None) -> _Kind:
        name = schema["name"]
        inner = [(field["name"], self.kind(field["type"], (*inside, name))) for field in schema["fields"]]
        if not inner:
            raise ValueError(f"{name} has no fields, and Spark has no type for that")
        read = {
            "type": "record", "name": name, "fields": [{"name": each, "type": kind.read} for each, kind in inner]
        }  # fmt: skip
        wanted = [(each, kind) for each, kind in inner if only in (None, each)]
        fields = struct_of([pa.field(each, kind.type) for each, kind in wanted])
        return _Kind(fields, read, struct_column(fields, [kind.build for _, kind in wanted]))

    def kind(self, schema: Any, inside: tuple[str, ...]) -> _Kind:
        if isinstance(schema, list):
            return self._union(schema, inside)
        if isinstance(schema, str):
            schema = {"type": schema}
        what = schema["type"]
        if again := {what, schema.get("name")} & set(inside):
            raise ValueError(f"{again.pop()} contains itself, and Spark has no type for that")
        if what in self._named:
            return self._named[what]
        if what in PRIMITIVES:
            return _primitive(schema)
        if what == "array":
            inner = self.kind(schema["items"], inside)
            kind = list_of(inner.type)
            return _Kind(kind, {"type": what, "items": inner.read}, list_column(kind, inner.build))
        if what == "map":
            inner = self.kind(schema["values"], inside)
            kind = map_of(pa.string(), inner.type)
            return _Kind(kind, {"type": what, "values": inner.read}, map_column(kind, plain(pa.string()), inner.build))
        if what == "null":
            raise ValueError("null occurs alone, outside of a union")
        found = self._written_out(schema, inside)
        # the name is enough from now on
        read = found.read if what == "enum" else schema["name"]
        self._named[schema["name"]] = _Kind(found.type, read, found.build)
        return found

    def _written_out(self, schema: Any, inside: tuple[str, ...]) -> _Kind:
        """A type that has a name."""
        name, what = schema["name"], schema["type"]
        if what in ("record", "error"):
            return self.record(schema, inside)
        if what == "enum":
            # as a number: fastavro takes one below zero for a symbol from the end
            return _Kind(pa.string(), "int", _enum(schema["symbols"]))
        if schema["size"] < 1:
            raise ValueError(f"{name} takes no bytes")
        read = {"type": "fixed", "name": name, "size": schema["size"]}
        return _decimal(schema, read) or _Kind(pa.binary(), read, plain(pa.binary()))

    def _union(self, schema: list[Any], inside: tuple[str, ...]) -> _Kind:
        branches = [branch for branch in schema if _is(branch) != "null"]
        kinds = [self.kind(branch, inside) for branch in branches]
        if not kinds:
            raise ValueError("null occurs alone, outside of a union")
        read = ["null" if _is(branch) == "null" else kinds[branches.index(branch)].read for branch in schema]
        build = kinds[0].build
        if len(kinds) > 1:
            names = [_is(branch) for branch in branches]
            both = {frozenset(("int", "long")): pa.int64(), frozenset(("float", "double")): pa.float64()}
            wide = both.get(frozenset(names)) if len(names) == 2 else None
            if wide is None:
                raise ValueError(
                    f"it has a union of {' and '.join(names)}; unions are of null and one type, of int and long, or of "
                    "float and double"
                )
            return _Kind(wide, read, plain(wide))
        kind = kinds[0].type
        # a value that is not nested takes null as it is
        return _Kind(kind, read, nullable(build) if pa.types.is_nested(kind) else build)


def _is(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _primitive(schema: dict[str, Any]) -> _Kind:
    what, logical = schema["type"], schema.get("logicalType")
    if what == "bytes" and (decimal := _decimal(schema, what)):
        return decimal
    kind, build = _LOGICAL.get((what, logical), (PRIMITIVES[what], plain(PRIMITIVES[what])))
    return _Kind(kind, what, build)


def _decimal(schema: dict[str, Any], read: Any) -> _Kind | None:
    """Bytes as a decimal, if that is what they are; an ill-made one is bytes, as in Avro's own library."""
    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return None
    if "size" in schema and 10**precision > 1 << (8 * schema["size"] - 1):
        return None
    if precision > DECIMAL_DIGITS_MAX:
        raise ValueError(f"there is no decimal({precision},{scale})")
    kind = pa.decimal128(precision, scale)
    return _Kind(kind, read, lambda items: _decimals(items, kind))


def _decimals(items: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """Numbers out of their bytes, two's complement with the highest first."""
    words = [
        None if item is None else int.from_bytes(item, "big", signed=True).to_bytes(16, "little", signed=True)
        for item in items
    ]
    column = pa.Array.from_buffers(kind, len(words), pa.array(words, pa.binary(16)).buffers())
    column.validate(full=True)
    return column


def _enum(symbols: list[str]) -> Build:
    names = pa.array(symbols, pa.string())
    return lambda items: names.take(pa.array(items, pa.int32()))


def _viewed(stored: pa.DataType, kind: pa.DataType) -> Build:
    return lambda items: pa.array(items, stored).view(kind)


def _cast(stored: pa.DataType, kind: pa.DataType) -> Build:
    return lambda items: pa.array(items, stored).cast(kind)


_LOGICAL: Final[dict[tuple[str, str | None], tuple[pa.DataType, Callable[[list[Any]], pa.Array]]]] = {
    ("int", "date"): (pa.date32(), _viewed(pa.int32(), pa.date32())),
    ("long", "timestamp-micros"): (TIMESTAMP, _viewed(pa.int64(), TIMESTAMP)),
    ("long", "timestamp-millis"): (TIMESTAMP, _cast(pa.timestamp("ms", tz="UTC"), TIMESTAMP)),
    ("long", "local-timestamp-micros"): (TIMESTAMP_NTZ, _viewed(pa.int64(), TIMESTAMP_NTZ)),
    ("long", "local-timestamp-millis"): (TIMESTAMP_NTZ, _cast(pa.timestamp("ms"), TIMESTAMP_NTZ)),
}
