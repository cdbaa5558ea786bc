"""Creates topics: for clients' requests, on first use (auto-creation), and Kafka's internal topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.topics import ControllerTopics
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


def automatic_topic(broker: Services, name: str) -> CreatableTopic:
    """Returns a topic to create automatically, with the broker's defaults, or the settings of Kafka's internal topics.

    On a node that votes alone the replication factor of an internal topic is at most the number of brokers, so that
    groups and transactions can be served. In a cluster it is as configured, and the topic waits until there are as many
    brokers.
    """
    config = broker.config
    brokers = max(1, len(broker.image.online_brokers()))
    configs = {"cleanup.policy": "compact"}
    if name == "__consumer_offsets":
        count, factor = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
        configs |= {"segment.bytes": str(config.offsets_topic_segment_bytes), "compression.type": "producer"}
    elif name == "__transaction_state":
        count, factor = config.transaction_state_log_num_partitions, config.transaction_state_log_replication_factor
        configs |= {
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
        }
    else:
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    return CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=min(factor, brokers) if broker.quorum.is_alone else factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


async def create_automatically(broker: Services, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Creates topics in the form of `automatic_topic`; returns the error of each. An existing topic is no error."""
    return await ControllerTopics(broker.controller).create([automatic_topic(broker, name) for name in names])


def start_creating(broker: Services, names: list[str]) -> None:
    """Starts to create topics without waiting for the result; clients request a topic that failed again."""

    async def create() -> None:
        try:
            await create_automatically(broker, names)
        except ControllerError:
            # The failure was logged, and the client gets an error from its next request.
            return

    broker.requests_owner.spawn(create())
