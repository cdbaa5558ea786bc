"""The columns of a table that follows a topic: those of the record's key, and those of its value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from headrace.spark.schemas import ddl, parse_schema, quoted

KeyFormat = Literal["text", "json"]
"""A key of one column is that column's text; one of several, or where it is asked for, a JSON object of them."""
KEY_FORMATS: Final[tuple[KeyFormat, ...]] = ("text", "json")
JSON: Final = pa.large_string()
"""The type here of a column that holds any JSON, as text; Spark calls it VARIANT. No type of Spark's is this one."""
VARIANT: Final = "variant"
_PART: Final = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and types of the columns: first the key's, which name a row, then the value's."""

    key: pa.StructType
    value: pa.StructType
    key_format: KeyFormat

    @property
    def fields(self) -> list[pa.Field]:
        """All columns in their order."""
        return [*self.key, *self.value]

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [field.name for field in self.fields]

    @property
    def key_names(self) -> list[str]:
        """The names of the columns that name a row."""
        return [field.name for field in self.key]

    def stored(self) -> dict[str, str]:
        """The layout as texts: what a checkpoint and a manifest keep of it."""
        return {"key": ddl_of(self.key), "value": ddl_of(self.value), "key_format": self.key_format}


def type_name(kind: pa.DataType) -> str:
    """A type as DDL says it."""
    return VARIANT if kind == JSON else ddl(kind)


def ddl_of(columns: pa.StructType) -> str:
    """Columns as DDL says them."""
    return ", ".join(f"{quoted(column.name)} {type_name(column.type)}" for column in columns)


def columns_of(text: str) -> pa.StructType:
    """The columns that DDL says, VARIANT among their types. Raises ValueError with a reason that goes into a sentence.

    Only a column can be a VARIANT, and no part of one.
    """
    parts = _PART.findall(text)
    variants: set[int] = set()
    number = depth = words = 0
    for place, part in enumerate(parts):
        if part in ("<", "("):
            depth += 1
        elif part in (">", ")"):
            depth -= 1
        elif not depth and part == ",":
            number, words = number + 1, 0
        elif not depth and not part.isspace() and part != ":":
            words += 1
            if words == 2 and part.lower() == VARIANT:
                variants.add(number)
                parts[place] = "STRING"
    columns = parse_schema("".join(parts))
    fields = [field.with_type(JSON) if place in variants else field for place, field in enumerate(columns)]
    return pa.struct(fields)


def layout_of(key: str, value: str, key_format: str | None = None) -> Layout:
    """The layout that two texts of DDL say. Raises ValueError, in one sentence, for an invalid layout."""
    if not value.strip():
        raise ValueError("the columns of the value are missing, such as 'name STRING, price DOUBLE'")
    try:
        columns = columns_of(key)
    except ValueError as error:
        raise ValueError(f"the key's columns must look like 'id BIGINT', but {error}") from None
    try:
        values = columns_of(value)
    except ValueError as error:
        raise ValueError(f"the value's columns must look like 'name STRING, price DOUBLE', but {error}") from None
    if nested := [column.name for column in columns if pa.types.is_nested(column.type) or column.type == JSON]:
        raise ValueError(f"the key's column {nested[0]!r} is not a single value")
    form = key_format or ("text" if columns.num_fields == 1 else "json")
    if form not in KEY_FORMATS:
        raise ValueError(f"the format of keys must be {' or '.join(KEY_FORMATS)}, not {form!r}")
    if form == "text" and columns.num_fields > 1:
        raise ValueError("a text key has one column; for several columns the key format must be json")
    layout = Layout(columns, values, "text" if form == "text" else "json")
    seen: dict[str, str] = {}
    for name in layout.names:
        if "\0" in name:
            raise ValueError("a column's name must not have a NUL in it")
        # SQLite and Spark do not tell them apart
        if name.lower() in seen:
            raise ValueError(f"two columns have the names {seen[name.lower()]!r} and {name!r}; name each column once")
        seen[name.lower()] = name
    return layout
