"""Topics of one cluster copied to another: partitions, keys, values, headers and timestamps kept, offsets known.

A partition is read and written by one task, so that its records keep their order. With every batch the driver notes
where on the target each stretch of the source went, in the checkpoint's directory, before Spark calls the batch done.

Exactly once, a batch is one transaction at the target. With it goes a record that says where the stretches went: a
driver that died after the end of the transaction, and before its note, is replaced by one that finds the batch done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from headrace.client.metadata import TopicPartition
from headrace.client.security import PLAINTEXT, Security
from headrace.spark.client_settings import security_options
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.encoding import SOURCE_OFFSET
from headrace.spark.delivery_options import AT_LEAST_ONCE, OF_BATCH, OfBatch
from headrace.spark.options import SinkOptions, Subscription, sink_options, source_options
from headrace.spark.sink import BatchWriter
from headrace_pipelines.mirror_groups import MIRROR_GROUPS
from headrace_pipelines.mirror_offsets import Run, Runs, extended
from headrace_pipelines.mirror_topics import TopicFollower
from headrace_pipelines.running import begin
from headrace_pipelines.whole_files import replace_text

COPIES: Final = "mirror.json"
"""The file in a checkpoint's directory with the offsets of the copies."""
COLUMNS: Final = "key,value,topic,partition,offset,timestamp,headers"
WHOLE: Final = str((1 << 63) - 1)
"""As many records as a task may have: a partition in pieces would be written out of order."""
COMMITS: Final = "headrace-mirror-commits"
"""The topic at the target where mirrors keep, exactly once, which batches it has and where; none copies it."""
MAX_PER_BATCH: Final = 100_000
"""The default records of a batch, exactly once: the driver holds a batch in memory."""
_LEADING_FLAGS: Final = re.compile(r"(?:\(\?[a-zA-Z]+\))*")
REPORT: Final = "report"
"""The option that names the file for what was written, as `Span.fields` has it."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """A mirror: its source, its target and its options; times in milliseconds.

    Either `topics` or `pattern`, a regular expression for whole names, says what; copies have `prefix` before the name.
    """

    source: str
    target: str
    checkpoint: Path
    topics: tuple[str, ...] = ()
    pattern: str = ""
    prefix: str = ""
    compression: str = "lz4"
    starting: str = "earliest"
    skip_lost: bool = False
    once: bool = False
    trigger_ms: int = 1000
    max_per_batch: int | None = None
    delivery: str = AT_LEAST_ONCE
    source_security: Security = PLAINTEXT
    target_security: Security = PLAINTEXT

    @property
    def is_once(self) -> bool:
        """Whether batches are transactions."""
        return self.delivery != AT_LEAST_ONCE

    def read_options(self) -> dict[str, str]:
        """The options of the source."""
        options = {
            "kafka.bootstrap.servers": self.source,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            "columns": COLUMNS,
            "startingOffsets": self.starting,
            "maxRecordsPerPartition": WHOLE,
            "groupIdPrefix": MIRROR_GROUPS,
            "failOnDataLoss": "false" if self.skip_lost else "true",
            **security_options(self.source_security),
        }
        if self.topics:
            options["subscribe"] = ",".join(self.topics)
        elif not self.pattern:
            options["subscribePattern"] = ""  # refused with the words of the source
        else:
            flags = _LEADING_FLAGS.match(self.pattern)
            begins = 0 if flags is None else flags.end()
            # what a mirror writes there would be more to copy
            others = f"(?!{COMMITS}$)(?:{self.pattern[begins:]})"
            options["subscribePattern"] = self.pattern[:begins] + others
        most = MAX_PER_BATCH if self.is_once and self.max_per_batch is None else self.max_per_batch
        if most is not None:
            options["maxOffsetsPerTrigger"] = str(most)
        return options

    def write_options(self) -> dict[str, str]:
        """The options of the sink."""
        options = {"kafka.bootstrap.servers": self.target, "kafka.compression.type": self.compression}
        options |= security_options(self.target_security)
        if self.is_once:
            options |= {"delivery": self.delivery, "commitTopic": COMMITS, "markerTopic": COMMITS}
            options["checkpointLocation"] = str(self.checkpoint.resolve())
        return options

    @property
    def subscription(self) -> Subscription:
        """The source. Raises ValueError, in one sentence, for what cannot be."""
        return source_options(self.read_options(), streaming=True).subscription


class CopiesFile:
    """The offsets of the copies, by the source's partitions, in a file that is replaced atomically."""

    def __init__(self, checkpoint: Path) -> None:
        """The file lies in the directory of the checkpoint; before the first batch there is none."""
        self.path = path = checkpoint / COPIES
        self.runs: Mapping[TopicPartition, Runs] = {}
        """Replaced as a whole: another thread may look at it."""
        if path.exists():
            found = json.loads(path.read_text())
            self.runs = {
                (topic, int(index)): tuple(Run(*run) for run in runs)
                for topic, parts in found.items()
                for index, runs in parts.items()
            }

    def add(self, partitions: Iterable[TopicPartition], written: Mapping[TopicPartition, list[Run]]) -> None:
        """Take in partitions, which may have nothing yet, and what was written of them; on disk when this returns."""
        known = {**dict.fromkeys(partitions, ()), **self.runs}
        known |= {at: extended(known.get(at, ()), runs) for at, runs in written.items()}
        if known == self.runs:
            return
        self.runs = known
        topics: dict[str, dict[str, Any]] = {}
        for (topic, index), runs in sorted(known.items()):
            topics.setdefault(topic, {})[str(index)] = [[run.first, run.last, run.target, run.count] for run in runs]
        replace_text(self.path, json.dumps(topics))


