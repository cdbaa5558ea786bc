"""`format("headrace")`: what Spark finds, and the readers and writers it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from headrace.spark.options import source_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"


class HeadraceDataSource(DataSource):
    """The source and sink, without a jar; the rows are those of Spark's own Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        """The row of the source. Wrong options end here, before a query starts."""
        try:
            options = source_options(self.options, streaming=False)
        except ValueError:
            # what a batch may not say a stream may
            options = source_options(self.options, streaming=True)
        return f"{SCHEMA}, {HEADERS}" if options.include_headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.source import BatchReader

        return BatchReader(source_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from headrace.spark.source import StreamReader

        return StreamReader(source_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from headrace.spark.sink import stream_writer

        return stream_writer(self.options, schema)
