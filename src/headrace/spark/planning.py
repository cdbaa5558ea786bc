"""Where a read begins and ends: offsets of the cluster, limits, and how ranges become tasks. Runs beside the driver."""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.client.cluster import Client, TopicPartition
from headrace.client.errors import UnknownTopicError
from headrace.client.reading import EARLIEST, LATEST, list_offsets
from headrace.spark.options import EARLIEST_OFFSET, LATEST_OFFSET, Positions, SourceOptions, Subscription
from headrace.wire.errors import ErrorCode

Offsets = dict[TopicPartition, int]

MERGE_ROWS: Final = 50_000
"""Ranges are merged into one task up to this many offsets: a Python task costs about 30 ms, whatever it reads."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class DataLossError(Exception):
    """Offsets that a query wants are gone, or were never there."""


def subscribed(client: Client, subscription: Subscription) -> list[TopicPartition]:
    """The partitions there are now, sorted. Raises `UnknownTopicError` where a topic that is named is not there."""
    if not subscription.pattern:
        client.topics(subscription.names)
    return _partitions(client, subscription, ())


def still_subscribed(client: Client, subscription: Subscription, gone: set[str]) -> list[TopicPartition]:
    """The same for a stream that has begun, without the topics that are `gone`, a set that is brought up to date."""
    if not subscription.pattern:
        errors = client.refresh(subscription.names)
        denied = {topic for topic, code in errors.items() if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        gone &= denied
        # one broker may be a moment behind the others: only what stays denied is gone
        gone |= {topic for topic in denied - gone if partition_count(client, topic) == 0}
    return _partitions(client, subscription, gone)


def _partitions(client: Client, subscription: Subscription, gone: Container[str]) -> list[TopicPartition]:
    if subscription.assigned:
        return [at for at in subscription.assigned if at[0] not in gone]
    if subscription.pattern:
        # as Java's Matcher.matches, and as the connector: the whole name
        pattern = re.compile(subscription.pattern)
        topics = [topic for topic in client.topics() if pattern.fullmatch(topic.name) and not topic.internal]
    else:
        topics = [client.topic(name) for name in subscription.names if name not in gone]
    return sorted((topic.name, partition.index) for topic in topics for partition in topic.partitions)


def partition_count(client: Client, topic: str) -> int:
    """How many partitions the topic has; 0 where the cluster has no such topic."""
    try:
        return len(client.topic(topic).partitions)
    except UnknownTopicError:
        return 0


def earliest(client: Client, partitions: Iterable[TopicPartition]) -> Offsets:
    """Where the log of each partition begins."""
    return {at: found.offset for at, found in list_offsets(client, dict.fromkeys(partitions, EARLIEST)).items()}


def latest(client: Client, partitions: Iterable[TopicPartition], options: SourceOptions) -> Offsets:
    """Up to where each partition can be read now."""
    found = list_offsets(client, dict.fromkeys(partitions, LATEST), isolation=options.isolation)
    return {at: end.offset for at, end in found.items()}


def resolve(client: Client, partitions: list[TopicPartition], places: Positions, options: SourceOptions) -> Offsets:
    """The offsets that `startingOffsets` or `endingOffsets` mean. Raises ValueError where they miss partitions."""
    if places == "earliest":
        return earliest(client, partitions)
    if places == "latest":
        return latest(client, partitions, options)
    assert isinstance(places, dict)
    chosen = {(topic, index): offset for topic, part in places.items() for index, offset in part.items()}
    if missing := sorted(set(partitions) - set(chosen)):
        raise ValueError(f"The offsets given name no offset for topic {missing[0][0]} partition {missing[0][1]}.")
    if surplus := sorted(set(chosen) - set(partitions)):
        raise ValueError(f"The offsets given name topic {surplus[0][0]} partition {surplus[0][1]}, which is not read.")
    first = earliest(client, [at for at in partitions if chosen[at] == EARLIEST_OFFSET])
    last = latest(client, [at for at in partitions if chosen[at] == LATEST_OFFSET], options)
    return chosen | first | last


def limited(start: Mapping[TopicPartition, int], end: Offsets, limit: int) -> Offsets:
    """`end`, moved back so that at most about `limit` offsets lie before it, shared out by how far partitions lag."""
    lag = {at: max(last - start.get(at, last), 0) for at, last in end.items()}
    total = sum(lag.values())
    if total <= limit:
        return end
    # floor, but one for the first of those that lag: nothing may starve, and something must move
    cut: Offsets = {}
    for at in sorted(end):
        share = max(lag[at] * limit // total, 1 if lag[at] and sum(cut.values()) < limit else 0)
        cut[at] = min(share, lag[at])
    return {at: start.get(at, last) + cut[at] if lag[at] else last for at, last in end.items()}


def checked(client: Client, wanted: Mapping[TopicPartition, tuple[int, int]], options: SourceOptions) -> list[Range]:
    """The ranges to read, none of them empty, inside what the logs hold.

    What is missing raises `DataLossError`, or is warned about and left out where `failOnDataLoss` is false.
    """
    asked = {at: span for at, span in wanted.items() if span[1] > span[0]}
    while True:
        existing = {at for at in asked if at[1] < partition_count(client, at[0])}
        try:
            first = earliest(client, existing)
            last = latest(client, existing, options)
            break
        except UnknownTopicError:
            continue  # deleted since the client last heard of it, which it now has forgotten
    ranges: list[Range] = []
    for at in sorted(asked):
        start, end = asked[at]
        where = f"topic {at[0]} partition {at[1]}"
        if at not in existing:
            lost(f"{where} is not there any more; offsets {start} to {end} cannot be read", options)
            continue
        if start < first[at]:
            lost(f"{where} begins at offset {first[at]} now; offsets from {start} on are gone", options)
            start = first[at]
        if end > last[at]:
            lost(f"{where} ends at offset {last[at]}, before offset {end}", options)
            end = last[at]
        if end > start:
            ranges.append(Range(*at, start, end))
    return ranges


def lost(what: str, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(f"{what}. Set the option failOnDataLoss to false to go on without them.")
    warnings.warn(what, RuntimeWarning, stacklevel=3)


def merged(ranges: list[Range], rows: int = MERGE_ROWS) -> list[list[Range]]:
    """Tasks: small ranges share one, up to `rows` offsets together; a large one has its own."""
    tasks: list[list[Range]] = []
    room = 0
    for part in sorted(ranges, key=lambda part: part.end - part.start):
        size = part.end - part.start
        if not tasks or size > room:
            tasks.append([])
            room = rows
        tasks[-1].append(part)
        room -= size
    return tasks
