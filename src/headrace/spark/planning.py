"""Where a read begins and ends: offsets of the cluster, and limits. Runs beside the driver."""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from headrace.client.cluster import Client
from headrace.client.errors import UnknownTopicError
from headrace.client.metadata import TopicPartition
from headrace.client.reading import EARLIEST, LATEST, list_offsets
from headrace.spark.options import EARLIEST_OFFSET, LATEST_OFFSET, Places, SourceOptions, Subscription, Times
from headrace.wire import uuids
from headrace.wire.errors import ErrorCode

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition, of the topic that has this id (zero from brokers without ids)."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = uuids.ZERO


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


def covers(subscription: Subscription, at: TopicPartition) -> bool:
    """Whether the subscription is to this partition, be it there or not."""
    if subscription.pattern:
        return re.fullmatch(subscription.pattern, at[0]) is not None
    return at in subscription.assigned if subscription.assigned else at[0] in subscription.topics


def topic_ids(client: Client, topics: Iterable[str]) -> dict[str, bytes]:
    """The ids of the topics, as the client knows them; none of those that are gone, or of a broker without ids."""
    found: dict[str, bytes] = {}
    for name in sorted(set(topics)):
        try:
            topic_id = client.topic(name).id
        except UnknownTopicError:
            continue
        if topic_id != uuids.ZERO:
            found[name] = topic_id
    return found


def partition_count(client: Client, topic: str) -> int:
    """How many partitions the topic has; 0 where the cluster has no such topic."""
    try:
        return len(client.topic(topic).partitions)
    except UnknownTopicError:
        return 0


def earliest(client: Client, partitions: Iterable[TopicPartition]) -> Offsets:
    """Where the log of each partition begins."""
    return {at: found.offset for at, found in list_offsets(client, dict.fromkeys(partitions, EARLIEST)).items()}


def earliest_there(client: Client, partitions: Iterable[TopicPartition]) -> Offsets:
    """The same, without partitions that are not there."""
    requested = list(partitions)
    while True:
        try:
            return earliest(client, [at for at in requested if at[1] < partition_count(client, at[0])])
        except UnknownTopicError:
            continue  # deleted since the client last heard of it, which it now has forgotten


def log_ends_there(client: Client, partitions: Iterable[TopicPartition]) -> Offsets:
    """Where the logs end, transactions that are open included, of the partitions that are there."""
    requested = list(partitions)
    while True:
        try:
            there = [at for at in requested if at[1] < partition_count(client, at[0])]
            return {at: end.offset for at, end in list_offsets(client, dict.fromkeys(there, LATEST)).items()}
        except UnknownTopicError:
            continue  # deleted since the client last heard of it, which it now has forgotten


