"""Settings of a cluster: whichever node takes a change, every node has it, at once, after a restart and by snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.link import Link
from peers.waiting import until

import headrace.testing
from headrace.broker.broker import Broker
from headrace.testing import TestCluster
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k32_describe_configs as k32
from headrace.wire.messages import k44_incremental_alter_configs as k44

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE = 0, 1
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.max.retention.bytes": "1",
    "leader.imbalance.check.interval.seconds": "1",
    "replica.fetch.wait.max.ms": "50",
    # on a busy machine nobody is taken for silent or behind
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "60000",
}


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster(settings=SETTINGS) as running:
        client = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        # Placed by hand: of what one node leads, another one follows partitions with even and with odd numbers.
        replicas = [[1 + (number + place) % 3 for place in range(3)] for number in range(12)]
        config = {"segment.bytes": "2000000"}
        made = client.create_topics([NewTopic("t", 12, replica_assignment=replicas, config=config)])
        made["t"].result(60)
        yield running


def port_that_takes(cluster: TestCluster, at: int, kind: int, resource: str) -> int:
    """A node's settings are altered at that node or, where it is another one, at the active controller's listener."""
    if kind != BROKER or resource in ("", str(at)):
        return cluster.nodes[at].port
    opened = cluster.nodes[cluster.controller()].inside.server.listeners
    return next(each.port for each in opened if each.name == "CONTROLLER")


def alter(cluster: TestCluster, at: int, kind: int, resource: str, name: str, value: str | None) -> None:
    change = k44.AlterableConfig(name, DELETE if value is None else SET, value)
    request = k44.IncrementalAlterConfigsRequest(resources=[k44.AlterConfigsResource(kind, resource, [change])])
    with Link(port_that_takes(cluster, at, kind, resource)) as link:
        answer = link.ask(request, 1).responses[0]
        assert answer.error_code == 0, answer.error_message


def described(cluster: TestCluster, at: int, kind: int, resource: str, name: str) -> Any:
    wanted = k32.DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=[name])
    with Link(cluster.nodes[at].port) as link:
        result = link.ask(k32.DescribeConfigsRequest(resources=[wanted]), 4).results[0]
        assert result.error_code == 0, result.error_message
        return result.configs[0].value if result.configs else None


def of_log(name: str) -> Callable[[Broker], object]:
    """What is in force for the replica of t-0."""

    def look(broker: Broker) -> object:
        replica = broker.replicas.held(("t", 0))
        return None if replica is None else getattr(replica.log.config, name)

    return look


def fetch_loops(broker: Broker) -> object:
    """How many connections the broker fetches over from one leader, at most."""
    lanes = [leader for leader, _ in broker.replicas._fetchers._loops]
    return max((lanes.count(leader) for leader in lanes), default=0)


def every_node_leads(cluster: TestCluster) -> bool:
    """Whether each node leads a partition of t, and so follows one of each other node."""
    partitions = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics("t", 20).topics["t"]
    return {each.leader for each in partitions.partitions.values()} == set(cluster.nodes)


class Case(NamedTuple):
    kind: int
    resource: str
    name: str
    value: str
    in_force: Callable[[Broker], object]
    """What the setting does there, beside what is described."""
    wanted: object


CASES = [
    Case(TOPIC, "t", "retention.ms", "7000000", of_log("retention_ms"), 7_000_000),
    Case(TOPIC, "t", "min.insync.replicas", "3", of_log("min_insync_replicas"), 3),
    Case(TOPIC, "t", "cleanup.policy", "compact", of_log("delete"), False),
    Case(TOPIC, "t", "leader.replication.throttled.replicas", "*",
         of_log("leader_replication_throttled_replicas"), ("*",)),
    Case(BROKER, "", "message.max.bytes", "200000", of_log("max_message_bytes"), 200_000),
    Case(BROKER, "", "log.retention.bytes", "9000000", of_log("retention_bytes"), 9_000_000),
    Case(BROKER, "", "max.connections.per.ip", "500", lambda b: b.config.max_connections_per_ip, 500),
    Case(BROKER, "", "log.cleaner.backoff.ms", "777", lambda b: b.logs.config.log_cleaner_backoff_ms, 777),
    Case(BROKER, "", "follower.replication.throttled.rate", "1000000",
         lambda b: b.replicas.throttles.follower.is_limited, True),
    Case(BROKER, "", "num.replica.fetchers", "2", fetch_loops, 2),
    Case(BROKER, "2", "leader.replication.throttled.rate", "1000000",
         lambda b: b.replicas.throttles.leader.is_limited, True),
    Case(BROKER, "3", "log.flush.interval.messages", "1000", of_log("flush_messages"), 1000),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.resource or 'all'} {case.name}")
def test_a_change_at_one_node_is_in_force_at_the_others(three: TestCluster, case: Case) -> None:
    nodes = list(three.nodes)
    concerned = [int(case.resource)] if case.resource.isdigit() else nodes
    until(partial(every_node_leads, three), "each node leads")
    until(lambda: all(three.nodes[node].call(fetch_loops) == 1 for node in nodes), "each node follows the others")
    before = {node: three.nodes[node].call(case.in_force) for node in nodes}
    assert all(value != case.wanted for value in before.values())
    for at in nodes:
        alter(three, at, case.kind, case.resource, case.name, case.value)
        for node in nodes:
            if node in concerned:
                until(partial(is_in_force, three, node, case), (case, node))
                assert described(three, node, case.kind, case.resource or "", case.name) == case.value
            else:
                assert three.nodes[node].call(case.in_force) == before[node]
        alter(three, at, case.kind, case.resource, case.name, None)
        until(lambda: {node: three.nodes[node].call(case.in_force) for node in nodes} == before, case)


def is_in_force(cluster: TestCluster, node: int, case: Case) -> bool:
    return cluster.nodes[node].call(case.in_force) == case.wanted


def snapshots(cluster: TestCluster, node: int) -> int:
    """The offset of the newest snapshot of a node's metadata."""
    found = sorted((cluster.data / str(node) / "__cluster_metadata-0").glob("*.checkpoint"))
    return int(found[-1].name.split("-")[0]) if found else -1


