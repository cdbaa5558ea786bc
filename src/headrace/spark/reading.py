"""Reading ranges in a Spark worker: one client kept per worker process, batches decoded straight to Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.arrow.decode import decode_fetched
from headrace.client.cluster import Client
from headrace.client.errors import OffsetOutOfRangeError, UnknownTopicError
from headrace.client.metadata import TopicPartition
from headrace.client.reading import Fetcher
from headrace.spark.client_settings import ClusterSettings
from headrace.spark.options import SourceOptions
from headrace.spark.planning import Range, earliest, lost
from headrace.spark.rows import Rows

_clients: dict[ClusterSettings, Client] = {}
"""Workers are reused from task to task, and so are their connections."""


def kept_client(cluster: ClusterSettings) -> Client:
    """This process's client of a cluster."""
    client = _clients.get(cluster)
    if client is None:
        client = _clients[cluster] = cluster.client(known=True)
    return client


def drop_client(cluster: ClusterSettings) -> None:
    """Close this process's client of a cluster, after an error."""
    client = _clients.pop(cluster, None)
    if client is not None:
        client.close()


def read_ranges(ranges: Sequence[Range], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of the ranges.

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
    try:
        for taken in rounds:
            yield from _read(taken, options, rows)
    except Exception:
        drop_client(options.cluster)
        raise


def _read(ranges: dict[TopicPartition, Range], options: SourceOptions, rows: Rows) -> Iterator[pa.RecordBatch]:
    client = kept_client(options.cluster)
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
