"""Three brokers of two listeners: whoever asks over one is sent to the same one elsewhere, and nodes use their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.kafka import free_port
from peers.link import Link
from peers.waiting import until

import headrace.testing
from headrace.broker.broker import Broker
from headrace.testing import TestCluster
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k00_produce as k00
from headrace.wire.messages import k01_fetch as k01
from headrace.wire.messages import k03_metadata as k03
from headrace.wire.messages import k10_find_coordinator as k10
from headrace.wire.messages import k33_alter_configs as k33
from headrace.wire.messages import k44_incremental_alter_configs as k44
from headrace.wire.messages import k60_describe_cluster as k60
from headrace.wire.records import Record, build_batch

NODES = (1, 2, 3)
LISTENERS = ("OUTSIDE", "INSIDE")
Ports = dict[str, dict[int, int]]


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[TestCluster, Ports]]:
    """Clients are told of each node's INSIDE as it is, and of its OUTSIDE at another port, which nothing listens at."""
    controllers = {node: free_port() for node in NODES}
    ports = {name: {node: free_port() for node in NODES} for name in LISTENERS}
    shared = {
        "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items()),
        "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "offsets.topic.num.partitions": "3",
        "broker.session.timeout.ms": "60000",  # whoever is fenced in a test was seen to be dead
    }
    nodes = {
        node: {
            **shared,
            "listeners": f"OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:{ports['INSIDE'][node]},"
            f"CONTROLLER://127.0.0.1:{controllers[node]}",
            "advertised.listeners": f"OUTSIDE://127.0.0.1:{ports['OUTSIDE'][node]},"
            f"INSIDE://127.0.0.1:{ports['INSIDE'][node]}",
        }
        for node in NODES
    }
    with headrace.testing.cluster(nodes=nodes) as running:
        inside = ",".join(f"127.0.0.1:{port}" for port in ports["INSIDE"].values())
        client = AdminClient({"bootstrap.servers": inside, "log_level": 0})
        made = client.create_topics([NewTopic("three", 3, 3), NewTopic("one", 1, 1)])
        for future in made.values():
            future.result(60)
        for each in running.nodes.values():  # the controller answers before each broker has read what it decided
            until(lambda: each.call(lambda broker: {topic.name for topic in broker.image.topics}) >= {"three", "one"})  # noqa: B023
        yield running, ports


def links(three: tuple[TestCluster, Ports]) -> Iterator[tuple[int, Link, dict[int, int]]]:
    """A connection to each listener of each node, and where that listener is told to be on every node."""
    cluster, ports = three
    for id_, node in cluster.nodes.items():
        for opened in node.inside.server.listeners:
            if opened.name in ports:
                with Link(opened.port) as link:
                    yield id_, link, ports[opened.name]


def coordinator(link: Link) -> Any:
    return link.ask(k10.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0]


def test_brokers_and_coordinators_are_those_of_the_listener(three: tuple[TestCluster, Ports]) -> None:
    asked = 0
    for _, link, expected in links(three):
        metadata = link.ask(k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name="three")]), 12)
        assert {each.node_id: each.port for each in metadata.brokers} == expected
        assert [each.error_code for each in metadata.topics[0].partitions] == [0, 0, 0]
        described = link.ask(k60.DescribeClusterRequest(endpoint_type=1), 1)
        assert {each.broker_id: each.port for each in described.brokers} == expected

        until(lambda: coordinator(link).error_code == 0)  # noqa: B023  # it is over with this turn
        found = coordinator(link)
        assert found.port == expected[found.node_id]
        asked += 1
    assert asked == 6


def test_leader_hints_are_those_of_the_listener(three: tuple[TestCluster, Ports]) -> None:
    cluster, _ = three
    leader = cluster.leader("one", 0)
    topic = cluster.nodes[leader].inside.image.topics.by_name("one")
    assert topic is not None
    for id_, link, expected in links(three):
        if id_ == leader:
            continue
        data = k00.PartitionProduceData(index=0, records=build_batch([Record(0, 0, None, b"x")]))
        produce = k00.ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[k00.TopicProduceData(name="one", partition_data=[data])]
        )
        partition = k01.FetchPartition(partition=0, partition_max_bytes=1000)
        fetch = k01.FetchRequest(topics=[k01.FetchTopic(topic_id=topic.id, partitions=[partition])], max_bytes=1000)
        for answer in (link.ask(produce, 11), link.ask(fetch, 17)):
            said = answer.responses[0]
            refused = said.partition_responses[0] if answer.API_KEY == 0 else said.partitions[0]
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert refused.current_leader.leader_id == leader
            assert {each.node_id: each.port for each in answer.node_endpoints} == {leader: expected[leader]}


