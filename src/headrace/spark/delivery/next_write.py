"""What a query is to write next, by its options and its checkpoint, and the last mark that the cluster has of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Final

from headrace.client.cluster import Client
from headrace.spark import checkpoint_offsets
from headrace.spark.delivery import commit_records, markers
from headrace.spark.delivery.encoding import partition_count
from headrace.spark.delivery.markers import Mark, NextWrite, Write
from headrace.spark.delivery.spark_task import QueryBatch
from headrace.spark.delivery_options import ExactlyOnce
from headrace.spark.options import SinkOptions

WRITE_DIGEST_SIZE: Final = 8
"""In characters, of the digest of one write's topic and options."""


def next_write_of(options: SinkOptions, batch: QueryBatch, offsets: str | None = None) -> NextWrite:
    """Returns the next write of a batch, by the options and the checkpoint. `offsets` is a digest of where the
    batch ends in its sources, if the checkpoint need not be read for it."""
    how = options.exactly_once
    assert how is not None
    of, batch_id = how.of_batch, batch.batch_id
    if offsets is None:
        offsets = (of and of.offsets) or checkpoint_offsets.digest(how.checkpoint, batch_id)
    topic = options.topic or ""
    settings = [topic, options.compression.name, options.batch_headers, how.marker_topic, how.commit_topic]
    digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:WRITE_DIGEST_SIZE]
    write = Write(0 if of is None else of.write, topic[: markers.TOPIC_SHOWN], digest)
    return NextWrite(*batch, offsets, write, how.marker_topic, None if of is None else of.before)


def compares_rows(options: SinkOptions) -> bool:
    """Returns whether tasks hash their rows, as the driver cannot read where a batch ends in its sources."""
    how = options.exactly_once
    assert how is not None
    is_known = how.of_batch is not None and bool(how.of_batch.offsets)
    return not is_known and checkpoint_offsets.local_directory(how.checkpoint) is None


def make_topics(client: Client, how: ExactlyOnce) -> None:
    """Creates the topics of the marks if they are missing; the marker topic only if brokers create topics."""
    if how.commit_topic:
        commit_records.make_topic(client, how.commit_topic)
    partition_count(client, how.marker_topic)


def last_mark(client: Client, how: ExactlyOnce, query_id: str) -> Mark | None:
    """Returns the query's mark, or the one in the commit topic if that is gone. Waits for an open transaction of the
    query."""
    group = markers.group_of(query_id)
    mark = markers.read_mark(client, group, how.marker_topic, stable=True)
    if mark is None:
        mark = markers.read_mark(client, group, how.marker_topic, stable=True, is_alone=True)
    if (mark is None or mark.batch_id == markers.NO_BATCH) and how.commit_topic:
        record = commit_records.read_last(client, how.commit_topic, query_id)
        if record is not None:
            # the group alone says which run writes next
            if mark is None:
                return replace(record.mark, plan=None, is_recalled=True)
            return replace(record.mark, plan=mark.plan, topic=mark.topic)
    return mark
