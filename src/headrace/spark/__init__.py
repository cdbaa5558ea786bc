"""PySpark's source and sink, `format("headrace")`. Spark finds it by itself; `register` is for where it does not."""

from __future__ import annotations

import uuid
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

    Spark makes a sink's writer only with the first batch, so what is wrong would end a query that runs already. Raises
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
    options are those of the sink; ValueError, in one sentence, for what is wrong with them. With `delivery` set to
    exactly-once, `checkpointLocation` among them lets the offsets of sources be committed too; over Spark Connect it
    must be there, as nothing else tells of which query a batch is.
    """
    from pyspark.sql.utils import is_remote

    from headrace.spark.checkpoint_offsets import no_query, query_of
    from headrace.spark.client_settings import open_stores
    from headrace.spark.delivery import OF_BATCH, OF_QUERY
    from headrace.spark.options import sink_options

    chosen = dict(options)
    checked = sink_options(chosen)
    if not is_remote():
        open_stores(checked.cluster)
    how = checked.exactly_once
    if how is not None and is_remote() and not how.checkpoint:
        raise no_query("")  # now, and not with the first batch
    run_id = ""

    def write(rows: DataFrame, batch_id: int) -> None:
        nonlocal run_id
        of_batch = {}
        if how is not None:
            of_batch[OF_BATCH] = str(batch_id)
            if is_remote():
                run_id = run_id or str(uuid.uuid4())  # made on the server, where a query that starts again has another
                of_batch[OF_QUERY] = f"{query_of(how.checkpoint)} {run_id}"
        rows.write.format("headrace").options(**chosen, **of_batch).mode("append").save()

    return write
