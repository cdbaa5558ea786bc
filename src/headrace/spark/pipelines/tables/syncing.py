"""The query that keeps a table equal to a topic: records decoded in the workers, batches applied by the driver.

The driver alone writes: a batch is one transaction, which is what makes a position a partition enough to know what the
table has. What takes time, the fetching and decoding, is done in the workers, and rows come to the driver as Arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark.options import CORRUPT
from headrace.spark.pipelines.fields import usable
from headrace.spark.pipelines.running import Job, begin
from headrace.spark.pipelines.tables.changes import column_names, schema_of
from headrace.spark.pipelines.tables.following import Target
from headrace.spark.pipelines.tables.layout import Layout, ddl_of
from headrace.spark.schemas import ddl

MAX_PER_BATCH: Final = 100_000
"""Records of a batch where nothing else is said: the driver holds a batch in memory."""
_ESCAPED_NUL: Final = r"(^|[^\\])(\\\\)*\\u0000"


@dataclass(frozen=True, slots=True)
class TableSync:
    """Rows of `format("headrace")` as changes of a table with this layout, in the form that the target takes them."""

    layout: Layout
    nested_as_json: bool = False
    takes_nul: bool = True
    buckets: int = 0

    def read_options(self) -> dict[str, str]:
        """What the source is to decode."""
        columns = f"key, value, partition, offset, timestamp, {CORRUPT}"
        return {"valueFormat": "json", "valueSchema": ddl_of(self.layout.value), "columns": columns}

    def changes(self, records: DataFrame) -> DataFrame:
        """Changes as `changes.schema_of` has them.

        A record whose key or value does not fit, or that has a text which the table cannot hold, is passed over and
        counted as unreadable. A value that is null deletes.
        """
        names = column_names(self.layout)
        value = F.col("value")
        keys = self._keys(F.try_validate_utf8(F.col("key").cast("string")))
        values = [self._stored(value.getField(field.name), field.type) for field in self.layout.value]
        sound = F.col(CORRUPT).isNull()
        if not self.takes_nul:
            kinds = [field.type for field in self.layout.fields]
            for column, kind in zip([*keys, *values], kinds, strict=True):
                sound = sound & self._without_nul(column, kind)
        rows = records.select(
            "partition",
            "offset",
            "timestamp",
            (value.isNull() & F.col(CORRUPT).isNull()).alias("deleted"),
            *(column.alias(name) for column, name in zip([*keys, *values], names, strict=True)),
            F.when(sound, True).alias("sound"),
        )
        key_names = names[: len(keys)]
        rows = usable(rows, *key_names, "sound").drop("sound")
        if not self.buckets:
            return rows
        bucket = F.pmod(F.hash(*key_names), F.lit(self.buckets)).cast("int").alias("bucket")
        return rows.select("partition", "offset", "timestamp", "deleted", bucket, *names)

    def _keys(self, text: Column) -> list[Column]:
        if self.layout.key_format == "text":
            (field,) = self.layout.key
            return [text if field.type == pa.string() else text.try_cast(ddl(field.type))]
        parsed = F.from_json(text, ddl_of(self.layout.key))
        return [parsed.getField(field.name) for field in self.layout.key]

    def _stored(self, column: Column, kind: pa.DataType) -> Column:
        if self.nested_as_json and pa.types.is_nested(kind):
            return F.to_json(column, {"ignoreNullFields": "false"})
        return column

    def _without_nul(self, column: Column, kind: pa.DataType) -> Column:
        if kind == pa.string():
            return F.coalesce(~F.contains(column, F.lit("\0")), F.lit(True))
        if pa.types.is_nested(kind):
            return F.coalesce(~column.rlike(_ESCAPED_NUL), F.lit(True))
        return F.lit(True)

    def write_to(self, target: Target) -> Callable[[DataFrame, int], None]:
        """What `foreachBatch` is to do with the changes."""
        schema = schema_of(self.layout, buckets=bool(self.buckets), nested_as_json=self.nested_as_json)

        def write(rows: DataFrame, _: int) -> None:
            target.apply(rows.toArrow().cast(schema))

        return write


def sync_of(layout: Layout, target: Target) -> TableSync:
    """The changes that a target takes."""
    return TableSync(layout, target.nested_as_json, target.takes_nul, target.buckets)


def start(spark: SparkSession, sync: TableSync, target: Target, job: Job) -> StreamingQuery:
    """Start the query, from its checkpoint where there is one. The target is open. Raises ValueError for options."""
    options = {**job.read_options(), **sync.read_options()}
    options.setdefault("maxOffsetsPerTrigger", str(MAX_PER_BATCH))
    records = spark.readStream.format("headrace").options(**options).load()
    return begin(sync.changes(records).writeStream.foreachBatch(sync.write_to(target)), job)
