"""Sessions and queries of the pipelines: started, followed batch by batch, stopped when asked."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.client.security import PLAINTEXT, Security
from headrace.spark import write_stream, write_updates
from headrace.spark.client_settings import security_options
from headrace.spark.delivery_options import AT_LEAST_ONCE
from headrace_pipelines.fields import UNREADABLE
from headrace_pipelines.whole_files import replace_text

LOOK_S: Final = 0.2
"""How often a query is asked for the batches it has done."""
REPORTS_KEPT: Final = 100
"""More than a query can finish between two looks."""
CLAIM: Final = "pipeline.json"
"""The file in a checkpoint's directory that says whose it is."""
BEGUN: Final = ("offsets", "position.json", "pages")
"""What a checkpoint has once a run has begun: Spark's offsets, or how far a table is read."""
COMMITS: Final = "headrace-pipeline-commits"
"""The topic that keeps how far each query has written exactly once: a pipeline may rest for longer than brokers keep
offsets, and its command line has no option to trust a checkpoint."""
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

REDACTED: Final = "(?i)url|keystore[.]key"
"""Options that plans do not show, beside those that Spark knows by itself: whose name or value says `password`,
`secret` or `token`."""

Mode = Literal["append", "update"]
"""Whether a result is written once, when it is final, or with each batch that changes it."""


class Pipeline(Protocol):
    """What a program has to be in order to be run."""

    mode: ClassVar[Mode]

    def results(self, records: DataFrame) -> DataFrame:
        """The columns `key` and `value` to write, from the rows of `format("headrace")`."""
        ...


class PipelineError(Exception):
    """A query or session that failed; the text is one line."""


@dataclass(frozen=True, slots=True)
class Job:
    """From where to where a pipeline runs, and how; times in milliseconds."""

    bootstrap: str
    source: str
    sink: str
    checkpoint: Path
    starting: str = "earliest"
    once: bool = False
    trigger_ms: int = 1000
    max_per_batch: int | None = None
    delivery: str = AT_LEAST_ONCE
    security: Security = PLAINTEXT

    def read_options(self) -> dict[str, str]:
        """The options of the source."""
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.source}
        options |= security_options(self.security)
        options["startingOffsets"] = self.starting
        if self.max_per_batch is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_per_batch)
        return options

    def write_options(self) -> dict[str, str]:
        """The options of the sink."""
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.sink, "delivery": self.delivery}
        options |= security_options(self.security)
        if self.delivery != AT_LEAST_ONCE:
            options["commitTopic"] = COMMITS
        # Spark tells a stream's own sink of it, and not that of update mode
        return options | {"checkpointLocation": str(self.checkpoint.resolve())}


@dataclass(frozen=True, slots=True)
class Batch:
    """What a query says of a batch that is done.

    `late` are the rows dropped behind the watermark, as Spark counts them: rows of one group that a task has added up
    already are one. `state_rows` are the groups kept in memory and on disk. `behind` are the records that were there
    and left to read when the batch was planned; None where nobody knows.
    """

    number: int
    rows: int
    rows_per_s: float
    late: int
    unreadable: int
    state_rows: int
    took_ms: int
    behind: int | None = None


def claim(checkpoint: Path, settings: Mapping[str, Any]) -> None:
    """Write into the directory of a new checkpoint whose it is. Raises ValueError where it is somebody else's.

    Spark would take up the state of another pipeline, or of windows of another length, and give wrong results. Before
    a query has planned its first batch there is nothing to take up.
    """
    checkpoint.mkdir(parents=True, exist_ok=True)
    path = checkpoint / CLAIM
    ours = json.loads(json.dumps(settings))
    if not path.exists() or not any((checkpoint / name).exists() for name in BEGUN):
        replace_text(path, json.dumps(ours, indent=2) + "\n")
        return
    theirs = json.loads(path.read_text())
    if other := sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)):
        was = ", ".join(f"{name} {theirs.get(name)!r}" for name in other)
        raise ValueError(f"the checkpoint {checkpoint} belongs to {was}; give that again, or another directory")


