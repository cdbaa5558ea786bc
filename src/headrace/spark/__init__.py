"""PySpark's source and sink, `format("headrace")`. Spark finds it by itself; `register` is for where it does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["register", "write_stream", "write_updates"]


def register(spark: SparkSession) -> None:
    """Make `format("headrace")` known to a session, and the session's number of cores to it: tasks are planned for it.

    Changes no setting of the session. Warns, in one sentence with the line to add, where the session runs on this
    machine and its workers would run another Python.
    """
    from headrace.spark.data_source import source_for
    from headrace.spark.session import other_python, session_cores

    if why := other_python(spark):
        warnings.warn(why, RuntimeWarning, stacklevel=2)
    spark.dataSource.register(source_for(session_cores(spark)))


def write_stream(rows: DataFrame, options: Mapping[str, str]) -> DataStreamWriter:
    """`rows.writeStream.format("headrace")` with these options, checked with the columns before a query starts.

    Spark makes a sink's writer only with the first batch, so an error would end a query that runs already. Raises
    ValueError, in one sentence.
    """
    from pyspark.sql.utils import is_remote

    from headrace.spark.client_settings import open_stores
    from headrace.spark.sink import stream_writer

    made = stream_writer(options, rows.schema)
    if not is_remote():  # a session elsewhere has the files elsewhere
        open_stores(made.options.cluster)
    return rows.writeStream.format("headrace").options(**options)


def write_updates(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """The sink for a stream in update mode, to be given to `writeStream.foreachBatch`.

    Spark (4.3) takes no sink written in Python in update mode, so every batch is written through the batch sink. The
    options are those of the sink; ValueError, in one sentence, for an error in them. With `delivery` set to
    exactly-once, `checkpointLocation` among them lets the offsets of sources be committed too; over Spark Connect it
    must be there, as nothing else tells of which query a batch is.

    A function of your own for `foreachBatch` may call what this returns several times in a batch, and may have several
    of them, each for its topic: exactly once each, if a batch that is repeated writes the same in the same order.
    """
    from pyspark.sql.utils import is_remote

    from headrace.spark.client_settings import open_stores
    from headrace.spark.updates import Updates

    made = Updates(options)
    if not is_remote():
        open_stores(made.cluster)
    return made
