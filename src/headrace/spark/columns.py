"""Columns made of Python's objects, field by field: what Avro and Protobuf have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

from headrace.spark.values import spread

Build = Callable[[list[Any]], pa.Array]
"""Makes a column of items. Raises `pa.ArrowException` or OverflowError where one does not fit."""


def plain(kind: pa.DataType) -> Build:
    """Items that Arrow takes as they are, None among them."""
    return lambda items: pa.array(items, kind)


def nullable(build: Build) -> Build:
    """Items of which some may be None, for a `build` that takes none such."""

    def column(items: list[Any]) -> pa.Array:
        present = [item for item in items if item is not None]
        if len(present) == len(items):
            return build(items)
        return spread(build(present), pa.array([item is not None for item in items], pa.bool_()))

    return column


def struct_column(kind: pa.StructType, builds: list[Build]) -> Build:
    """Dictionaries, each with all fields."""
    fields = list(kind)
    inner = [(itemgetter(field.name), build) for field, build in zip(fields, builds, strict=True)]

    def column(items: list[Any]) -> pa.Array:
        return pa.StructArray.from_arrays([build(list(map(get, items))) for get, build in inner], fields=fields)

    return column


def list_column(kind: pa.ListType, build: Build) -> Build:
    """Sequences."""

    def column(items: list[Any]) -> pa.Array:
        return pa.ListArray.from_arrays(_offsets(items), build(list(chain.from_iterable(items))), type=kind)

    return column


def map_column(kind: pa.MapType, keys: Build, values: Build) -> Build:
    """Mappings."""

    def column(items: list[Any]) -> pa.Array:
        inner = (keys(list(chain.from_iterable(items))), values([each for item in items for each in item.values()]))
        return pa.MapArray.from_arrays(_offsets(items), *inner, type=kind)

    return column


def _offsets(items: Iterable[Sized]) -> pa.Array:
    return pa.array(accumulate(map(len, items), initial=0), pa.int32())