@contextmanager
def standard_error_in(path: Path) -> Iterator[None]:
    """What a process started inside writes to standard error goes to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as out:
            os.dup2(out.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def server_errors_in(log: Path) -> None:
    """What goes wrong in the server to which Spark's Java process sends its counts goes to a file, from now on.

    It would write a traceback to standard error where that process ends first, as one does that gets a signal too.
    """

    def handle_error(*_: Any) -> None:
        with log.open("a") as out:
            traceback.print_exc(file=out)

    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = handle_error  # type: ignore[assignment, method-assign]


def open_session(name: str, log: Path, settings: Mapping[str, str]) -> SparkSession:
    """A local session on all processors, or what `settings` (Spark's own) say; its times are UTC, its state in RocksDB.

    The JVM and its Python workers write their logs to `log`. Raises `PipelineError` where Spark does not start.
    """
    # Spark's workers run in this virtual environment, whatever python3 is elsewhere
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = {
        "spark.master": "local[*]",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.redaction.options.regex": REDACTED,
        **settings,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": str(REPORTS_KEPT),
    }
    if chosen["spark.master"].startswith("local"):
        chosen.setdefault("spark.driver.host", "127.0.0.1")
    server_errors_in(log)
    builder = SparkSession.builder.appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        with standard_error_in(log):
            return builder.getOrCreate()
    except PySparkException as error:
        raise PipelineError("Spark does not start; it needs Java 17 or later (JAVA_HOME, or the path)") from error


def start(spark: SparkSession, pipeline: Pipeline, job: Job) -> StreamingQuery:
    """Start the query, from its checkpoint where there is one. Raises ValueError for wrong options."""
    records = spark.readStream.format("headrace").options(**job.read_options()).load()
    results = pipeline.results(records)
    if pipeline.mode == "update":
        # Spark takes no sink written in Python in update mode
        writer = results.writeStream.outputMode("update").foreachBatch(write_updates(job.write_options()))
    else:
        writer = write_stream(results, job.write_options()).outputMode("append")
    return begin(writer, job)


class Paced(Protocol):
    """When a query runs, and where it keeps how far it is: a `Job`, or what else has these."""

    @property
    def checkpoint(self) -> Path: ...
    @property
    def once(self) -> bool: ...
    @property
    def trigger_ms(self) -> int: ...


def begin(writer: DataStreamWriter, job: Paced) -> StreamingQuery:
    """Start a query that writes as `writer` says, with the trigger and the checkpoint of a job."""
    if job.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{job.trigger_ms} milliseconds")
    return writer.option("checkpointLocation", str(job.checkpoint.resolve())).start()


def follow(
    query: StreamingQuery, should_stop: Callable[[], bool], beside: Callable[[], None] | None = None
) -> Iterator[Batch]:
    """The batches as they get done, until the query ends or is asked to. Raises `PipelineError` for one that fails.

    A batch in the middle of which the query is stopped is done again by the next run. `beside` is called with every
    look at a query that has not failed.
    """
    seen = -1
    while True:
        failure: StreamingQueryException | None = None
        try:
            ended = query.awaitTermination(LOOK_S)  # type: ignore[arg-type]  # it takes fractions
        except StreamingQueryException as error:
            ended, failure = True, error
        except (Py4JNetworkError, ConnectionError) as error:
            raise PipelineError("Spark's Java process is gone") from error
        for report in query.recentProgress:
            # an idle trigger reports itself under the number of the batch that is still to come
            if report["batchId"] > seen and "addBatch" in report["durationMs"]:
                seen = report["batchId"]
                yield batch_of(report)
        if failure is not None:
            raise PipelineError(reason_of(str(failure))) from failure
        if beside is not None:
            beside()
        if ended:
            return
        if should_stop():
            query.stop()
            return


def batch_of(report: Mapping[str, Any]) -> Batch:
    """A batch, from a query's progress."""
    observed = report["observedMetrics"].get(UNREADABLE)
    states = report["stateOperators"]
    return Batch(
        number=report["batchId"],
        rows=report["numInputRows"],
        rows_per_s=report["processedRowsPerSecond"] or 0.0,
        late=sum(state["numRowsDroppedByWatermark"] for state in states),
        unreadable=0 if observed is None else observed[UNREADABLE],
        state_rows=sum(state["numRowsTotal"] for state in states),
        took_ms=report["durationMs"].get("triggerExecution", 0),
        behind=behind_of(report),
    )


def behind_of(report: Mapping[str, Any]) -> int | None:
    """How many offsets a batch left to be read, from a query's progress; None where a source does not say."""
    sources, behind = report.get("sources"), 0
    for source in sources or ():
        end, latest = (json.loads(source.get(place) or "null") for place in ("endOffset", "latestOffset"))
        if not (isinstance(end, dict) and isinstance(latest, dict) and "topics" in end and "topics" in latest):
            return None
        for topic, offsets in latest["topics"].items():
            read = end["topics"].get(topic, {})
            behind += sum(max(offset - read.get(index, offset), 0) for index, offset in offsets.items())
    return behind if sources else None


def reason_of(text: str) -> str:
    """Why a query failed, in one line: Python's last message in it, or else Spark's first line."""
    text = text.partition("\n\nJVM stacktrace:")[0]
    messages = re.findall(r"^  File .*\n(?:[ \t].*\n)*(?:[\w.]+: )?(\S.*)$", text, re.MULTILINE)
    if messages:
        return str(messages[-1]).strip().rstrip(".")
    first = next((line for line in text.splitlines() if line.strip()), "the query failed")
    return re.sub(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", "", first).strip().rstrip(".")
