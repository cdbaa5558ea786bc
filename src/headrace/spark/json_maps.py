"""JSON objects as maps: each is rewritten as the list of its pairs, which is how Arrow's reader takes a map.

Most maps are read many at once by `json_flat_maps`; what it does not take is rewritten here, value by value. Only
punctuation is: every key and number keeps its text, so that Arrow's reader alone decides which values are malformed
here too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from headrace.spark.json_flat_maps import FlatMaps, flat_maps
from headrace.spark.json_values import JSON_ROWS, JsonDecoder
from headrace.spark.values import Decoder, MalformedError, as_text, joined

FLAT_ROWS: Final = 1024
"""Values that are not read at once are tried again in pieces of so many, before they are rewritten one by one."""
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SCALAR: Final = re.compile(
    r"""("[^"\\]*")[ \t\r\n]*:[ \t\r\n]*("[^"\\]*"|[^ \t\r\n"\[\]{},:]+)[ \t\r\n]*([,}])[ \t\r\n]*"""
)
"""A key without an escape, what it names where that is one word or a text without an escape, and what follows."""
_SCAN: Final = json.JSONDecoder(strict=False, parse_int=float).raw_decode
"""Only where a value ends is asked; an integer of Python's has a limit of digits."""
_NO_JSON: Final = "it is not JSON"

Rewrite = Callable[[str, int], tuple[str, int]]
"""From a text and where a value begins in it: the value as Arrow is to read it, and where it ends."""


def json_decoder(schema: pa.StructType) -> Decoder:
    """How values that are JSON objects of these fields are decoded."""
    plain, rewrite = JsonDecoder(schema), _rewrite(schema)
    return plain if rewrite is None else MapsDecoder(plain, rewrite, flat_maps(schema))


class MapsDecoder:
    """Values that are JSON objects, by a schema with maps in it, whose keys are strings: see `JsonDecoder`.

    A key that a map has twice is malformed, as is a field's name that an object has twice.
    """

    def __init__(self, pairs: JsonDecoder, rewrite: Rewrite, flat: FlatMaps | None = None) -> None:
        self.type = pairs.type
        self._pairs = pairs
        self._rewrite = rewrite
        self._flat = flat

    def decode(self, values: pa.Array) -> pa.Array:
        if self._flat is None:
            return self._one_by_one(values)
        pieces = [self._at_once(values.slice(start, JSON_ROWS)) for start in range(0, len(values), JSON_ROWS)]
        return joined(pieces, self.type)

    def _at_once(self, values: pa.Array) -> pa.Array:
        """The column of values that are read together where that goes, else in pieces, else one by one."""
        assert self._flat is not None
        try:
            return self._flat.column(values)
        except MalformedError:
            if len(values) <= FLAT_ROWS:
                return self._one_by_one(values)
        pieces = [self._at_once(values.slice(start, FLAT_ROWS)) for start in range(0, len(values), FLAT_ROWS)]
        return joined(pieces, self.type)

    def _one_by_one(self, values: pa.Array) -> pa.Array:
        written = [self._written(value) for value in values.to_pylist()]
        return self._pairs.decode(pa.array(written, pa.binary()))

    def why(self, value: pa.Array) -> str:
        try:
            written = self._rewritten(value[0].as_py())
        except MalformedError as error:
            return str(error)
        return self._pairs.why(pa.array([written], pa.binary()))

    def shown(self, values: pa.Array) -> pa.Array:
        return as_text(values)

    def _written(self, value: bytes) -> bytes:
        """As Arrow is to read it; nothing, which is malformed too, for what cannot be rewritten."""
        try:
            return self._rewritten(value)
        except MalformedError:
            return b""

    def _rewritten(self, value: bytes) -> bytes:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return value
        written, end = self._rewrite(text, _space(text, 0))
        return (written + text[end:]).encode()


def _rewrite(kind: pa.DataType) -> Rewrite | None:
    """How a value of this type is rewritten; None where there is no map in it."""
    if pa.types.is_map(kind):
        inner = _rewrite(kind.item_type) or _as_it_is
        return lambda text, at: _map(inner, text, at)
    if pa.types.is_struct(kind):
        fields = {field.name: rewrite for field in kind if (rewrite := _rewrite(field.type)) is not None}
        return (lambda text, at: _struct(fields, text, at)) if fields else None
    if pa.types.is_list(kind) and (each := _rewrite(kind.value_type)) is not None:
        return lambda text, at: _list(each, text, at)
    return None


def _as_it_is(text: str, at: int) -> tuple[str, int]:
    end = _end(text, at)
    return text[at:end], end


def _map(inner: Rewrite, text: str, at: int) -> tuple[str, int]:
    if text.startswith("null", at):
        return _as_it_is(text, at)
    if not text.startswith("{", at):
        raise MalformedError("a field declared as a map is not a JSON object")
    pairs: list[str] = []
    names: set[str] = set()
    more, at = _first(text, at + 1, "}")
    while more:
        scalar = _SCALAR.match(text, at) if inner is _as_it_is else None
        if scalar is not None:
            key, value, mark = scalar.groups()
            name, at, more = key[1:-1], scalar.end(), mark == ","
        else:
            name, key, at = _name(text, at)
            value, at = inner(text, at)
            more, at = _next(text, at, "}")
        if name in names:
            raise MalformedError(f"a map has the key {name!r} twice")
        names.add(name)
        pairs.append(f'{{"key":{key},"value":{value}}}')
    return f"[{','.join(pairs)}]", at


def _struct(fields: Mapping[str, Rewrite], text: str, at: int) -> tuple[str, int]:
    if not text.startswith("{", at):
        return _as_it_is(text, at)
    pieces: list[str] = []
    copied = at
    more, at = _first(text, at + 1, "}")
    while more:
        scalar = _SCALAR.match(text, at)
        if scalar is not None and scalar[1][1:-1] not in fields:
            at, more = scalar.end(), scalar[3] == ","
            continue
        name, _, at = _name(text, at)
        rewrite = fields.get(name)
        if rewrite is None:
            at = _end(text, at)
        else:
            pieces.append(text[copied:at])
            piece, copied = rewrite(text, at)
            pieces.append(piece)
            at = copied
        more, at = _next(text, at, "}")
    return "".join([*pieces, text[copied:at]]), at


def _list(each: Rewrite, text: str, at: int) -> tuple[str, int]:
    if not text.startswith("[", at):
        return _as_it_is(text, at)
    items: list[str] = []
    more, at = _first(text, at + 1, "]")
    while more:
        item, at = each(text, at)
        items.append(item)
        more, at = _next(text, at, "]")
    return f"[{','.join(items)}]", at


def _space(text: str, at: int) -> int:
    """Where white space ends."""
    found = _SPACE.match(text, at)
    assert found is not None, "none is white space too"
    return found.end()


def _first(text: str, at: int, closing: str) -> tuple[bool, int]:
    """Whether there is an item behind the bracket, and where it begins; else where the brackets end."""
    at = _space(text, at)
    return (False, at + 1) if text.startswith(closing, at) else (True, at)


def _next(text: str, at: int, closing: str) -> tuple[bool, int]:
    """The same of the item behind one that ends here."""
    at = _space(text, at)
    if text.startswith(",", at):
        return True, _space(text, at + 1)
    if text.startswith(closing, at):
        return False, at + 1
    raise MalformedError(_NO_JSON)


def _name(text: str, at: int) -> tuple[str, str, int]:
    """A key, as it is written, and where what it names begins."""
    name, end = _scanned(text, at)
    colon = _space(text, end)
    if not isinstance(name, str) or not text.startswith(":", colon):
        raise MalformedError(_NO_JSON)
    return name, text[at:end], _space(text, colon + 1)


def _end(text: str, at: int) -> int:
    """Where a value ends."""
    return _scanned(text, at)[1]


def _scanned(text: str, at: int) -> tuple[Any, int]:
    try:
        return _SCAN(text, at)
    except json.JSONDecodeError:
        raise MalformedError(_NO_JSON) from None
    except RecursionError:
        raise MalformedError("it is nested too deeply") from None
