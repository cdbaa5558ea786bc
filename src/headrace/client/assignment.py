"""The consumer protocol inside classic groups: what members say they want, and the range assignment.

Kafka's brokers carry these bytes without reading them; they are an agreement between consumers of any language, so the
bytes and the range rule here are those of the Java client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client.errors import ClientError
from headrace.client.metadata import TopicPartition
from headrace.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headrace.wire.messages.consumer_protocol import TopicPartition as ProtocolTopicPartition
from headrace.wire.primitives import DecodeError

RANGE = "range"
PROTOCOL_TYPE = "consumer"

SUBSCRIPTION_VERSION = 1
ASSIGNMENT_VERSION = 1
VERSION_MAX = 3


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member that wants topics, as the group's leader sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]

    @property
    def rank(self) -> tuple[bool, str]:
        """The order in which range assignment serves members: static ones first, by instance id, then by member id."""
        return (self.instance_id is None, self.instance_id or self.member_id)


def encode_subscription(topics: Iterable[str]) -> bytes:
    """What a member sends with JoinGroup: version, then the message."""
    message = ConsumerProtocolSubscription(topics=sorted(topics))
    return SUBSCRIPTION_VERSION.to_bytes(2, "big") + message.encode(SUBSCRIPTION_VERSION)


def decode_subscription(data: bytes | memoryview) -> frozenset[str]:
    """The topics of a subscription. A version newer than ours is read as ours: fields are only ever added (KIP-429)."""
    version = _version(data)
    try:
        return frozenset(ConsumerProtocolSubscription.decode(data, version, 2).topics)
    except DecodeError as error:
        raise ClientError(f"a member's subscription cannot be read: {error}") from error


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """What a member receives from SyncGroup: version, then the message."""
    topics: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        topics.setdefault(name, []).append(index)
    assigned = [ProtocolTopicPartition(topic=name, partitions=indexes) for name, indexes in topics.items()]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return ASSIGNMENT_VERSION.to_bytes(2, "big") + message.encode(ASSIGNMENT_VERSION)


def decode_assignment(data: bytes | memoryview) -> list[TopicPartition]:
    """The partitions of an assignment; empty bytes mean none. Raises `ClientError`."""
    if not len(data):
        return []
    version = _version(data)
    try:
        message = ConsumerProtocolAssignment.decode(data, version, 2)
    except DecodeError as error:
        raise ClientError(f"a member's assignment cannot be read: {error}") from error
    return [(topic.topic, index) for topic in message.assigned_partitions for index in topic.partitions]


def _version(data: bytes | memoryview) -> int:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise ClientError("a member's bytes are not the consumer protocol")
    return min(version, VERSION_MAX)


def assign_range(
    subscribers: Iterable[Subscriber], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Topic by topic, contiguous ranges to the members in rank order; the first ones take what does not divide."""
    ranked = sorted(subscribers, key=lambda subscriber: subscriber.rank)
    assigned: dict[str, list[TopicPartition]] = {subscriber.member_id: [] for subscriber in ranked}
    for topic in sorted(partition_counts):
        takers = [subscriber.member_id for subscriber in ranked if topic in subscriber.topics]
        if not takers:
            continue
        each, extra = divmod(partition_counts[topic], len(takers))
        start = 0
        for place, member_id in enumerate(takers):
            count = each + (place < extra)
            assigned[member_id] += [(topic, index) for index in range(start, start + count)]
            start += count
    return assigned
