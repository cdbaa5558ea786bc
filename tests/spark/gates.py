"""The source and sink with gates in them: a batch stops where a test has shut one, until it is opened or all is killed.

`format("gated")` is `format("headrace")`. A gate is a file in a directory: while `NAME.shut` is there, whoever comes by
leaves `NAME.reached`, with its process id, and waits; where `NAME.fails` is there, it raises. Run from `tests` it is a
driver to be killed, copying a topic of any growth into another:

    python -m spark.gates BOOTSTRAP FROM TO GATES CHECKPOINT forever|now [SINK OPTIONS [SOURCE OPTIONS [SETTINGS]]]

The last three are JSON; the settings are Spark's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from headrace.client.transactions import TransactionalProducer
from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.sink import StreamWriter, stream_writer
from headrace.spark.source import StreamReader

# workers cannot import what lies among the tests
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

STEP_S = 0.01


class Gates:
    """The gates of one directory, for the side that stops at them and for the test that works them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def shut(self, name: str) -> None:
        """Whoever comes to this gate from now on stops there."""
        (self.directory / f"{name}.reached").unlink(missing_ok=True)
        (self.directory / f"{name}.shut").touch()

    def open(self, name: str) -> None:
        """Whoever stands there goes on."""
        (self.directory / f"{name}.shut").unlink()

    def fail(self, name: str) -> None:
        """Whoever comes to this gate from now on raises."""
        (self.directory / f"{name}.fails").touch()

    def reached(self, name: str) -> bool:
        """Whether somebody has come to the gate since it was shut."""
        return (self.directory / f"{name}.reached").exists()

    def pid_at(self, name: str) -> int:
        """The process that came to the gate last."""
        return int((self.directory / f"{name}.reached").read_text())

    def wait_for(self, name: str, still_going: Any, patience_s: float) -> None:
        """Until somebody stands at the gate; RuntimeError where nobody is `still_going` to it, or for too long."""
        until = time.monotonic() + patience_s
        while not self.reached(name):
            if not still_going() or time.monotonic() > until:
                raise RuntimeError(f"nobody came to the gate {name}")
            time.sleep(STEP_S)

    def stop_here(self, name: str) -> None:
        """Wait while the gate is shut. The daemon that has made this process gone, so is the query."""
        if (self.directory / f"{name}.fails").exists():
            raise RuntimeError(f"the gate {name} says so")
        parent = os.getppid()
        shut = self.directory / f"{name}.shut"
        if shut.exists():
            mine = self.directory / f"{name}.{os.getpid()}"
            mine.write_text(str(os.getpid()))
            mine.replace(self.directory / f"{name}.reached")
        while shut.exists():
            if os.getppid() != parent:
                os._exit(1)
            time.sleep(STEP_S)


class GatedReader(StreamReader):
    """Gates: `begun` before the first end is asked for, `finished` before that of a batch after one that was planned
    here, `planned` when a batch is, `read` after the first rows of a task."""

    gates: Gates
    _planned = False

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if start.get("initial"):
            self.gates.stop_here("begun")
        elif self._planned:
            self.gates.stop_here("finished")
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        tasks = super().partitions(start, end)
        self._planned = True
        self.gates.stop_here("planned")
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch
            self.gates.stop_here("read")


class GatedWriter(StreamWriter):
    """Gates: `written` when a task has written and flushed its rows, and `written-TASK-ATTEMPT` behind it, `done` when
    all have, `committed` when the commit is over, before Spark hears of it. Exactly once there are `flushed` between
    them, when the rows are in an open transaction, and `decided` when it is committed; the same of a task that commits
    itself are `task-flushed` and `task-decided`."""

    gates: Gates

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with stops_behind(self.gates, flush="task-flushed", commit="task-decided"):
            message = super().write(iterator)
        self.gates.stop_here("written")
        task = TaskContext.get()
        assert task is not None
        self.gates.stop_here(f"written-{task.partitionId()}-{task.attemptNumber()}")
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.gates.stop_here("done")
        with stops_behind(self.gates, flush="flushed", commit="decided"):
            super().commit(messages, batchId)
        self.gates.stop_here("committed")


@contextmanager
def stops_behind(gates: Gates, **names: str) -> Iterator[None]:
    """Gates behind methods of the transactional producer."""
    own = {method: getattr(TransactionalProducer, method) for method in names}

    def gated(method: str, name: str) -> None:
        def call(self: TransactionalProducer, *given: Any) -> None:
            own[method](self, *given)
            gates.stop_here(name)

        setattr(TransactionalProducer, method, call)

    for method, name in names.items():
        gated(method, name)
    try:
        yield
    finally:
        for method, original in own.items():
            setattr(TransactionalProducer, method, original)


def register_gated(spark: Any, directory: Path) -> Gates:
    """Make `format("gated")` known to a session, its gates in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    gates = Gates(directory)

    class Reader(GatedReader):
        pass

    class Writer(GatedWriter):
        pass

    Reader.gates = Writer.gates = gates

    class GatedDataSource(HeadraceDataSource):
        @classmethod
        def name(cls) -> str:
            return "gated"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return Reader(super().streamReader(schema).options)  # type: ignore[attr-defined]

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return Writer(stream_writer(self.options, schema).options)

    spark.dataSource.register(GatedDataSource)
    return gates


def main(
    bootstrap: str,
    source: str,
    sink: str,
    gates: str,
    checkpoint: str,
    how_long: str,
    sink_options: str = "{}",
    source_options: str = "{}",
    settings: str = "{}",
) -> None:
    """Copy rows, where each came from as its key, from what is latest when the query begins."""
    from spark.copying import session

    spark = session(json.loads(settings))
    register_gated(spark, Path(gates))
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "latest"}
    options |= {"kafka.group.id": f"{source}-group", "minPartitions": "2"}
    rows = spark.readStream.format("gated").options(**options | json.loads(source_options)).load()
    rows = rows.selectExpr("concat_ws(':', partition, offset) as key", "value")
    trigger: dict[str, Any] = {"availableNow": True} if how_long == "now" else {"processingTime": "0 seconds"}
    writer = rows.writeStream.format("gated").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", sink).option("batchHeaders", "true").option("checkpointLocation", checkpoint)
    writer = writer.options(**json.loads(sink_options))
    writer.trigger(**trigger).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
