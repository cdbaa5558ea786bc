"""The readers of `format("headrace")`: batch and stream, against Headrace and Apache Kafka.

A stream's offset is JSON: `{"topics": {"flights": {"0": 12, "1": 7}}, "ids": {"flights": "x0Yz..."}, "group": "..."}`:
positions, the ids of the topics that they are in (a topic made again under an old name is another one), and the group
to which what is finished is committed. The one that `initialOffset` gives also says `"initial": true`, and the first
end that follows it carries its positions as `"from"`: Spark keeps the end of batch 0 but not its start, so a replay of
batch 0 must find its start there and not where the topic's end has moved to.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headrace.client.cluster import Client
from headrace.client.errors import UnknownTopicError
from headrace.client.metadata import TopicPartition
from headrace.spark import planning, tasks
from headrace.spark.group_offsets import GroupOffsets
from headrace.spark.options import SourceOptions
from headrace.spark.planning import Offsets, Range
from headrace.spark.refusals import in_one_sentence
from headrace.wire import uuids

POLL_S: Final = 0.01
"""The shortest time between two requests for the cluster's latest offsets."""
IDLE_WAIT_S: Final = 0.1
"""How long an idle query's question waits for news: Spark repeats it at once, and every time costs both sides."""
DISCOVERY_S: Final = 1.0
"""How often new partitions, and new topics of a pattern, are looked for."""


@dataclass
class RangesPartition(InputPartition):
    """The ranges of one task."""

    ranges: list[Range]

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__(None)
        self.ranges = ranges


class BatchReader(DataSourceReader):
    """A batch read, from startingOffsets to endingOffsets."""

    def __init__(self, options: SourceOptions, cores: int | None = None) -> None:
        """`cores` are those that tasks are planned for; where None, this machine's."""
        self.options = options
        self.cores = cores

    @in_one_sentence
    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read; ends are resolved once, here."""
        options = self.options
        with options.cluster.client() as client:
            ranges = planning.batch_ranges(client, options)
            taken = tasks.LogSizes().of(client, ranges)
        planned = tasks.tasks_of(ranges, options, taken, self.cores or tasks.machine_cores())
        # of no tasks at all Spark makes one without a partition
        return [RangesPartition(task) for task in planned or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task. Runs in a worker."""
        from headrace.spark.reading import read_ranges

        assert isinstance(partition, RangesPartition)
        yield from read_ranges(partition.ranges, self.options)


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as they lie in the checkpoint."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(index)] = offset
    return topics


