"""The port of partitions to the broker that has them."""

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
        """The newest image of the cluster's metadata."""
        ...

    @property
    def config(self) -> BrokerConfig:
        """The settings in force now."""
        ...

    @property
    def epoch(self) -> int:
        """The broker epoch of its registration, -1 before that."""
        ...

    def topic_config(self, topic: str) -> TopicConfig:
        """Returns the settings in force for a topic."""
        ...

    def connection_security(self) -> ConnectionSecurity:
        """Returns what connections to other brokers are opened with."""
        ...
