"""What the pages of a broker and of a controller are made of: the numbers of the rooms, for the one that shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.net.tls import ListenerTls
from headrace.broker.telemetry.monitor import Monitor
from headrace.env.tls import TlsStream, scratch_of
from headrace.env.turns import SlicedTurns

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.controller_node import ControllerNode
    from headrace.broker.telemetry.families import Section
    from headrace.config import BrokerConfig
    from headrace.env import Node, Owner
    from headrace.env.network import Stream
    from headrace.http.server import Secured

METRICS_LISTENER: Final = "METRICS"
"""The name under which the pages find stores of their own: `listener.name.metrics.ssl.*`."""


def monitor_of_broker(broker: Broker) -> Monitor:
    """The monitor of a broker that is being made; what it asks the broker for is there once it has started."""

    def sections(monitor: Monitor) -> Sequence[Section]:
        from headrace.broker.telemetry.cluster_numbers import ClusterNumbers
        from headrace.broker.telemetry.group_numbers import GroupNumbers
        from headrace.broker.telemetry.log_sizes import LogSizes
        from headrace.broker.telemetry.partition_numbers import PartitionNumbers
        from headrace.broker.telemetry.partition_series import PartitionSeries
        from headrace.broker.telemetry.registry_numbers import RegistryNumbers

        node_id, logs = broker.node_id, broker.logs
        led = broker.replicas.by_name.values
        topics_max = broker.config.metrics_topics_max
        partitions = PartitionNumbers(led, topics_max, broker.metrics)
        series = PartitionSeries(led, broker.config.metrics_partitions_max)
        sizes = LogSizes(lambda: logs, broker.config.metrics_partitions_max)
        cluster = ClusterNumbers(node_id, lambda: monitor.quorum, topics_max, is_broker=True)
        registry = RegistryNumbers(broker.metrics, lambda: monitor.times, is_broker=True)
        groups = GroupNumbers(broker.groups.committed_offsets, committed_end, broker.config.metrics_offsets_max)
        broker.metrics.gauge("log.directories_offline", lambda: len(logs.directories) - len(logs.online()))
        shown = (registry, partitions, series, sizes, groups, cluster)
        return [each.families for each in shown]

    def committed_end(topic: str, index: int) -> int | None:
        replica = broker.replicas.held((topic, index))
        return None if replica is None else replica.high_watermark

    def not_ready() -> str:
        known = broker.image.brokers.get(broker.node_id)
        return "the controller has fenced this broker" if known is None or known.fenced else ""

    return Monitor(
        broker.node,
        broker.config,
        broker.metrics,
        sections=sections,
        not_ready=not_ready,
        directories=broker.config.directories,
        secured=_secured(broker.node, broker.config),
    )


def monitor_of_controller(controller: ControllerNode) -> Monitor:
    """The monitor of a node without a broker."""

    def sections(monitor: Monitor) -> Sequence[Section]:
        from headrace.broker.telemetry.cluster_numbers import ClusterNumbers
        from headrace.broker.telemetry.registry_numbers import RegistryNumbers

        topics_max = controller.config.metrics_topics_max
        cluster = ClusterNumbers(controller.node_id, lambda: monitor.quorum, topics_max, is_broker=False)
        registry = RegistryNumbers(controller.metrics, lambda: monitor.times, is_broker=False)
        return registry.families, cluster.families

    def not_ready() -> str:
        quorum = controller.quorum
        if quorum.raft.known_leader is None:
            return "no leader of the metadata quorum is known"
        if quorum.raft.leads and not quorum.decides:
            return "this node leads the metadata quorum, and has not read yet what was committed before"
        return ""

    return Monitor(
        controller.node,
        controller.config,
        controller.metrics,
        sections=sections,
        not_ready=not_ready,
        directories=controller.config.directories,
        secured=_secured(controller.node, controller.config),
    )


def _secured(node: Node, config: BrokerConfig) -> Callable[[Owner], Secured] | None:
    """What reads the keys of pages over TLS, and makes TLS of their connections; None where they are in the clear."""
    if config.metrics_protocol == "PLAINTEXT":
        return None

    def read(owner: Owner) -> Secured:
        tls = ListenerTls(METRICS_LISTENER, "SSL", config, node.disk)
        scratch = scratch_of(node)
        turns = SlicedTurns(owner, node.clock.monotonic)

        def secured(stream: Stream) -> Stream:
            over = TlsStream(stream, tls.context, server_side=True, scratch=scratch, soon=owner.soon, turns=turns)
            over.on_open = tls.opened
            return over

        return secured

    return read
