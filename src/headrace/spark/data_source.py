"""`format("headrace")`: what Spark finds, and the readers and writers it gets.

Spark starts a Python process to find it, one to ask for its schema and one to plan a read. Each imports this module, so
that what a method needs is imported there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from headrace.spark.refusals import in_one_sentence

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from headrace.spark.options import SourceOptions
    from headrace.spark.row_types import RowOptions


class HeadraceDataSource(DataSource):
    """The source and sink, without a jar: the rows of Spark's own Kafka connector, their values decoded by option."""

    cores: ClassVar[int | None] = None
    """The number of cores of the session, if `headrace.spark.register` was called: Spark does not pass its settings to
    a source that it finds itself."""

    _inferred: pa.StructType | None = None
    """Kept, also where Spark carries the source to: a read has one schema."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    @in_one_sentence
    def schema(self) -> str:
        """The row of the source. Wrong options end here, before a query starts."""
        from headrace.spark.client_settings import open_stores
        from headrace.spark.option_table import SOURCE_KEYS
        from headrace.spark.options import read_options, warn_of_ignored
        from headrace.spark.row_types import row_ddl

        options = read_options(self.options)
        open_stores(options.cluster)
        warn_of_ignored(self.options, SOURCE_KEYS, "source")
        return row_ddl(self._with_schema(options).row)

    def _with_schema(self, options: SourceOptions) -> SourceOptions:
        """The options, the schema of JSON values inferred where they name none."""
        if not options.row.value.to_be_inferred:
            return options
        if self._inferred is None:
            from headrace.spark.inference import infer_schema

            self._inferred = infer_schema(options)
        from headrace.spark.options import check_event_time

        row = replace(options.row, value=replace(options.row.value, fields=self._inferred))
        check_event_time(row)
        return replace(options, row=row)

    @in_one_sentence
    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.options import source_options
        from headrace.spark.source import BatchReader

        options = self._with_schema(source_options(self.options, streaming=False))
        _check_schema(schema, options.row)
        return BatchReader(options, self.cores)

    @in_one_sentence
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from headrace.spark.options import source_options
        from headrace.spark.source import RefusedStream, StreamReader

        try:
            options = source_options(self.options, streaming=True)
            _check_schema(schema, options.row)
        except ValueError as error:
            # raised here it would end in an UnboundLocalError of Spark's, which wants to stop the reader it has not got
            return RefusedStream(error.with_traceback(None))
        return StreamReader(options, self.cores)

    @in_one_sentence
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.spark.client_settings import open_stores
        from headrace.spark.sink import batch_writer

        made = batch_writer(self.options, schema, overwrite=overwrite)
        open_stores(made.options.cluster)
        return made

    @in_one_sentence
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from headrace.spark.client_settings import open_stores
        from headrace.spark.sink import stream_writer

        made = stream_writer(self.options, schema)
        open_stores(made.options.cluster)
        return made


def _check_schema(given: StructType, row: RowOptions) -> None:
    """Raises ValueError, in one sentence, where a read was given another schema than its own, by `.schema(...)`.

    Spark asks the source about it no earlier than for its reader.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    from headrace.spark.rows import row_schema

    own = from_arrow_schema(row_schema(row), prefer_timestamp_ntz=True)
    if given.simpleString() != own.simpleString():
        raise ValueError(
            "The headrace source has a schema of its own: leave .schema(...) out; the options "
            "'valueFormat', 'valueSchema' and 'columns' shape its rows."
        )


def source_for(cores: int | None) -> type[HeadraceDataSource]:
    """The source for a session with so many cores. Spark carries the class to its workers as it is."""

    class SessionDataSource(HeadraceDataSource):
        pass

    SessionDataSource.cores = cores
    return SessionDataSource
