"""Brokers of Apache Kafka and of ours in one cluster whose metadata name the voters: every node leads the quorum and
every partition, and administrators do their work under each kind of active controller. Minutes long: `make soak`."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from durability.promises import PARTITIONS, TOPIC, Load, assert_kept, read_all, until_in_sync
from peers.cluster import HeadraceCluster
from peers.link import Link
from peers.moved import Transacting
from peers.waiting import PATIENCE_S, until

from headrace.wire.batch import iter_headers
from headrace.wire.messages import k45_alter_partition_reassignments as k45
from headrace.wire.messages import k55_describe_quorum as k55

EVERY = (1, 2, 3)
ROUNDS_MAX = 16
UNANSWERED = (KafkaException, OSError)
"""While leaders change no broker may answer."""
METADATA_TOPIC = "__cluster_metadata"


class Administrator:
    """Does an administrator's work through every broker, and sees that every broker knows of it."""

    def __init__(self, cluster: HeadraceCluster) -> None:
        self.cluster = cluster
        self.all = self._client(cluster.bootstrap)
        self.each = {node: self._client(peer.bootstrap) for node, peer in cluster.nodes.items()}

    def _client(self, bootstrap: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})

    def quorum_leader(self) -> int:
        """The active controller, as any broker knows it; -1 where none is known."""
        asked = k55.TopicData(topic_name=METADATA_TOPIC, partitions=[k55.PartitionData()])
        running = next(peer for peer in self.cluster.nodes.values() if peer.process is not None)
        with Link(running.port, timeout_s=5) as link:
            found = link.ask(k55.DescribeQuorumRequest(topics=[asked]), 1).topics[0].partitions[0]
        return int(found.leader_id) if found.error_code == 0 else -1

    def is_led_by_another(self, leader: int) -> bool:
        return self.quorum_leader() not in (leader, -1)

    def work(self, name: str) -> None:
        """Creates a topic, grows, alters, reassigns and deletes it, each through another broker."""
        first, second, third = (self.each[node] for node in EVERY)
        first.create_topics([NewTopic(name, 2, replica_assignment=[[1, 2], [2, 3]])])[name].result(PATIENCE_S)
        self.everyone_sees(name, lambda found: set(found) == {0, 1})
        second.create_partitions([NewPartitions(name, 3)])[name].result(PATIENCE_S)
        self.everyone_sees(name, lambda found: set(found) == {0, 1, 2})
        entry = ConfigEntry("retention.ms", "7654321", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        third.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        self.by_everyone(lambda admin: self.retention(admin, name) == "7654321", f"{name} is altered")
        self.reassign(name, {0: [3, 1], 1: [1, 2, 3], 2: [2]})
        in_sync = {0: [1, 3], 1: [1, 2, 3], 2: [2]}
        self.everyone_sees(name, lambda found: {p: sorted(isr) for p, (_, _, isr) in found.items()} == in_sync)
        first.delete_topics([name])[name].result(PATIENCE_S)
        self.by_everyone(lambda admin: name not in admin.list_topics(timeout=10).topics, f"{name} is gone")

    def by_everyone(self, right: Callable[[AdminClient], bool], what: str) -> None:
        """Returns when it is right as each broker sees it."""
        for node, admin in self.each.items():
            until(functools.partial(right, admin), f"node {node}: {what}", *UNANSWERED)

    def retention(self, admin: AdminClient, name: str) -> str:
        asked = ConfigResource(ResourceType.TOPIC, name)
        return str(admin.describe_configs([asked])[asked].result(PATIENCE_S)["retention.ms"].value)

    def everyone_sees(self, name: str, right: Callable[[dict[int, tuple[int, list[int], list[int]]]], bool]) -> None:
        """`right` is given leader, replicas and in-sync replicas by partition, as each broker knows them."""
        self.by_everyone(lambda admin: right(self.places(admin, name)), f"{name} is as it should be")

    def places(self, admin: AdminClient, name: str) -> dict[int, tuple[int, list[int], list[int]]]:
        found = admin.list_topics(name, timeout=60).topics[name].partitions
        return {number: (each.leader, each.replicas, each.isrs) for number, each in found.items()}

    def reassign(self, name: str, replicas: dict[int, list[int]]) -> None:
        partitions = [k45.ReassignablePartition(number, list(where)) for number, where in replicas.items()]
        request = k45.AlterPartitionReassignmentsRequest(topics=[k45.ReassignableTopic(name, partitions)])
        with Link(self.cluster.nodes[2].port) as link:
            answer = link.ask(request, 0)
        said = [(answer.error_code, answer.error_message)]
        said += [(each.error_code, each.error_message) for topic in answer.responses for each in topic.partitions]
        assert {code for code, _ in said} == {0}, said

    def lead(self, leaders: dict[int, int]) -> None:
        """Every partition of the loaded topic is led by the node that `leaders` names."""
        others = {number: [node, *(n for n in EVERY if n != node)] for number, node in leaders.items()}
        self.reassign(TOPIC, others)
        self.everyone_sees(TOPIC, lambda found: {n: where[1] for n, where in found.items()} == others)
        places = [TopicPartition(TOPIC, number) for number in leaders]
        self.all.elect_leaders(ElectionType.PREFERRED, places).result(PATIENCE_S)
        self.everyone_sees(TOPIC, lambda found: {n: where[0] for n, where in found.items()} == leaders)


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kafkas", [(3,), (2, 3)], ids=["two of ours", "one of ours"])
def test_every_node_leads_everything_once(tmp_path: Path, kafkas: tuple[int, ...]) -> None:
    settings = {
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "log.segment.bytes": str(1 << 20),
    }
    led: set[int] = set()
    ends: Counter[int] = Counter()
    with HeadraceCluster(tmp_path, settings, kafkas=kafkas, dynamic=True) as cluster:
        administrator = Administrator(cluster)
        administrator.all.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(PATIENCE_S)
        until_in_sync(cluster.bootstrap)
        transacting = Transacting(cluster.bootstrap, "transacted")
        with Load(cluster.bootstrap, "load") as load, transacting:
            for turn in range(len(EVERY)):
                administrator.lead({p: EVERY[(p + turn) % len(EVERY)] for p in range(PARTITIONS)})
            for number in range(ROUNDS_MAX):
                leader = administrator.quorum_leader()
                administrator.work(f"made-{number}")
                led.add(leader)
                if led == set(EVERY):
                    break
                victim = cluster.nodes[leader]
                # Each node is stopped and killed in turn: who leads next hangs on which it is.
                ends[leader] += 1
                victim.stop() if ends[leader] % 2 else victim.kill()
                until(functools.partial(administrator.is_led_by_another, leader), "another one leads", *UNANSWERED)
                victim.start()
                until_in_sync(cluster.bootstrap)
        found = read_all(cluster.bootstrap)
        until_in_sync(cluster.bootstrap)
        transacting.check(cluster.bootstrap)
        said = [cluster.nodes[node].log.read_text() for node in EVERY if node not in kafkas]
    assert led == set(EVERY), "each led the quorum"
    assert_kept(cluster, load, found)
    assert_equal_metadata(cluster)
    assert not any("defect" in text for text in said)


def assert_equal_metadata(cluster: HeadraceCluster) -> None:
    """Every batch of the metadata log that all three have is the same; who stopped first lacks the last ones."""
    found = [
        {header.base_offset: header.crc for _, header in iter_headers(cluster.log_of(node, METADATA_TOPIC, 0))}
        for node in EVERY
    ]
    common = set.intersection(*map(set, found))
    assert len(common) > 50
    assert all(found[0][offset] == other[offset] for offset in common for other in found[1:])
    assert all(set(each) - common <= {offset for offset in each if offset > max(common)} for each in found)