def from_json(topics: dict[str, dict[str, int]]) -> Offsets:
    """Offsets out of a checkpoint."""
    return {(topic, int(index)): offset for topic, part in topics.items() for index, offset in part.items()}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream's planning, in one process beside the driver, and its reading, in the workers."""

    def __init__(self, options: SourceOptions, cores: int | None = None) -> None:
        """`cores` are those that tasks are planned for; where None, this machine's."""
        self.options = options
        self.cores = cores
        self._sizes = tasks.LogSizes()
        self._client: Client | None = None
        self._initial: Offsets | None = None
        self._freezes = False
        self._frozen: Offsets | None = None
        self._partitions: list[TopicPartition] = []
        self._gone: set[str] = set()
        self._discovered = -DISCOVERY_S
        self._latest: Offsets = {}
        self._polled = -POLL_S
        self._triggered = -math.inf
        self._new_group = f"{options.group_prefix}-{uuid.uuid4()}"
        self._group_offsets = GroupOffsets()

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the options alone."""
        return {"options": self.options}

    # -- planning

    def _cluster(self) -> Client:
        if self._client is None:
            self._client = self.options.cluster.client()
        return self._client

    def _subscribed(self) -> list[TopicPartition]:
        now = time.monotonic()
        if now - self._discovered >= DISCOVERY_S:
            before = set(self._gone)
            self._partitions = planning.still_subscribed(self._cluster(), self.options.subscription, self._gone)
            for topic in sorted(self._gone - before):
                planning.lost(f"topic {topic} does not exist any more", self.options)
            self._discovered = time.monotonic()
        return self._partitions

    def _ends_now(self) -> Offsets:
        try:
            return planning.latest(self._cluster(), self._subscribed(), self.options)
        except UnknownTopicError:
            # deleted since partitions were last looked for
            self._discovered = -DISCOVERY_S
            return planning.latest(self._cluster(), self._subscribed(), self.options)

    def _ends(self) -> Offsets:
        if time.monotonic() - self._polled >= POLL_S:
            self._latest = self._ends_now()
            self._polled = time.monotonic()
        return self._latest

    @in_one_sentence
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query starts. Spark asks twice, so the answer is kept."""
        if self._initial is None:
            partitions = planning.subscribed(self._cluster(), self.options.subscription)
            self._initial = planning.resolve(self._cluster(), partitions, self.options.starting, self.options)
        return {"topics": to_json(self._initial), "initial": True, **self._named({}, self._initial)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger`, else `minOffsetsPerTrigger`, where one is given; Spark replaces it under Once."""
        least, most = self.options.min_offsets_per_trigger, self.options.max_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    @in_one_sentence
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing that arrives after this is read. Whether a topic that is not there is lost, or has never been there,
        is not known yet: `initialOffset` and `latestOffset` say."""
        self._freezes = True
        with suppress(UnknownTopicError):
            partitions = planning.subscribed(self._cluster(), self.options.subscription)
            self._frozen = planning.latest(self._cluster(), partitions, self.options)

    def _ids(self, offsets: Offsets) -> dict[str, str]:
        """The ids of the topics that are not gone, as text."""
        found = planning.topic_ids(self._cluster(), {topic for topic, _ in offsets} - self._gone)
        return {name: uuids.to_text(topic_id) for name, topic_id in found.items()}

    def _made_again(self, ids: dict[str, str], offsets: Offsets) -> set[str]:
        """The topics that have other ids now, each of them complained about."""
        again = self._with_other_ids(ids, offsets)
        for name in sorted(again):
            planning.lost(f"topic {name} was deleted and made again; its unread records are gone", self.options)
        return again

    def _with_other_ids(self, ids: dict[str, str], offsets: Offsets) -> set[str]:
        """The topics that have other ids now, as far as the client knows."""
        return {name for name, now in self._ids(offsets).items() if ids.get(name, now) != now}

    def _named(self, start: dict[str, Any], offsets: Offsets) -> dict[str, Any]:
        """The part of an offset that is no position: the ids of the topics, and the group."""
        ids = self._ids(offsets)
        named: dict[str, Any] = {"ids": ids} if ids else {}
        if self.options.commit_group_offsets:
            named["group"] = self._group(start)
        return named

    def _group(self, start: dict[str, Any]) -> str:
        return str(self.options.group or start.get("group") or self._new_group)

    def _commit_finished(self, start: dict[str, Any]) -> None:
        """Spark asks for a next batch when all before it are finished, the last one of AvailableNow included."""
        if self.options.commit_group_offsets and not start.get("initial"):
            read = set(self._subscribed())
            finished = {at: offset for at, offset in from_json(start["topics"]).items() if at in read}
            self._group_offsets.commit(self._cluster(), self._group(start), finished)

    @in_one_sentence
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends. Nothing new is the same offset again, after a wait for news."""
        self._commit_finished(start)
        if self._freezes and self._frozen is None:
            self._frozen = self._ends_now()
        until = time.monotonic() + IDLE_WAIT_S
        while (after := self._next_end(start, limit)) is start and self._frozen is None and time.monotonic() < until:
            time.sleep(POLL_S)
        return after

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = from_json(start["topics"])
        end = dict(self._ends() if self._frozen is None else self._frozen)
        vanished = self._vanished(begin, end)
        # what was cut back goes back: the end is logged, and partitions() says so, also after a restart
        back = planning.cut_back(self._cluster(), {at: begin[at] for at in begin if end.get(at, begin[at]) < begin[at]})
        for at, position in begin.items():
            if at not in vanished and at not in back:
                end[at] = max(end.get(at, position), position)
        is_idle = end == begin or (not back and self._waits_for_more(begin, end, limit))
        if is_idle and not start.get("initial") and not self._with_other_ids(start.get("ids", {}), end):
            return start
        # asked for after the ends: if a topic is still the one that was read, they are its own
        self._discovered = -DISCOVERY_S
        self._subscribed()
        if again := self._made_again(start.get("ids", {}), end):
            begin = {at: position for at, position in begin.items() if at[0] not in again}
            end |= planning.latest(self._cluster(), [at for at in end if at[0] in again], self.options)
        if new := [at for at in end if at not in begin]:
            begin |= planning.earliest_there(self._cluster(), new)
            end = {at: offset for at, offset in end.items() if at in begin}
        if isinstance(limit, ReadMaxRows):
            end = planning.limited(begin, end, limit.max_rows)
        after: dict[str, Any] = {"topics": to_json(end), **self._named(start, end)}
        if start.get("initial"):
            after["from"] = start["topics"]
        elif after["topics"] == start["topics"] and not again:
            return start
        self._triggered = time.monotonic()
        return after

    def _waits_for_more(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """Whether `minOffsetsPerTrigger` holds a batch back: not the first, as in the connector, nor one of a query
        that is to end, under AvailableNow or Once."""
        least = self.options.min_offsets_per_trigger
        if least is None or self._frozen is not None or isinstance(limit, ReadAllAvailable):
            return False
        rows = sum(max(last - begin.get(at, 0), 0) for at, last in end.items())
        return rows < least and time.monotonic() - self._triggered < self.options.max_trigger_delay_s

    def _vanished(self, begin: Offsets, end: Offsets) -> set[TopicPartition]:
        """The partitions that a stream has read and that are deleted, or not subscribed to any more. It leaves them
        behind, as the connector does: a topic of the same name made later is another one, read from its beginning.
        """
        left = {at for at in begin if not planning.covers(self.options.subscription, at)}
        for topic, index in sorted(left):
            planning.lost(f"topic {topic} partition {index} is not in the subscription any more", self.options)
        unseen = [at for at in begin if at not in end and at not in left]
        topics = {topic for topic, _ in unseen} - self._gone
        counts = {topic: planning.partition_count(self._cluster(), topic) for topic in sorted(topics)}
        vanished = {at for at in unseen if at[1] >= counts.get(at[0], 0)}
        for topic, index in sorted(at for at in vanished if at[0] not in self._gone):
            planning.lost(f"topic {topic} partition {index} does not exist any more", self.options)
        return vanished | left

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the query's progress."""
        latest = self._latest or self._frozen
        return {"topics": to_json(latest)} if latest else None

    @in_one_sentence
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch, also one that a checkpoint replays. Raises `DataLossError`."""
        # only batch 0 starts at an initial offset, and only its own end says what that was when it was planned
        begin = from_json(end["from"] if start.get("initial") and "from" in end else start["topics"])
        until = from_json(end["topics"])
        client = self._cluster()
        self._subscribed()
        before, planned = start.get("ids", {}), end.get("ids", {})
        other = {name for name in before if before[name] != planned.get(name, before[name])}
        begin = {at: offset for at, offset in begin.items() if at[0] not in other}
        again = self._made_again(planned, until)
        until = {at: offset for at, offset in until.items() if at[0] not in again}
        begin |= self._begin_of_new([at for at in until if at not in begin])
        until = {at: offset for at, offset in until.items() if at in begin}
        backwards = [at for at in until if until[at] < begin[at]]
        for at in backwards:
            planning.lost(
                f"topic {at[0]} partition {at[1]} ends at offset {until[at]}, but the query has read up to {begin[at]}",
                self.options,
            )
        ids = {name: uuids.from_text(text) for name, text in planned.items()}
        ranges = planning.checked(client, {at: (begin[at], until[at]) for at in until}, ids, self.options)
        taken = self._sizes.of(client, ranges)
        planned = tasks.tasks_of(ranges, self.options, taken, self.cores or tasks.machine_cores())
        return [RangesPartition(task) for task in planned]

    def _begin_of_new(self, new: list[TopicPartition]) -> Offsets:
        """Where partitions that the query has not read yet begin. As in the connector, each is complained about that
        is gone already, or has lost its first records before anybody read them.
        """
        begin = planning.earliest_there(self._cluster(), new) if new else {}
        for at in sorted(new):
            where = f"topic {at[0]} partition {at[1]}"
            if at not in begin:
                planning.lost(f"{where} does not exist any more", self.options)
            elif begin[at] > 0:
                planning.lost(f"{where} is new to the query and begins at offset {begin[at]}, not 0", self.options)
        return begin

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: the progress is in Spark's checkpoint, and `latestOffset` commits the group's offsets."""

    def stop(self) -> None:
        """Close the planning client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- reading

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task. Runs in a worker."""
        from headrace.spark.reading import read_ranges

        assert isinstance(partition, RangesPartition)
        yield from read_ranges(partition.ranges, self.options)


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream that cannot be: whatever Spark asks it for first, the answer is why."""

    def __init__(self, error: ValueError) -> None:
        self.error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self.error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self.error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self.error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        raise self.error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self.error
