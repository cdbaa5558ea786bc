"""Reads ranges in a Spark worker: its client is kept from task to task, and batches are decoded straight to Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.arrow.decode import decode_fetched
from headrace.client.cluster import Client
from headrace.client.errors import OffsetOutOfRangeError, UnknownTopicError
from headrace.client.fetcher import Fetcher
from headrace.client.metadata import TopicPartition
from headrace.spark.client_settings import ClusterSettings
from headrace.spark.options import SourceOptions
from headrace.spark.planning import Range, earliest, lost
from headrace.spark.process_state import this_process
from headrace.spark.rows import Rows


def drop_client(cluster: ClusterSettings) -> None:
    """Closes the client of a cluster that this process keeps for reading."""
    this_process().readers.drop(cluster)


def read_ranges(ranges: Sequence[Range], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yields the records of the ranges, with a client that is kept unless a read fails.

    Raises `headrace.client.ClientError`, `CorruptBatch`, `DataLossError`, `MalformedValueError`.
    """
    rows = Rows(options.row)
    # a partition may be in one task twice; the fetcher has one position for each
    rounds: list[dict[TopicPartition, Range]] = []
    for part in ranges:
        at = (part.topic, part.partition)
        for taken in rounds:
            if at not in taken:
                taken[at] = part
                break
        else:
            rounds.append({at: part})
    kept = this_process().readers
    client = kept.take(options.cluster) or options.cluster.client(known=True)
    is_sound = False
    try:
        for taken in rounds:
            yield from _read(client, taken, options, rows)
        is_sound = True
    except GeneratorExit:  # the rest is not wanted
        is_sound = True
        raise
    finally:
        if is_sound:
            kept.put(options.cluster, client)
        else:
            client.close()


def _read(
    client: Client, ranges: dict[TopicPartition, Range], options: SourceOptions, rows: Rows
) -> Iterator[pa.RecordBatch]:
    fetcher = Fetcher(
        client,
        {at: part.start for at, part in ranges.items()},
        ends={at: part.end for at, part in ranges.items()},
        isolation=options.isolation,
        topic_ids={topic: part.topic_id for (topic, _), part in ranges.items()},
        max_wait_ms=options.fetch.max_wait_ms,
        min_bytes=options.fetch.min_bytes,
        max_bytes=options.fetch.max_bytes,
        partition_max_bytes=options.fetch.partition_max_bytes,
        rack=options.fetch.rack,
    )
    try:
        while not fetcher.finished:
            try:
                for fetched in fetcher:
                    for batch in decode_fetched(fetched, rows.fetched, committed=options.isolation == "read_committed"):
                        yield rows.of(batch, fetched.topic, fetched.partition)
            except UnknownTopicError as error:
                lost(f"topic {error.topic} was deleted during the read", options)
                for at in [at for at in fetcher.positions if at[0] == error.topic]:
                    fetcher.remove(at)
            except OffsetOutOfRangeError as error:
                lost(f"topic {error.topic} partition {error.partition} has no offset {error.offset} any more", options)
                _go_on(fetcher, (error.topic, error.partition), client)
    finally:
        fetcher.close()


def _go_on(fetcher: Fetcher, at: TopicPartition, client: Client) -> None:
    """Where the log begins above the position, from there; where it was cut back there is nothing left of the range.

    Never further back: what lies there has been read.
    """
    begin = earliest(client, [at])[at]
    if begin > fetcher.positions[at]:
        fetcher.seek(at, begin)
    else:
        fetcher.remove(at)
