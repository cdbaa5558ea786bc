"""Maps of what is no object or array, many at once: Arrow's regular expressions write pairs, its reader reads them.

A batch is read so as a whole or refused, and then `json_maps` looks at each value. What is refused here need not be
malformed; what is read here is what `json_maps` would have read.

The first object that the field's name stands before, wherever that is, becomes a list of pairs under names that nobody
can know. Where it is the field that the schema declares, Arrow's reader takes the list for it. Where it is not, the
reader passes it over with what holds it, or refuses the batch: the field itself is then still an object. Within a text
the name cannot stand so, since quotes are escaped there. A list that stood in the map's place has no such pairs.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.json_values import JsonDecoder
from headrace.spark.schemas import list_of
from headrace.spark.values import MalformedError

_TEXT: Final = r'"(?:[^"\\]|\\.)*"'
_ITEM: Final = rf'(?:{_TEXT}|[^ \t\r\n"\[\]{{}},:]+)'
_SPACE: Final = r"[ \t\r\n]*"
"""JSON's alone: other white space must not get lost, since it is malformed."""
_PAIR: Final = rf"{_TEXT}{_SPACE}:{_SPACE}{_ITEM}{_SPACE}"
_PAIRS: Final = rf"(?:{_PAIR}(?:,{_SPACE}{_PAIR})*)?"
_ONE_PAIR: Final = rf"(?s)({_TEXT}){_SPACE}:{_SPACE}({_ITEM})"


def flat_maps(schema: pa.StructType) -> FlatMaps | None:
    """How values of these fields are read at once; None where a map is not a field of the value, or not flat."""
    if any(_has_map(field.type) for field in schema if not pa.types.is_map(field.type)):
        return None
    maps = [field for field in schema if pa.types.is_map(field.type)]
    return FlatMaps(schema) if maps and not any(pa.types.is_nested(field.type.item_type) for field in maps) else None


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    if pa.types.is_list(kind):
        return _has_map(kind.value_type)
    return pa.types.is_struct(kind) and any(_has_map(field.type) for field in kind)


class FlatMaps:
    """Values that are JSON objects, some of their fields maps of strings to what is no object and no array."""

    def __init__(self, schema: pa.StructType) -> None:
        self._schema = schema
        secret = secrets.token_hex(4)
        self._key, self._item, self._empty = "k" + secret, "v" + secret, "e" + secret
        self._reader = JsonDecoder(pa.struct([field.with_type(self._as_read(field.type)) for field in schema]))
        self._places = [_place(field.name) for field in schema if pa.types.is_map(field.type)]
        self._pair = rf'{{"{self._key}":\1,"{self._item}":\2}}'
        self._no_pair = b'{"%s":"%s"}' % (self._key.encode(), self._empty.encode())

    def column(self, values: pa.Array) -> pa.Array:
        """The column, without a null. Raises `MalformedError` where it cannot be read so, of whatever value."""
        for place in self._places:
            values = self._in_pairs(values, place)
        read = self._reader.sound(values)
        arrays = [
            self._map(read.field(index), field.type) if pa.types.is_map(field.type) else read.field(index)
            for index, field in enumerate(self._schema)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(self._schema))

    def _as_read(self, kind: pa.DataType) -> pa.DataType:
        if not pa.types.is_map(kind):
            return kind
        return list_of(pa.struct([pa.field(self._key, kind.key_type), pa.field(self._item, kind.item_type)]))

    def _in_pairs(self, values: pa.Array, place: str) -> pa.Array:
        """Values with a list of pairs in the place of a map, an empty map with a pair that says so."""
        found = pc.extract_regex(values, place)
        if found.null_count == len(values):
            return values
        before, pairs, behind = found.flatten()
        written = pc.replace_substring_regex(pairs, _ONE_PAIR, self._pair)
        written = pc.if_else(pc.equal(pc.binary_length(pairs), 0), self._no_pair, written)
        joined = pc.binary_join_element_wise(before, b"[", written, b"]", behind, b"")
        return pc.coalesce(joined, values) if joined.null_count else joined

    def _map(self, lists: pa.ListArray, kind: pa.MapType) -> pa.MapArray:
        """Lists of pairs as maps. Raises `MalformedError` for a list that was none of ours, and for a key that is
        there twice."""
        keys, items = lists.flatten().flatten()
        lengths = pc.list_value_length(lists)
        if keys.null_count or pc.any(pc.equal(lengths, 0)).as_py():
            raise MalformedError("a field declared as a map is not a JSON object")
        offsets = _from_zero(pc.cumulative_sum(lengths.fill_null(0)))
        codes = keys.dictionary_encode()
        numbered = pc.multiply(pc.list_parent_indices(lists), len(codes.dictionary))
        if pc.count_distinct(pc.add(numbered, codes.indices)).as_py() != len(keys):
            raise MalformedError("a map has a key twice")
        if pc.index(codes.dictionary, pa.scalar(self._empty)).as_py() >= 0:
            kept = pc.not_equal(keys, self._empty)
            offsets = _from_zero(pc.cumulative_sum(kept.cast(pa.int32()))).take(offsets)
            keys, items = keys.filter(kept), items.filter(kept)
        entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        valid = lists.is_valid().buffers()[1] if lists.null_count else None
        return pa.Array.from_buffers(kind, len(lists), [valid, offsets.buffers()[1]], lists.null_count, 0, [entries])


def _from_zero(sums: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), sums])


def _place(name: str) -> str:
    """The expression for what is before a field's object, its pairs, and what is behind."""
    key = re.escape(json.dumps(name, ensure_ascii=False))
    return rf"(?s)\A(?P<before>.*?{key}{_SPACE}:{_SPACE})\{{{_SPACE}(?P<pairs>{_PAIRS})\}}(?P<behind>.*)\z"
