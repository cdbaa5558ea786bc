"""The topics of a mirror at its target: made as they are at the source, with more partitions when those get more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.client import admin
from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, ClientError
from headrace.client.metadata import TopicPartition
from headrace.spark import planning
from headrace.spark.options import Subscription
from headrace.wire.config_source import ConfigSource
from headrace.wire.errors import ErrorCode

KEPT_APART: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
"""Settings that say something of the source's brokers, or that would refuse records or change their times."""


class TopicFollower:
    """Keeps the topics of a target as many, and with as many partitions, as those that are subscribed at the source."""

    def __init__(
        self, source: Client, target: Client, subscription: Subscription, prefix: str, warn: Callable[[str], None]
    ) -> None:
        self.source = source
        self.target = target
        self.subscription = subscription
        self.prefix = prefix
        self.warn = warn
        self._gone: set[str] = set()

    def follow(self) -> list[TopicPartition]:
        """Make what the target lacks; returns the partitions of the source. Raises `ClientError`."""
        partitions = planning.still_subscribed(self.source, self.subscription, self._gone)
        counts: dict[str, int] = {}
        for topic, index in partitions:
            counts[topic] = max(counts.get(topic, 0), index + 1)
        errors = self.target.refresh([self.prefix + topic for topic in counts])
        for topic, count in counts.items():
            name = self.prefix + topic
            if errors.get(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._make(topic, name, count)
            elif len(self.target.topic(name).partitions) < count:
                admin.add_partitions(self.target, name, count)
        return partitions

    def _make(self, topic: str, name: str, count: int) -> None:
        configs = self._configs(topic)
        try:
            admin.create_topic(self.target, name, partitions=count, configs=configs, exist_ok=True)
        except BrokerError as error:
            if error.code != ErrorCode.INVALID_CONFIG:
                raise
            self.warn(f"the target refuses the settings of topic {name}, its copy gets the defaults: {error}")
            admin.create_topic(self.target, name, partitions=count, exist_ok=True)

    def _configs(self, topic: str) -> dict[str, str]:
        """What somebody has set for the topic at the source."""
        try:
            entries = admin.describe_configs(self.source, admin.Resource.TOPIC, topic)
        except ClientError as error:
            self.warn(f"cannot read the settings of topic {topic}, its copy gets the defaults: {error}")
            return {}
        own = [entry for entry in entries if entry.source == ConfigSource.TOPIC and entry.name not in KEPT_APART]
        return {entry.name: entry.value for entry in own if entry.value is not None}
