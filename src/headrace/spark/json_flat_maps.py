"""Maps of scalars, many at once: Arrow's regular expressions write pairs, its reader reads them.

A batch is read so as a whole or refused, and then `json_maps` looks at each value. What is refused here need not be
malformed; what is read here is what `json_maps` would have read.

The first object after the field's name, wherever that is, becomes a list. If it is the field that the schema declares,
Arrow's reader takes the list for it. If not, the reader skips it with its parent, or refuses the batch: the field
itself is then still an object. A string cannot contain the name in this form, since quotes are escaped there. A map of
strings becomes a list of strings: keys and items in turn, after a secret word. Another map becomes a list of pairs
under secret names. A list that the value itself had in the map's place has neither.

Expressions with groups are slow. Where all objects of a batch begin alike and have no brace or backslash in them, they
are cut out by what is around them, one expression without groups says whether they are flat, and the colons of a map of
texts are found by the quotes before them.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.json_values import JsonDecoder, repeated
from headrace.spark.schemas import list_of
from headrace.spark.values import MalformedError, spread

_TEXT: Final = r'"(?:[^"\\]|\\.)*"'
_ITEM: Final = rf'(?:{_TEXT}|[^ \t\r\n"\[\]{{}},:]+)'
_SPACE: Final = r"[ \t\r\n]*"
"""JSON's alone: other white space must not get lost, since it is malformed."""
_NO_MAP: Final = "what is declared as a map is no JSON object"
_PAIR: Final = rf"{_TEXT}{_SPACE}:{_SPACE}{_ITEM}{_SPACE}"
_PAIRS: Final = rf"(?:{_PAIR}(?:,{_SPACE}{_PAIR})*)?"
_ONE_PAIR: Final = rf"(?s)({_TEXT}){_SPACE}:{_SPACE}({_ITEM})"
_PLAIN_TEXT: Final = r'"(?:[^"\\:][^"\\]*)?"'
_PLAIN_PAIR: Final = rf'{_PLAIN_TEXT}:{_SPACE}(?:{_PLAIN_TEXT}|[^ \t\r\n"\[\]{{}},:\\]+){_SPACE}'
_PLAIN_PAIRS: Final = rf"(?s)\A{_SPACE}(?:{_PLAIN_PAIR}(?:,{_SPACE}{_PLAIN_PAIR})*)?\z"
"""Without a backslash, and a colon is behind a quote where it parts a key from its item, and nowhere else."""

