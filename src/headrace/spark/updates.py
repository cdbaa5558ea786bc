"""A sink for `foreachBatch`, with which a batch is written once, or several times to several topics.

Each write has a number in its batch, which is counted here: for each query, in the process that runs its function. With
delivery exactly once the number goes into the query's mark (see `markers`).
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.utils import is_remote

from headrace.spark import checkpoint_offsets
from headrace.spark.delivery_options import OF_BATCH, OfBatch
from headrace.spark.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERIES_MAX: Final = 1000
"""Whose writes are counted, in one process; the one that has not written for longest is forgotten."""


@dataclass
class Count:
    """How often a run of a query has written in its batch. `failed` are the rows of a write that is not known to be
    there: what comes next has its number, and can only be the same rows."""

    run_id: str
    batch_id: int = -1
    writes: int = 0
    before: tuple[int, int] | None = None
    failed: Any = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, batch_id: int, rows: Any) -> None:
        """A write of a batch begins."""
        if batch_id != self.batch_id:
            self.before = None if self.batch_id < 0 else (self.batch_id, self.writes)
            self.batch_id, self.writes, self.failed = batch_id, 0, None
        elif self.failed is not None and self.failed is not rows:
            raise ValueError(
                f"Write {self.writes + 1} of batch {batch_id} has failed, and other rows cannot be written in its "
                "place: let the query end, and start it again."
            )
        self.failed = rows

    def end(self) -> None:
        """It is there."""
        self.writes += 1
        self.failed = None


class Counts:
    """Those of all queries of a process. A copy that is sent to another process begins with none."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, Count] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Counts], tuple[()]]:
        return Counts, ()

    def of(self, query_id: str, run_id: str | None) -> Count:
        """The count of a query's run; where that has no id, it is one that was made here for the first of its
        batches."""
        with self._lock:
            found = self._of.get(query_id)
            if found is None or run_id not in (None, found.run_id):
                found = self._of[query_id] = Count(run_id or str(uuid.uuid4()))
                if len(self._of) > QUERIES_MAX:
                    self._of.popitem(last=False)
            self._of.move_to_end(query_id)
            return found


COUNTS: Final = Counts()


class Updates:
    """What `write_updates` returns."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises ValueError, in one sentence, for wrong options."""
        self.options = dict(options)
        checked = sink_options(self.options)
        self.cluster = checked.cluster
        self.exactly_once = checked.exactly_once
        if self.exactly_once is not None and is_remote() and not self.exactly_once.checkpoint:
            raise checkpoint_offsets.no_query("")  # now, and not with the first batch
        # one for all sinks of a function, also where Spark sends it to another process
        self._counts = COUNTS

    def __repr__(self) -> str:
        topic = self.options.get("topic")
        where = "the topics of its rows" if topic is None else f"topic {topic}"
        delivery = "at least once" if self.exactly_once is None else "exactly once"
        return f"<sink for foreachBatch: {where}, {delivery}>"

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write the rows."""
        if self.exactly_once is None:
            self._save(rows, {})
            return
        names = self._names(rows)
        count = self._counts.of(*names)
        with count.lock:
            count.begin(batch_id, rows)
            offsets = self._offsets(rows, names[0], batch_id)
            query = (names[0], count.run_id) if is_remote() else None
            of = OfBatch(batch_id, count.writes, count.before, offsets, query)
            self._save(rows, {OF_BATCH: of.text()})
            count.end()

    def _save(self, rows: DataFrame, beside: dict[str, str]) -> None:
        rows.write.format("headrace").options(**self.options, **beside).mode("append").save()

    def _names(self, rows: DataFrame) -> tuple[str, str | None]:
        """The ids of the query and of its run. Over Connect nothing says the run: a new one is a new process there."""
        assert self.exactly_once is not None
        if is_remote():
            return checkpoint_offsets.query_of(self.exactly_once.checkpoint), None
        context = rows.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        if query_id is None:
            raise ValueError(
                "write_updates with delivery exactly-once writes batches of a stream: give it to foreachBatch, or call "
                "it in the function that is given, in the thread that runs that."
            )
        return query_id, context.getLocalProperty("spark.jobGroup.id")

    def _offsets(self, rows: DataFrame, query_id: str, batch_id: int) -> str:
        """A digest of where the batch ends in its sources."""
        assert self.exactly_once is not None
        checkpoint = self.exactly_once.checkpoint
        if is_remote() or checkpoint_offsets.local_directory(checkpoint) is not None:
            return checkpoint_offsets.digest(checkpoint, batch_id)
        java, session = _java_of(rows)
        query = session.sharedState().activeStreamingQueries().get(java.java.util.UUID.fromString(query_id))
        if query is None:
            return ""
        root = java.org.apache.hadoop.fs.Path(query.resolvedCheckpointRoot())
        files = root.getFileSystem(session.sessionState().newHadoopConf())

        def read(name: PurePosixPath) -> bytes | None:
            path = java.org.apache.hadoop.fs.Path(root, str(name))
            if not files.exists(path):
                return None
            stream = files.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return checkpoint_offsets.digest_by(read, batch_id)


def _java_of(rows: DataFrame) -> tuple[Any, Any]:
    """Spark's Java side, and the session's there: nothing in Python says where a query's checkpoint is."""
    session: Any = rows.sparkSession
    return session._jvm, session._jsparkSession  # noqa: SLF001