def test_nodes_use_their_own_listener_also_to_see_who_is_dead(three: tuple[TestCluster, Ports]) -> None:
    cluster, ports = three
    inside = ",".join(f"127.0.0.1:{port}" for port in ports["INSIDE"].values())
    producer = ck.Producer({"bootstrap.servers": inside, "acks": "all", "log_level": 0})
    for number in range(30):
        producer.produce("three", b"%d" % number)
    assert producer.flush(60) == 0

    def online() -> set[int]:
        return {each.id for each in cluster.nodes[cluster.controller()].inside.image.online_brokers()}

    # Nothing listens where clients from outside are sent to: whoever looked there would think that all are dead.

    def suspect_all(controller: Broker) -> None:
        assert controller.controller_tasks is not None
        for node in NODES:
            controller.controller_tasks.suspect(node)

    cluster.nodes[cluster.controller()].call(suspect_all)
    time.sleep(0.5)
    assert online() == set(NODES)
    dead = next(node for node in NODES if node != cluster.controller())
    cluster.kill(dead)
    until(lambda: dead not in online())
    cluster.restart(dead)
    until(lambda: online() == set(NODES))


def altered(three: tuple[TestCluster, Ports], at: int, resource: str, **settings: str | None) -> tuple[int, str]:
    """What a node answers to a change of a broker's settings, one by one and as a whole; of the default, one by one."""
    port = three[1]["INSIDE"][at]
    changes = [k44.AlterableConfig(name.replace("_", "."), int(text is None), text) for name, text in settings.items()]
    given = {name.replace("_", "."): text for name, text in settings.items() if text is not None}
    whole = [k33.AlterableConfig(name, text) for name, text in given.items()]
    with Link(port) as link:
        one = link.ask(k44.IncrementalAlterConfigsRequest([k44.AlterConfigsResource(4, resource, changes)]), 1)
        answers = {(each.error_code, each.error_message or "") for each in one.responses}
        if resource:
            other = link.ask(k33.AlterConfigsRequest([k33.AlterConfigsResource(4, resource, whole)]), 2)
            answers |= {(each.error_code, each.error_message or "") for each in other.responses}
    assert len(answers) == 1, answers
    return answers.pop()


def test_a_nodes_listeners_are_checked_against_its_own_file(three: tuple[TestCluster, Ports]) -> None:
    """Whichever node is the active controller: it has other listeners in its file."""
    cluster, _ = three
    now = {node: cluster.nodes[node].inside.config.shown("listeners") for node in NODES}
    assert len(set(now.values())) == 3
    for node in NODES:
        other = node % 3 + 1
        assert altered(three, node, str(node), listeners=now[node]) == (ErrorCode.NONE, "")
        refused = (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [listeners]")
        assert altered(three, node, str(node), listeners=now[other]) == refused
        assert altered(three, node, str(node), listeners=None) == (ErrorCode.NONE, "")
        elsewhere = (ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node}, but received {other}")
        assert altered(three, node, str(other), log_cleaner_threads="2") == elsewhere
        assert altered(three, node, "", log_cleaner_threads="2") == (ErrorCode.NONE, "")
        assert altered(three, node, "", log_cleaner_threads=None) == (ErrorCode.NONE, "")


def test_what_is_refused_here_and_what_is_decided_elsewhere_are_one_answer(three: tuple[TestCluster, Ports]) -> None:
    cluster, ports = three
    node = next(each for each in NODES if each != cluster.controller())
    set_one = [k44.AlterableConfig("log.cleaner.threads", 0, "2")]
    resources = [k44.AlterConfigsResource(4, name, set_one) for name in ("9", str(node), "x", "")]
    resources.append(k44.AlterConfigsResource(2, "none", [k44.AlterableConfig("retention.ms", 0, "1")]))
    with Link(ports["INSIDE"][node]) as link:
        said = link.ask(k44.IncrementalAlterConfigsRequest(resources, validate_only=True), 1).responses
    assert [(each.resource_type, each.resource_name, ErrorCode(each.error_code)) for each in said] == [
        (4, "9", ErrorCode.INVALID_REQUEST),
        (4, str(node), ErrorCode.NONE),
        (4, "x", ErrorCode.INVALID_REQUEST),
        (4, "", ErrorCode.NONE),
        (2, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
