"""Limits on how fast replicas are copied, as kafka-reassign-partitions sets them: rates of brokers, replicas of topics.

A leader limits what it sends to the replicas that its topic lists, a follower what it fetches for those; all others go
at full speed. Source: KIP-73.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client import admin
from headrace.client.conversation import Steps
from headrace.client.metadata import TopicPartition
from headrace.client.moves import Move
from headrace.client.operations import operation
from headrace.client.routing import Router

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Settings of a broker: bytes a second that it sends as a leader, and fetches as a follower."""
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
"""Settings of a topic: the replicas that are limited there, as `partition:broker` pairs or `*`."""
ALL = "*"


@dataclass(frozen=True, slots=True)
class Change:
    """Settings of one broker or topic to be set; None sets one back to its default."""

    resource: admin.Resource
    name: str
    settings: Mapping[str, str | None]


def limit(
    brokers: Iterable[int], rate: int, under_way: Mapping[TopicPartition, Move], whole: Iterable[str]
) -> list[Change]:
    """What limits moves under way, and every replica of the `whole` topics, to `rate` bytes a second at each broker."""
    changes = [
        Change(admin.Resource.BROKER, str(broker), dict.fromkeys(RATES, str(rate))) for broker in sorted(brokers)
    ]
    lists: dict[str, dict[str, list[str]]] = {name: {LEADERS: [ALL], FOLLOWERS: [ALL]} for name in whole}
    for (topic, index), move in sorted(under_way.items()):
        if lists.get(topic, {}).get(LEADERS) == [ALL]:
            continue
        of_topic = lists.setdefault(topic, {LEADERS: [], FOLLOWERS: []})
        of_topic[LEADERS] += [f"{index}:{broker}" for broker in move.replicas if broker not in move.adding]
        of_topic[FOLLOWERS] += [f"{index}:{broker}" for broker in move.adding]
    changes += [
        Change(admin.Resource.TOPIC, topic, {key: ",".join(value) for key, value in both.items() if value})
        for topic, both in sorted(lists.items())
    ]
    return changes


@operation
def clearing(router: Router, brokers: Iterable[int], topics: Iterable[str]) -> Steps[list[Change]]:
    """What takes the limits of these brokers and topics away, as far as there are any. Raises `BrokerError`."""
    changes: list[Change] = []
    for broker in sorted(brokers):
        entries = yield from admin.describe_configs.steps(router, admin.Resource.BROKER, str(broker), keys=RATES)
        if found := [entry.name for entry in entries if entry.is_set]:
            changes.append(Change(admin.Resource.BROKER, str(broker), dict.fromkeys(found)))
    lists = {}
    for key in (LEADERS, FOLLOWERS):
        lists[key] = yield from admin.topic_setting.steps(router, topics, key)
    for topic in sorted(set(topics)):
        if found := [key for key, values in lists.items() if values.get(topic)]:
            changes.append(Change(admin.Resource.TOPIC, topic, dict.fromkeys(found)))
    return changes


def undone(change: Change) -> Change:
    """What takes the settings of a change away."""
    return Change(change.resource, change.name, dict.fromkeys(change.settings))


@operation
def apply(router: Router, changes: Iterable[Change]) -> Steps[None]:
    """Makes the changes one after the other. Raises `BrokerError`."""
    for change in changes:
        yield from admin.alter_configs.steps(
            router,
            change.resource,
            change.name,
            set_values={key: value for key, value in change.settings.items() if value is not None},
            delete=[key for key, value in change.settings.items() if value is None],
        )
