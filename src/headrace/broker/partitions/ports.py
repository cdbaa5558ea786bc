"""Ports of `broker.partitions`: what it needs of the packages above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.client.security import ConnectionSecurity
    from headrace.config import BrokerConfig, TopicConfig
    from headrace.metadata.image import ClusterImage


class BrokerState(Protocol):
    """The broker as its partitions see it: values that change while it runs."""

    @property
    def image(self) -> ClusterImage:
        """Newest image of the cluster's metadata."""
        ...

    @property
    def config(self) -> BrokerConfig:
        """Settings in force."""
        ...

    @property
    def epoch(self) -> int:
        """Broker epoch of the registration; -1 before it."""
        ...

    def topic_config(self, topic: str) -> TopicConfig:
        """Returns the settings in force for a topic."""
        ...

    def connection_security(self) -> ConnectionSecurity:
        """Returns the security of connections to other brokers."""
        ...
