"""What a query is to write next, by its options and its checkpoint, and what the cluster remembers of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Final

from headrace.client.cluster import Client
from headrace.spark import checkpoint_offsets, commit_records, markers
from headrace.spark.delivery import ExactlyOnce
from headrace.spark.markers import Mark, Turn, Write
from headrace.spark.options import SinkOptions
from headrace.spark.sink import partition_count

WRITE_DIGEST_SIZE: Final = 8
"""In characters, of the digest of one write's topic and options."""
TaskNames = tuple[str, str, int]
"""The ids of a query and of its run, and the number of a batch."""


def turn_of(options: SinkOptions, names: TaskNames, offsets: str | None = None) -> Turn:
    """What is to be written, by the options, by what one of the tasks says and by the checkpoint."""
    how = options.exactly_once
    assert how is not None
    of, batch_id = how.of_batch, names[2]
    if offsets is None:
        offsets = (of and of.offsets) or checkpoint_offsets.digest(how.checkpoint, batch_id)
    topic = options.topic or ""
    said = [topic, options.compression.name, options.batch_headers, how.marker_topic, how.commit_topic]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:WRITE_DIGEST_SIZE]
    write = Write(0 if of is None else of.write, topic[: markers.TOPIC_SHOWN], digest)
    return Turn(*names, offsets, write, how.marker_topic, None if of is None else of.before)


def compares_rows(options: SinkOptions) -> bool:
    """Whether tasks hash their rows, as the driver cannot read where a batch ends in its sources."""
    how = options.exactly_once
    assert how is not None
    is_known = how.of_batch is not None and bool(how.of_batch.offsets)
    return not is_known and checkpoint_offsets.local_directory(how.checkpoint) is None


def make_topics(client: Client, how: ExactlyOnce) -> None:
    """Those of the marks, where they are missing; the marker topic only where brokers make topics by themselves."""
    if how.commit_topic:
        commit_records.make_topic(client, how.commit_topic)
    partition_count(client, how.marker_topic)


def last_mark(client: Client, how: ExactlyOnce, query_id: str) -> Mark | None:
    """The query's mark, or what the commit topic has of it where that is gone. No transaction of the query is open, or
    this waits for it."""
    group = markers.group_of(query_id)
    mark = markers.read_mark(client, group, how.marker_topic, stable=True)
    if mark is None:
        mark = markers.read_mark(client, group, how.marker_topic, stable=True, is_alone=True)
    if (mark is None or mark.batch_id == markers.NO_BATCH) and how.commit_topic:
        record = commit_records.read_last(client, how.commit_topic, query_id)
        if record is not None:
            # the group alone says whose turn it is
            found = (None, "") if mark is None else (mark.plan, mark.topic)
            return replace(record.mark, plan=found[0], topic=found[1])
    return mark
