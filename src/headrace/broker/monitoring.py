"""The monitors of a broker and of a controller, with the metrics that each shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.net.tls import ListenerTls
from headrace.broker.telemetry.monitor import Monitor
from headrace.env.tls import TlsStream, scratch_of
from headrace.env.turns import SlicedTurns

if TYPE_CHECKING:
    from headrace.broker.coordinators.group_coordinator import GroupCoordinator
    from headrace.broker.partitions.replica_manager import ReplicaManager
    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.telemetry.families import Section
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env import Node, Owner
    from headrace.env.network import Stream
    from headrace.http.server import Secured
    from headrace.log.manager import LogManager
    from headrace.metadata.image import ClusterImage

METRICS_LISTENER: Final = "METRICS"
"""Listener name of the metrics pages' own key stores: `listener.name.metrics.ssl.*`."""


def monitor_of_broker(
    node: Node,
    config: Callable[[], BrokerConfig],
    metrics: Registry,
    logs: LogManager,
    replicas: ReplicaManager,
    groups: GroupCoordinator,
    image: Callable[[], ClusterImage],
) -> Monitor:
    """Returns the monitor of a broker. `config` returns the settings in force, `image` the cluster's metadata, which
    exist once the broker has started."""
    node_id = config().node_id

    def sections(monitor: Monitor) -> Sequence[Section]:
        from headrace.broker.telemetry.cluster_numbers import ClusterNumbers
        from headrace.broker.telemetry.group_numbers import GroupNumbers
        from headrace.broker.telemetry.log_sizes import LogSizes
        from headrace.broker.telemetry.partition_numbers import PartitionNumbers
        from headrace.broker.telemetry.partition_series import PartitionSeries
        from headrace.broker.telemetry.registry_numbers import RegistryNumbers

        led = replicas.by_name.values
        topics_max = config().metrics_topics_max
        partitions = PartitionNumbers(led, topics_max, metrics)
        series = PartitionSeries(led, config().metrics_partitions_max)
        sizes = LogSizes(lambda: logs, config().metrics_partitions_max)
        cluster = ClusterNumbers(node_id, lambda: monitor.quorum, topics_max, is_broker=True)
        registry = RegistryNumbers(metrics, lambda: monitor.times, is_broker=True)
        offsets = GroupNumbers(groups.committed_offsets, committed_end, config().metrics_offsets_max)
        metrics.gauge("log.directories_offline", lambda: len(logs.directories) - len(logs.online()))
        shown = (registry, partitions, series, sizes, offsets, cluster)
        return [each.families for each in shown]

    def committed_end(topic: str, index: int) -> int | None:
        replica = replicas.held((topic, index))
        return None if replica is None else replica.high_watermark

    def not_ready() -> str:
        known = image().brokers.get(node_id)
        return "the controller has fenced this broker" if known is None or known.fenced else ""

    return _monitor(node, config(), metrics, sections, not_ready)


def monitor_of_controller(
    node: Node, config: Callable[[], BrokerConfig], metrics: Registry, quorum: Callable[[], QuorumDriver]
) -> Monitor:
    """Returns the monitor of a controller-only node. `quorum` returns its quorum driver, which exists once the node has
    started."""

    def sections(monitor: Monitor) -> Sequence[Section]:
        from headrace.broker.telemetry.cluster_numbers import ClusterNumbers
        from headrace.broker.telemetry.registry_numbers import RegistryNumbers

        topics_max = config().metrics_topics_max
        cluster = ClusterNumbers(config().node_id, lambda: monitor.quorum, topics_max, is_broker=False)
        registry = RegistryNumbers(metrics, lambda: monitor.times, is_broker=False)
        return registry.families, cluster.families

    def not_ready() -> str:
        driver = quorum()
        if driver.raft.known_leader is None:
            return "no leader of the metadata quorum is known"
        if driver.raft.leads and not driver.decides:
            return "this node leads the metadata quorum, and has not read yet what was committed before"
        return ""

    return _monitor(node, config(), metrics, sections, not_ready)


def _monitor(
    node: Node,
    config: BrokerConfig,
    metrics: Registry,
    sections: Callable[[Monitor], Sequence[Section]],
    not_ready: Callable[[], str],
) -> Monitor:
    return Monitor(
        node,
        config,
        metrics,
        sections=sections,
        not_ready=not_ready,
        directories=config.directories,
        secured=_secured(node, config),
    )


def _secured(node: Node, config: BrokerConfig) -> Callable[[Owner], Secured] | None:
    """Returns a function that reads the TLS keys of the pages and wraps their connections; None if they are served in
    the clear."""
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