class CopyWriter(BatchWriter):
    """The sink, which writes to a file where the records of each task went, once all of them are written."""

    def __init__(self, options: SinkOptions, report: Path) -> None:
        super().__init__(options)
        self.report = report

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Runs beside the driver, which reads the file."""
        self.report.write_text(json.dumps([span.fields() for span in self.finish(messages)]))


class CopySink(DataSource):
    """What Spark finds under the name of `CopyWriter`. It takes the options of the sink, and `REPORT`."""

    @classmethod
    def name(cls) -> str:
        return "headrace_copy"

    def writer(self, schema: StructType, overwrite: bool) -> CopyWriter:
        options = dict(self.options)
        report = Path(options.pop(REPORT))
        return CopyWriter(sink_options(options), report)


class Copier:
    """Starts a mirror's query and writes its batches, from the query's thread."""

    def __init__(self, mirror: Mirror, copies: CopiesFile, topics: TopicFollower) -> None:
        """Raises ValueError, in one sentence, for a mirror that cannot be."""
        self.mirror = mirror
        self.copies = copies
        self.topics = topics
        self.report = mirror.checkpoint.resolve() / "written.json"
        sink_options(mirror.write_options())

    def write(self, records: DataFrame, batch_id: int) -> None:
        """Copy one batch. New topics of the source are created at the target first."""
        partitions = self.topics.follow()
        prefix = self.mirror.prefix
        rows = records.select(
            F.concat(F.lit(prefix), "topic").alias("topic"), "partition", "key", "value", "timestamp", "headers",
            F.col("offset").alias(SOURCE_OFFSET),
        )  # fmt: skip
        options = {**self.mirror.write_options(), REPORT: str(self.report)}
        if self.mirror.is_once:
            options[OF_BATCH] = OfBatch(batch_id).text()
        rows.write.format(CopySink.name()).options(**options).mode("append").save()
        written: dict[TopicPartition, list[Run]] = {}
        for span in (Span(*fields) for fields in json.loads(self.report.read_text())):
            run = Run(span.first, span.last, span.offset, span.count)
            written.setdefault((span.topic.removeprefix(prefix), span.partition), []).append(run)
        self.copies.add(partitions, written)

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query, from its checkpoint where there is one."""
        spark.dataSource.register(CopySink)
        records = spark.readStream.format("headrace").options(**self.mirror.read_options()).load()
        return begin(records.writeStream.foreachBatch(self.write), self.mirror)