_Cut = tuple[pa.Array, pa.Array, pa.Array, bool]
"""What is before an object, its pairs, and what is behind, null where there is none; whether all pairs are plain."""


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
    """Values that are JSON objects, some of their fields maps of strings to scalars."""

    def __init__(self, schema: pa.StructType) -> None:
        self._schema = schema
        secret = secrets.token_hex(4)
        self._key, self._item, self._empty = "k" + secret, "v" + secret, "e" + secret
        self._reader = JsonDecoder(pa.struct([field.with_type(self._as_read(field.type)) for field in schema]))
        self._maps = [field for field in schema if pa.types.is_map(field.type)]
        self._pair = rf'{{"{self._key}":\1,"{self._item}":\2}}'
        self._no_pair = b'{"%s":"%s"}' % (self._key.encode(), self._empty.encode())
        self._begin_texts = b'["%s"' % self._empty.encode()

    def column(self, values: pa.Array) -> pa.Array:
        """The column, without a null. Raises `MalformedError` where it cannot be read so, of whatever value."""
        for field in self._maps:
            values = self._in_lists(values, field)
        read = self._reader.sound(values)
        arrays = [
            self._map(read.field(index), field.type) if pa.types.is_map(field.type) else read.field(index)
            for index, field in enumerate(self._schema)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(self._schema))

    def _as_read(self, kind: pa.DataType) -> pa.DataType:
        if not pa.types.is_map(kind):
            return kind
        if _of_texts(kind):
            return list_of(pa.string())
        return list_of(pa.struct([pa.field(self._key, kind.key_type), pa.field(self._item, kind.item_type)]))

    def _in_lists(self, values: pa.Array, field: pa.Field) -> pa.Array:
        """Values with a list in the place of a map."""
        found = _cut(values, field.name) or _matched(values, field.name)
        if found is None:
            return values
        before, pairs, behind, plain = found
        empty = pc.equal(pc.find_substring(pairs, pattern=b'"'), -1)
        if _of_texts(field.type):
            if plain:
                written = pc.replace_substring(pairs, pattern=b'":', replacement=b'",')
            else:
                written = pc.replace_substring_regex(pairs, _ONE_PAIR, r"\1,\2")
            comma = pc.if_else(empty, b"", b",") if empty.true_count else b","
            joined = pc.binary_join_element_wise(before, self._begin_texts, comma, written, b"]", behind, b"")
        else:
            written = pc.if_else(empty, self._no_pair, pc.replace_substring_regex(pairs, _ONE_PAIR, self._pair))
            joined = pc.binary_join_element_wise(before, b"[", written, b"]", behind, b"")
        return pc.coalesce(joined, values) if joined.null_count else joined

    def _map(self, lists: pa.ListArray, kind: pa.MapType) -> pa.MapArray:
        """Lists as maps. Raises `MalformedError` for a list that is not ours, and for a key that is twice in one."""
        offsets, keys, items = self._texts(lists) if _of_texts(kind) else self._pairs(lists)
        codes = keys.dictionary_encode()
        parents = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, codes.indices))
        numbered = pc.add(pc.multiply(parents, len(codes.dictionary)), codes.indices)
        if pc.count_distinct(numbered).as_py() != len(keys):
            raise MalformedError("a map has a key twice")
        entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        valid = lists.is_valid().buffers()[1] if lists.null_count else None
        return pa.Array.from_buffers(kind, len(lists), [valid, offsets.buffers()[1]], lists.null_count, 0, [entries])

    def _texts(self, lists: pa.ListArray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Offsets, keys and items of lists of them in turn behind our word."""
        texts = lists.flatten()
        lengths = pc.list_value_length(lists)
        begins = pc.list_flatten(pc.list_slice(lists, 0, 1))
        ours = pc.equal(texts, self._empty).fill_null(False)
        if not len(lists) - lists.null_count == ours.true_count == pc.equal(begins, self._empty).true_count:
            raise MalformedError(_NO_MAP)
        kept = texts.filter(pc.invert(ours))
        sums = pc.cumulative_sum(pc.divide(pc.subtract(lengths, 1), 2).cast(pa.int32()).fill_null(0))
        return _from_zero(sums), *_two(kept)

    def _pairs(self, lists: pa.ListArray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The same of lists of pairs under our names."""
        keys, items = lists.flatten().flatten()
        lengths = pc.list_value_length(lists)
        if keys.null_count or pc.any(pc.equal(lengths, 0)).as_py():
            raise MalformedError(_NO_MAP)
        offsets = _from_zero(pc.cumulative_sum(lengths.fill_null(0)))
        kept = pc.not_equal(keys, self._empty)
        if kept.false_count:
            offsets = _from_zero(pc.cumulative_sum(kept.cast(pa.int32()))).take(offsets)
            keys, items = keys.filter(kept), items.filter(kept)
        return offsets, keys, items


def _of_texts(kind: pa.MapType) -> bool:
    return bool(pa.types.is_string(kind.item_type))


def _from_zero(sums: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), sums])


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _matched(values: pa.Array, name: str) -> _Cut | None:
    """Values around the first object of a name, whatever is in it; None where there is none."""
    before = rf"(?s)\A(?P<before>.*?{re.escape(_key(name))}{_SPACE}:{_SPACE})"
    found = pc.extract_regex(values, rf"{before}\{{{_SPACE}(?P<pairs>{_PAIRS})\}}(?P<behind>.*)\z")
    return None if found.null_count == len(values) else (*found.flatten(), False)


def _cut(values: pa.Array, name: str) -> _Cut | None:
    """The same where the first value's object tells how all of them begin; None where they are not plain."""
    begin = rf"{re.escape(_key(name))}{_SPACE}:{_SPACE}\{{"
    head = re.search(begin.encode(), values[0].as_py()) if len(values) else None
    if head is None:
        return None
    halves = pc.split_pattern(values, pattern=head[0], max_splits=1)
    has = pc.equal(pc.list_value_length(halves), 2)
    if has.false_count:
        if pc.any(pc.match_substring_regex(values.filter(pc.invert(has)), pattern=begin)).as_py():
            return None
        halves = halves.filter(has)
    before, rest = _two(halves.flatten())
    parts = pc.split_pattern(rest, pattern=b"}", max_splits=1)
    if pc.any(pc.equal(pc.list_value_length(parts), 1)).as_py():
        return None
    pairs, behind = _two(parts.flatten())
    if not pc.all(pc.match_substring_regex(pairs, pattern=_PLAIN_PAIRS)).as_py():
        return None
    before = pc.binary_join_element_wise(before, head[0][:-1], b"")
    if has.false_count:
        before, pairs, behind = (spread(column, has) for column in (before, pairs, behind))
    return before, pairs, behind, True


def _two(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Splits an array into its even and its odd places."""
    return texts.filter(repeated(len(texts), b"\x55")), texts.filter(repeated(len(texts), b"\xaa"))
