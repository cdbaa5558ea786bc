"""A Python source that does nothing: Arrow batches made beforehand, no broker, offsets out of thin air.

What it takes is Spark's own: the floor (in speed: the ceiling) of every source written in Python.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.arrow.decode import FIELDS
from headrace.arrow.sizes import GROUP_BYTES
from headrace.spark.schemas import ddl

PREBUILT = "prebuilt"
PARTITIONS = 2


@dataclass
class Piece(InputPartition):
    """`rows` rows of partition `index`."""

    index: int
    rows: int


class Source(DataSource):
    """`format("prebuilt")`: `rows` rows of `size` bytes, `columns` as in our source; or `rate` of them a second."""

    @classmethod
    def name(cls) -> str:
        return PREBUILT

    def schema(self) -> str:
        return ", ".join(f"{field.name} {ddl(field.type)}" for field in fields_of(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        return Reader(self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(self.options)


def fields_of(options: Mapping[str, str]) -> list[pa.Field]:
    """The columns asked for; all of a record's where none are."""
    names = options.get("columns", "")
    return [field for field in FIELDS if not names or field.name in names.split(",")]


def pieces(rows: int) -> list[Piece]:
    """So many rows, over the partitions."""
    return [Piece(index, rows // PARTITIONS) for index in range(PARTITIONS)]


class Reader(DataSourceReader):
    """Everything, in one piece a partition."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.fields = fields_of(options)
        self.rows = int(options.get("rows", "0"))
        self.size = int(options.get("size", "100"))
        self.rate = int(options.get("rate", "0"))

    def partitions(self) -> list[Piece]:
        return pieces(self.rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        left = partition.rows
        whole = self.batch(partition.index, min(left, GROUP_BYTES // self.size)) if left else None
        while left:
            assert whole is not None
            part = whole.slice(0, min(left, whole.num_rows))
            left -= part.num_rows
            yield part

    def batch(self, index: int, rows: int) -> pa.RecordBatch:
        """The columns of a Kafka record that are asked for."""
        items = {"value": b"x" * self.size, "topic": PREBUILT, "partition": index, "timestamp": 0, "timestampType": 0}
        columns = [
            pa.array(range(rows) if field.name == "offset" else [items.get(field.name)] * rows, field.type)
            for field in self.fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(self.fields))


class StreamReader(Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """All rows as the first batch; or, with a rate, what is due, in one task a batch."""

    began = 0.0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        if not self.rate:
            return {"rows": self.rows}
        self.began = self.began or time.monotonic()
        return {"rows": int((time.monotonic() - self.began) * self.rate)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Piece]:  # type: ignore[override]
        rows = end["rows"] - start["rows"]
        return [Piece(0, rows)] if self.rate else pieces(rows)

    def commit(self, end: dict[str, int]) -> None:
        pass