def cut_back(client: Client, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """Those of the partitions whose log ends before the position now: the records there are lost."""
    return {at for at, end in log_ends_there(client, positions).items() if end < positions[at]}


def latest(client: Client, partitions: Iterable[TopicPartition], options: SourceOptions) -> Offsets:
    """Up to where each partition can be read now."""
    found = list_offsets(client, dict.fromkeys(partitions, LATEST), isolation=options.isolation)
    return {at: end.offset for at, end in found.items()}


def resolve(
    client: Client, partitions: list[TopicPartition], places: Places, options: SourceOptions, *, ending: bool = False
) -> Offsets:
    """The offsets that a place to begin at means, or to end at. Raises ValueError where it misses partitions, and
    `DataLossError` where it begins beyond the end."""
    if places == "earliest":
        return earliest(client, partitions)
    if places == "latest":
        return latest(client, partitions, options)
    if isinstance(places, Times):
        return _at_times(client, partitions, places, options, ending=ending)
    assert isinstance(places, dict)
    chosen = _covering(partitions, places, "offset")
    if not ending:
        chosen |= _within(client, {at: offset for at, offset in chosen.items() if offset >= 0}, options)
    first = earliest(client, [at for at in partitions if chosen[at] == EARLIEST_OFFSET])
    last = latest(client, [at for at in partitions if chosen[at] == LATEST_OFFSET], options)
    return chosen | first | last


def _within(client: Client, begin: Offsets, options: SourceOptions) -> Offsets:
    """Offsets to begin at, those beyond the end of the log complained about and put there."""
    ends = {at: end.offset for at, end in list_offsets(client, dict.fromkeys(begin, LATEST)).items()}
    for at, end in sorted(ends.items()):
        if begin[at] > end:
            where = f"topic {at[0]} partition {at[1]}"
            lost(f"{where} ends at offset {end}, before offset {begin[at]}, the first to read", options)
    return {at: min(offset, ends[at]) for at, offset in begin.items()}


def _covering(partitions: list[TopicPartition], given: Mapping[str, Mapping[int, int]], what: str) -> Offsets:
    """Values by topic and partition, which must be the partitions that are read and no others."""
    chosen = {(topic, index): number for topic, part in given.items() for index, number in part.items()}
    if missing := sorted(set(partitions) - set(chosen)):
        raise ValueError(f"The option gives no {what} for topic {missing[0][0]} partition {missing[0][1]}.")
    if surplus := sorted(set(chosen) - set(partitions)):
        topic, index = surplus[0]
        raise ValueError(f"The option gives a {what} for topic {topic} partition {index}, which this read leaves out.")
    return chosen


def _at_times(
    client: Client, partitions: list[TopicPartition], times: Times, options: SourceOptions, *, ending: bool
) -> Offsets:
    """The first offset at or after a time; where there is none a read ends at the latest, and begins as the option
    `startingOffsetsByTimestampStrategy` says."""
    if times.everywhere is None:
        wanted = _covering(partitions, times.by_partition, "timestamp")
    else:
        wanted = dict.fromkeys(partitions, times.everywhere)
    found = {at: place.offset for at, place in list_offsets(client, wanted, isolation=options.isolation).items()}
    late = sorted(at for at, offset in found.items() if offset < 0)
    if late and not ending and not options.latest_where_too_late:
        (topic, index), time_ms = late[0], wanted[late[0]]
        raise ValueError(
            f"No record of topic {topic} partition {index} is at or after timestamp {time_ms}; with the option "
            "startingOffsetsByTimestampStrategy set to latest the read begins at the end there."
        )
    return found | latest(client, late, options)


def limited(start: Mapping[TopicPartition, int], end: Offsets, limit: int) -> Offsets:
    """`end`, moved back so that `limit` offsets lie before it, shared out by how far partitions lag.

    Each partition that lags moves, where the limit is no smaller than their number: none starves beside larger ones.
    """
    lag = {at: max(last - start.get(at, last), 0) for at, last in end.items()}
    total = sum(lag.values())
    if total <= limit:
        return end
    behind = sorted((at for at in end if lag[at]), key=lambda at: (-lag[at], at))
    cut = dict.fromkeys(behind[:limit], 1)
    rest, left = limit - len(cut), total - len(behind)
    if rest:
        # whole shares first; what rounding has left goes to those that it took most from
        cut = {at: 1 + (lag[at] - 1) * rest // left for at in behind}
        spare = limit - sum(cut.values())
        for at in sorted(behind, key=lambda at: (-((lag[at] - 1) * rest % left), at))[:spare]:
            cut[at] += 1
    return {at: start.get(at, last) + cut.get(at, 0) if lag[at] else last for at, last in end.items()}


def checked(
    client: Client, wanted: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, bytes], options: SourceOptions
) -> list[Range]:
    """The ranges to read, none of them empty, inside what the logs hold; `ids` are those of the topics that are meant.

    A missing range raises `DataLossError`, or is warned about and left out where `failOnDataLoss` is false.
    """
    requested = {at: span for at, span in wanted.items() if span[1] > span[0]}
    while True:
        first = earliest_there(client, requested)
        try:
            last = latest(client, first, options)
            break
        except UnknownTopicError:
            continue  # deleted since the client last heard of it, which it now has forgotten
    ranges: list[Range] = []
    for at in sorted(requested):
        start, end = requested[at]
        where = f"topic {at[0]} partition {at[1]}"
        if at not in first:
            lost(f"{where} does not exist any more; offsets {start} to {end} are gone", options)
            continue
        if start < first[at]:
            lost(f"{where} begins at offset {first[at]} now; offsets from {start} on are gone", options)
            start = first[at]
        if end > last[at]:
            lost(f"{where} ends at offset {last[at]}, before offset {end}", options)
            end = last[at]
        if end > start:
            ranges.append(Range(*at, start, end, ids.get(at[0], uuids.ZERO)))
    return ranges


def batch_ranges(client: Client, options: SourceOptions) -> list[Range]:
    """What one read of all that is there reads; its ends are resolved here. Raises as `resolve` and `checked`, and
    ValueError where a partition begins after its end."""
    partitions = subscribed(client, options.subscription)
    ids = topic_ids(client, (topic for topic, _ in partitions))
    start = resolve(client, partitions, options.starting, options)
    end = resolve(client, partitions, options.ending, options, ending=True)
    for topic, index in partitions:
        begins, ends = start[topic, index], end[topic, index]
        if begins > ends:
            where = f"topic {topic} partition {index}"
            raise ValueError(f"The read of {where} begins at offset {begins}, after its end at offset {ends}.")
    return checked(client, {at: (start[at], end[at]) for at in partitions}, ids, options)


def lost(what: str, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(f"{what}. Set the option failOnDataLoss to false to go on without them.")
    warnings.warn(what, RuntimeWarning, stacklevel=3)
