"""What a query's last batch leaves in the `commitTopic`: a record in the batch's transaction, which does not expire.

The topic is compacted, and all records are in its partition 0. The key is the query's id. The value is the JSON of the
batch's mark (see `markers`), with the batch's number as `"batch"` and, as `"spans"`, where its records went: topic,
partition, first offset and count, and for rows that say which records of a source they are, the first and last of
those. `"spans"` is not there where the driver does not know them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.client import admin
from headrace.client.cluster import Client
from headrace.client.fetcher import Fetcher
from headrace.client.metadata import TopicPartition
from headrace.client.reading import EARLIEST, LATEST, Isolation, list_offsets, visible_batches
from headrace.spark.delivery.markers import Mark, mark_of
from headrace.wire.errors import ErrorCode
from headrace.wire.records import decode_batch

PARTITION: Final = 0
TOPIC_SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""What the topic is made with.

Its last segment is not compacted, and finding a record means reading the whole topic.
"""


@dataclass(frozen=True, slots=True)
class Span:
    """`count` consecutive records of a batch, from `offset` on; -1 if no broker has returned it.

    `first` and `last` are the source's offsets of them, or -1.
    """

    topic: str
    partition: int
    offset: int
    count: int
    first: int = -1
    last: int = -1

    def fields(self) -> list[Any]:
        """As JSON has it."""
        place = [self.topic, self.partition, self.offset, self.count]
        return place if self.first < 0 else [*place, self.first, self.last]

    def joined(self, after: Span) -> Span | None:
        """Both as one; None where they do not lie together, here and at the source."""
        together = (self.topic, self.partition) == (after.topic, after.partition) and self.offset >= 0
        if not together or self.offset + self.count != after.offset:
            return None
        sources = self.first < 0 and after.first < 0
        dense = all(each.last - each.first + 1 == each.count for each in (self, after))
        if not sources and not (dense and self.last + 1 == after.first):
            return None
        return replace(self, count=self.count + after.count, last=after.last)


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same records in fewer spans, those of a partition together and in their order."""
    found: dict[tuple[str, int], list[Span]] = {}
    for span in spans:
        known = found.setdefault((span.topic, span.partition), [])
        one = known[-1].joined(span) if known else None
        if one is None:
            known.append(span)
        else:
            known[-1] = one
    return [span for known in found.values() for span in known]


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The mark of a batch, and where its records are; None if that is not known."""

    mark: Mark
    spans: tuple[Span, ...] | None

    def value(self) -> bytes:
        """The record's value."""
        fields: dict[str, Any] = {**self.mark.fields(), "batch": self.mark.batch_id}
        if self.spans is not None:
            fields["spans"] = [span.fields() for span in self.spans]
        return json.dumps(fields, separators=(",", ":")).encode()


def parsed(value: bytes) -> CommitRecord | None:
    """What `CommitRecord.value` has made; None for something else."""
    try:
        fields = json.loads(value)
        mark = mark_of(fields["batch"], fields)
        spans = tuple(Span(*each) for each in fields["spans"]) if "spans" in fields else None
    except (ValueError, TypeError, KeyError):
        return None
    return None if mark is None else CommitRecord(mark, spans)


def make_topic(client: Client, topic: str) -> None:
    """Create the topic where it is missing. Raises `BrokerError`."""
    if client.refresh([topic]).get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        admin.create_topic(client, topic, partitions=1, configs=TOPIC_SETTINGS, exist_ok=True)


def read_last(client: Client, topic: str, query_id: str) -> CommitRecord | None:
    """A query's last record; None where there is none. No transaction of the query may be open.

    One of somebody else may be, and hides what is behind it. This waits for its end only where records of the query are
    there.
    Raises `BrokerError`, and `TimedOutError` where it stays open for longer than the client's timeout.
    """
    at, key = (topic, PARTITION), query_id.encode()
    first = list_offsets(client, {at: EARLIEST})[at].offset
    stable = list_offsets(client, {at: LATEST}, isolation="read_committed")[at].offset
    end = list_offsets(client, {at: LATEST})[at].offset
    found = _values(client, at, (first, stable), key, committed=True)
    if _values(client, at, (stable, end), key, committed=False):
        found += _values(client, at, (stable, end), key, committed=True)
    return None if not found or found[-1] is None else parsed(found[-1])


def _values(
    client: Client, at: TopicPartition, offsets: tuple[int, int], key: bytes, *, committed: bool
) -> list[bytes | None]:
    """The last value with a key between two offsets of a partition, in a list; none where there is none."""
    first, end = offsets
    isolation: Isolation = "read_committed" if committed else "read_uncommitted"
    last: list[bytes | None] = []
    # a record compacted away since was not the last
    for fetched in Fetcher(client, {at: first}, ends={at: end}, isolation=isolation, reset="earliest"):
        for _, batch in visible_batches(fetched, committed=committed):
            values = [record.value for record in decode_batch(batch) if record.key == key]
            last = values[-1:] or last
    return last
