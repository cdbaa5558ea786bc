"""A topic, or a piece of one, as an Arrow table: for a person in a notebook."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.client.cluster import Client
from headrace.client.fetcher import Fetcher
from headrace.client.metadata import TopicPartition
from headrace.client.reading import EARLIEST, LATEST, Isolation, list_offsets
from headrace.client.security import Protection

if TYPE_CHECKING:
    import pyarrow as pa

Place = str | int | datetime | Mapping[int, int]
"""`"earliest"`, `"latest"`, an offset for every partition, a time (its first record), or offsets by partition."""


def scan(
    topic: str,
    *,
    bootstrap: str | Sequence[str] | None = None,
    start: Place = "earliest",
    end: Place = "latest",
    columns: Collection[str] | None = None,
    partitions: Iterable[int] | None = None,
    isolation: Isolation = "read_committed",
    timeout_s: float = 30.0,
    security: Protection | None = None,
    profile: str | None = None,
) -> pa.Table:
    """The records from `start` up to, not including, `end`, as they are at the time of the call.

    Columns are key, value, topic, partition, offset, timestamp, timestampType and headers; `columns` chooses some. A
    partition comes in offset order, the partitions one after the other. `security` are Kafka's client properties
    (`security.protocol`, `ssl.*`, `sasl.*`) as a mapping, or the path of a file of them; `profile` is the name of a
    profile (`headrace profile`), which says brokers and properties where they are not given. Without any of them the
    brokers are at 127.0.0.1:9092. Raises `headrace.client.ClientError`, `headrace.wire.records.CorruptBatch`, OSError
    for such a file, `ValueError`, in one line without secrets, for an argument that makes no sense, and ImportError,
    which names the extra to install, if pyarrow is missing.
    """
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ImportError("headrace.scan needs pyarrow: pip install 'headrace[arrow]'", name="pyarrow") from error
    from headrace.arrow.decode import COLUMN_NAMES, decode_fetched, schema_of

    schema = schema_of(COLUMN_NAMES if columns is None else columns)
    with Client(
        bootstrap, client_id="headrace-scan", timeout_s=timeout_s, security=security, profile=profile
    ) as client:
        there = [index for _, index in client.partitions(topic)]
        wanted = there if partitions is None else sorted(set(partitions))
        if missing := sorted(set(wanted) - set(there)):
            raise ValueError(f"topic {topic} has no partition {missing[0]}; they are 0 to {len(there) - 1}")
        first = _offsets(client, topic, wanted, start, isolation)
        last = _offsets(client, topic, wanted, end, isolation)
        for at in first:
            # a partition that a mapping of ends leaves out is not read
            if first[at] > last[at] and not (isinstance(end, Mapping) and at[1] not in end):
                raise ValueError(f"partition {at[1]} starts at offset {first[at]}, after its end at offset {last[at]}")
        ends = {at: last[at] for at in first if last[at] > first[at]}
        fetcher = Fetcher(client, {at: first[at] for at in ends}, ends=ends, isolation=isolation)
        pieces: dict[TopicPartition, list[pa.RecordBatch]] = {at: [] for at in sorted(ends)}
        for fetched in fetcher:
            batches = decode_fetched(fetched, schema, committed=isolation == "read_committed")
            pieces[fetched.topic, fetched.partition].extend(batches)
    return pa.Table.from_batches([batch for part in pieces.values() for batch in part], schema=schema)


def _offsets(
    client: Client, topic: str, partitions: Sequence[int], place: Place, isolation: Isolation
) -> dict[TopicPartition, int]:
    """Where `place` is in every partition, inside what the partition holds."""
    ats = [(topic, index) for index in partitions]
    low = {at: found.offset for at, found in list_offsets(client, dict.fromkeys(ats, EARLIEST)).items()}
    if place == "earliest" or not ats:
        return low
    high = list_offsets(client, dict.fromkeys(ats, LATEST), isolation=isolation)
    found = {at: high[at].offset for at in ats}
    if place == "latest":
        return found
    if isinstance(place, datetime):
        when = int(place.timestamp() * 1000)
        at_time = list_offsets(client, dict.fromkeys(ats, when), isolation=isolation)
        return {at: at_time[at].offset if at_time[at].offset >= 0 else found[at] for at in ats}
    if isinstance(place, str):
        raise ValueError(
            f"{place!r} is not a place in a topic: give 'earliest', 'latest', an offset, a datetime or a mapping"
        )
    chosen = dict.fromkeys(partitions, place) if isinstance(place, int) else dict(place)
    return {at: min(max(chosen.get(at[1], low[at]), low[at]), found[at]) for at in ats}
