"""The schema of a topic's JSON values, from its first records: for batch reads that name none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyarrow import json as arrow_json

from headrace.spark import planning
from headrace.spark.options import SourceOptions
from headrace.spark.reading import drop_client, read_ranges
from headrace.spark.row_types import RowOptions
from headrace.spark.schemas import list_of

SAMPLE_ROWS: Final = 1000


def infer_schema(options: SourceOptions) -> pa.StructType:
    """What fields the first values of a read have. Raises ValueError where they do not tell, in one sentence."""
    return schema_of_values(_sample(options), str(options.subscription))


def schema_of_values(values: list[bytes], where: str) -> pa.StructType:
    """The fields of JSON values, those left out that are no objects. Raises ValueError in one sentence.

    Whole numbers are bigint, others double, text is string, also where it looks like a time, and so is a value that is
    always null.
    """
    objects = [value for value in values if _is_object(value)]
    if not objects:
        raise ValueError(
            f"The first records of {where} hold no JSON object to infer a schema from; give the option 'valueSchema'."
        )
    text = b"\n".join(objects) + b"\n"
    try:
        table = arrow_json.read_json(
            pa.BufferReader(text), read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text))
        )
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"The first values of {where} do not agree on a schema ({error}); give the option 'valueSchema'."
        ) from None
    kind = _settled(pa.struct(list(table.schema)))
    if kind is None:
        raise ValueError(f"The first values of {where} have no fields; give the option 'valueSchema'.")
    return kind


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value.decode()), dict)
    except (ValueError, RecursionError):
        return False


def _settled(kind: pa.DataType) -> pa.DataType | None:
    """A type as a read has it; None where it holds nothing."""
    if pa.types.is_struct(kind):
        fields = [(field.name, _settled(field.type)) for field in kind]
        kept = [pa.field(name, each) for name, each in fields if each is not None]
        return pa.struct(kept) if kept else None
    if pa.types.is_list(kind):
        items = _settled(kind.value_type)
        return None if items is None else list_of(items)
    return pa.string() if pa.types.is_null(kind) or pa.types.is_timestamp(kind) else kind


def _sample(options: SourceOptions) -> list[bytes]:
    """The first values of the read, at most `SAMPLE_ROWS`."""
    with options.cluster.client() as client:
        ranges = planning.batch_ranges(client, options)
    found: list[bytes] = []
    try:
        for batch in read_ranges(ranges, replace(options, row=RowOptions(columns=("value",)))):
            found += batch.column("value").drop_null().slice(0, SAMPLE_ROWS - len(found)).to_pylist()
            if len(found) >= SAMPLE_ROWS:
                break
    finally:
        drop_client(options.cluster)
    return found
