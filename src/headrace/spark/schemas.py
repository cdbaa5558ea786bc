"""The schema of values: read as Spark writes it (DDL or JSON), as an Arrow type, and written as DDL again.

Spark has a parser of its own, in the JVM, which a Python data source cannot reach when it says what its rows are.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
DURATION: Final = pa.duration("us")
TYPES: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(), "byte": pa.int8(),
    "smallint": pa.int16(), "short": pa.int16(),
    "int": pa.int32(), "integer": pa.int32(),
    "bigint": pa.int64(), "long": pa.int64(),
    "float": pa.float32(), "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP, "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "binary": pa.binary(),
}  # fmt: skip
"""What a field of a JSON value can be, beside decimals, arrays, maps and structs."""
DECIMALS: Final = ("decimal", "dec", "numeric")
DECIMAL_DIGITS_MAX: Final = 38
_DDL_NAMES: Final = {kind: name for name, kind in reversed(TYPES.items())} | {DURATION: "interval day to second"}
_TOKEN: Final = re.compile(
    r"""\s*(?:(`(?:[^`]|``)+`) | (\w+) | ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*") | ([<>(),:]))""", re.VERBOSE
)
_QUOTED, _WORD, _TEXT, _MARK, _END = range(1, 6)


def parse_schema(text: str) -> pa.StructType:
    """The fields that `text` names: `id BIGINT, name STRING`, with or without `struct<>` around, or a schema's JSON.

    Every field can be null, as with Spark's `from_json`, whatever the text says. Raises ValueError with a reason that
    goes into a sentence.
    """
    if text.lstrip().startswith("{"):
        return _json_schema(text)
    return _Ddl(text).schema()


def ddl(kind: pa.DataType) -> str:
    """A type as Spark's DDL has it."""
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{quoted(field.name)}: {ddl(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl(kind.key_type)}, {ddl(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _DDL_NAMES[kind]


def quoted(name: str) -> str:
    """A name that DDL takes, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def list_of(kind: pa.DataType) -> pa.ListType:
    """An array as Spark has it in Arrow."""
    return pa.list_(pa.field("element", kind))


def map_of(key: pa.DataType, value: pa.DataType) -> pa.MapType:
    """A map as Spark has it in Arrow."""
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))


def _object_of(key: pa.DataType, value: pa.DataType) -> pa.MapType:
    if not pa.types.is_string(key):
        raise ValueError(f"the keys of a map must be string, as in a JSON object, not {ddl(key)}")
    return map_of(key, value)


def struct_of(fields: list[pa.Field]) -> pa.StructType:
    """These fields. Raises ValueError with a reason where there are none, or one is there twice."""
    names = [field.name for field in fields]
    if not names:
        raise ValueError("it names no field")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"it names {twice[0]!r} twice")
    return pa.struct(fields)


def _simple(name: str) -> pa.DataType:
    kind = TYPES.get(name.lower())
    if kind is None:
        raise ValueError(f"a field cannot be {name!r}; there are {', '.join(TYPES)}, decimal, array, map and struct")
    return kind


def _decimal(precision: int, scale: int) -> pa.DataType:
    if not 1 <= precision <= DECIMAL_DIGITS_MAX or scale > precision:
        raise ValueError(f"there is no decimal({precision},{scale})")
    return pa.decimal128(precision, scale)


class _Ddl:
    """One pass over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[int, str]] = []
        text = text.rstrip()
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"{text[at:].strip()[:20]!r} cannot be read")
            kind = found.lastindex or _END
            self.tokens.append((kind, found[kind]))
            at = found.end()
        self.tokens.append((_END, ""))
        self.at = 0

    def schema(self) -> pa.StructType:
        (_, first), (_, second) = (*self.tokens, (_END, ""))[:2]
        if first.lower() == "struct" and second == "<":
            kind = self._type()
        else:
            kind = struct_of(self._fields(""))
        if self._next()[0] != _END:
            raise ValueError(f"{self.tokens[self.at - 1][1]!r} is too much")
        return kind

    def _next(self) -> tuple[int, str]:
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        self.at += 1
        return token

    def _took(self, *words: str) -> bool:
        """Whether these words come next; they are taken then."""
        coming = [text.lower() for _, text in self.tokens[self.at : self.at + len(words)]]
        if coming != list(words):
            return False
        self.at += len(words)
        return True

    def _expect(self, mark: str) -> None:
        kind, text = self._next()
        if kind != _MARK or text != mark:
            raise ValueError(f"{mark!r} is missing before {text!r}" if text else f"{mark!r} is missing at the end")

    def _fields(self, closing: str) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while True:
            if not fields and self.tokens[self.at][1] == closing:
                return fields
            kind, name = self._next()
            if kind not in (_QUOTED, _WORD):
                raise ValueError(f"a field's name is missing before {name!r}" if name else "the last field is missing")
            if kind == _QUOTED:
                name = name[1:-1].replace("``", "`")
            self._took(":")
            fields.append(pa.field(name, self._type()))
            self._took("not", "null")
            if self._took("comment") and self._next()[0] != _TEXT:
                raise ValueError("a comment needs quotation marks")
            if not self._took(","):
                return fields

    def _type(self) -> pa.DataType:
        kind, name = self._next()
        if kind != _WORD:
            raise ValueError(f"a type is missing before {name!r}" if name else "the type of the last field is missing")
        if name.lower() == "struct":
            self._expect("<")
            struct = struct_of(self._fields(">"))
            self._expect(">")
            return struct
        if name.lower() == "array":
            self._expect("<")
            items = list_of(self._type())
            self._expect(">")
            return items
        if name.lower() == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            pairs = _object_of(key, self._type())
            self._expect(">")
            return pairs
        if name.lower() in DECIMALS:
            digits = [10, 0]
            if self._took("("):
                digits[0] = self._number()
                if self._took(","):
                    digits[1] = self._number()
                self._expect(")")
            return _decimal(*digits)
        return _simple(name)

    def _number(self) -> int:
        _, text = self._next()
        if not text.isascii() or not text.isdigit():
            raise ValueError(f"{text!r} is not a number of digits")
        return int(text)


def _json_schema(text: str) -> pa.StructType:
    try:
        kind = _json_type(json.loads(text))
    except (KeyError, TypeError, RecursionError):
        raise ValueError("its JSON is not a schema") from None
    except json.JSONDecodeError:
        raise ValueError("it is not valid JSON") from None
    if not pa.types.is_struct(kind):
        raise ValueError("its JSON is not a struct")
    return kind


def _json_type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if found := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind):
            return _decimal(int(found[1]), int(found[2]))
        return _simple(kind)
    if kind["type"] == "struct":
        fields = [(field["name"], _json_type(field["type"])) for field in kind["fields"]]
        if not all(isinstance(name, str) for name, _ in fields):
            raise TypeError
        return struct_of([pa.field(name, each) for name, each in fields])
    if kind["type"] == "array":
        return list_of(_json_type(kind["elementType"]))
    if kind["type"] == "map":
        return _object_of(_json_type(kind["keyType"]), _json_type(kind["valueType"]))
    return _simple(str(kind["type"]))
