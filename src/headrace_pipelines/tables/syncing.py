"""The query that keeps a table equal to a topic: records decoded in the workers, batches applied by the driver.

The driver alone writes: a batch is one transaction, which is what makes a position a partition enough to know what the
table has. What takes time, the fetching and decoding, is done in the workers, and rows come to the driver as Arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark.schemas import ddl
from headrace_pipelines.fields import UNREADABLE
from headrace_pipelines.running import Job, begin
from headrace_pipelines.tables.changes import column_names, schema_of
from headrace_pipelines.tables.dead_letters import DeadLetters
from headrace_pipelines.tables.decoding import NO_LIMITS, REASON, RecordDecoder
from headrace_pipelines.tables.following import Refused, Target
from headrace_pipelines.tables.layout import Layout
from headrace_pipelines.tables.row_format import Limits

MAX_PER_BATCH: Final = 100_000
"""The default records of a batch: the driver holds a batch in memory."""


@dataclass(frozen=True, slots=True)
class TableSync:
    """Rows of `format("headrace")` as changes of a table with this layout, in the form that the target takes them.

    A record whose key or value does not fit, or that has a text which the table cannot hold, is counted as unreadable,
    and passed over or sent to `dead_letters`. A value that is null deletes.
    """

    layout: Layout
    nested_as_json: bool = False
    limits: Limits = NO_LIMITS
    buckets: int = 0
    dead_letters: DeadLetters | None = None
    with_all: bool = False
    """Whether the table may refuse records that are readable."""

    @property
    def decoder(self) -> RecordDecoder:
        """What the workers do with a batch of records."""
        with_letters = self.dead_letters is not None
        return RecordDecoder(
            self.layout, self.nested_as_json, self.limits, with_letters, with_all=with_letters and self.with_all
        )

    def read_options(self) -> dict[str, str]:
        """What of the records the source is to deliver."""
        if self.dead_letters is None:
            return {"columns": "key, value, partition, offset, timestamp"}
        return {"columns": "key, value, partition, offset, timestamp, headers", "includeHeaders": "true"}

    def changes(self, records: DataFrame) -> DataFrame:
        """Changes as `changes.schema_of` has them, followed by the kept parts of unreadable records."""
        decoded = _decoded(self.decoder).alias("row")
        rows = records.select("partition", "offset", "timestamp", decoded)
        rows = rows.select("partition", "offset", "timestamp", "row.*")
        unreadable = F.col(REASON.name).isNotNull()
        rows = rows.observe(UNREADABLE, F.count_if(unreadable).alias(UNREADABLE))
        if self.dead_letters is None:
            rows = rows.where(~unreadable)
        if not self.buckets:
            return rows
        keys = column_names(self.layout)[: len(self.layout.key)]
        return rows.withColumn("bucket", F.pmod(F.hash(*keys), F.lit(self.buckets)).cast("int"))

    def write_to(self, target: Target) -> Callable[[DataFrame, int], None]:
        """What `foreachBatch` is to do with the changes."""
        schema = schema_of(self.layout, buckets=bool(self.buckets), nested_as_json=self.nested_as_json)

        def write(rows: DataFrame, batch_id: int) -> None:
            found, letters = rows.toArrow(), self.dead_letters
            if letters is None:
                target.apply(found.select(schema.names).cast(schema))
                return
            unreadable = found[REASON.name].is_valid()
            left = found.filter(pc.invert(unreadable))

            def settle(refused: Refused) -> None:
                # before the table has the batch: a batch that fails comes again, and with it letters that are missing
                reasons = pa.array(refused.values(), REASON.type)
                back = left.take(pa.array(refused, pa.int64()))
                back = back.set_column(back.schema.get_field_index(REASON.name), REASON, reasons)
                letters.send(pa.concat_tables([found.filter(unreadable), back]), batch_id)

            target.apply(left.select(schema.names).cast(schema), settle)

        return write


def _decoded(decoder: RecordDecoder) -> Column:
    """What the decoder makes of the columns key, value and headers, as a struct.

    As an Arrow UDF: `mapInArrow` asks for pandas.
    """
    shape = ", ".join(f"`{field.name}` {ddl(field.type)}" for field in decoder.schema)

    def decode(key: pa.Array, value: pa.Array) -> pa.Array:
        return decoder.decode(key, value).to_struct_array()

    def decode_whole(key: pa.Array, value: pa.Array, headers: pa.Array) -> pa.Array:
        return decoder.decode(key, value, headers).to_struct_array()

    arrow_udf: Any = F.arrow_udf  # type: ignore[attr-defined]  # PySpark has it, and its stubs have not
    function = arrow_udf(decode_whole if decoder.with_letters else decode, shape)
    # a nondeterministic function is called once a row, and not once for each field that is taken of it
    column: Column = function.asNondeterministic()("key", "value", *["headers"] * decoder.with_letters)
    return column


def sync_of(layout: Layout, target: Target, dead_letters: DeadLetters | None = None) -> TableSync:
    """The changes that a target takes."""
    limits = Limits(nul=target.takes_nul, endless=target.takes_endless)
    return TableSync(layout, target.nested_as_json, limits, target.buckets, dead_letters, target.refuses)


def start(spark: SparkSession, sync: TableSync, target: Target, job: Job) -> StreamingQuery:
    """Start the query, from its checkpoint where there is one. The target is open. Raises ValueError for options."""
    options = {**job.read_options(), **sync.read_options()}
    options.setdefault("maxOffsetsPerTrigger", str(MAX_PER_BATCH))
    records = spark.readStream.format("headrace").options(**options).load()
    return begin(sync.changes(records).writeStream.foreachBatch(sync.write_to(target)), job)