def test_a_node_that_was_away_has_them_from_the_log_and_from_a_snapshot(three: TestCluster) -> None:
    """First a node misses the changes and finds them in the log; then they are in snapshots alone."""
    away = next(node for node in three.nodes if node != three.controller())
    at = next(node for node in three.nodes if node != away)
    concerned = [case for case in CASES if case.resource in ("", "t", str(away))]

    def has_all() -> bool:
        return all(is_in_force(three, away, case) for case in concerned)

    three.stop(away)
    for case in CASES:
        alter(three, at, case.kind, case.resource, case.name, case.value)
    three.restart(away)
    until(has_all, "the log")
    three.stop(away)
    end = three.nodes[at].inside.image.offset
    number = 0
    while min(snapshots(three, node) for node in three.nodes if node != away) <= end:
        number += 1
        alter(three, at, TOPIC, "t", "file.delete.delay.ms", str(60_000 + number))
        assert number < 500, "no snapshot is made"
    three.restart(away)
    until(has_all, "the snapshot")
    until(lambda: three.nodes[away].call(of_log("file_delete_delay_ms")) == 60_000 + number)
    for case in CASES:
        alter(three, away, case.kind, case.resource, case.name, None)
    until(lambda: not any(is_in_force(three, node, case) for case in CASES for node in three.nodes), "the end of them")


def test_a_loggers_level_is_set_at_its_node_alone(three: TestCluster) -> None:
    change = k44.AlterableConfig("headrace.net", SET, "DEBUG")
    request = k44.IncrementalAlterConfigsRequest(resources=[k44.AlterConfigsResource(LOGGER, "2", [change])])
    for node in three.nodes:
        with Link(three.nodes[node].port) as link:
            answer = link.ask(request, 1).responses[0]
            assert answer.error_code == (0 if node == 2 else ErrorCode.INVALID_REQUEST)
    assert described(three, 2, LOGGER, "2", "headrace.net") == "DEBUG"
    alter(three, 2, LOGGER, "2", "headrace.net", None)
