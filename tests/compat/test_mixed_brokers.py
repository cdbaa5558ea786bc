"""Two Apache Kafka brokers and one of ours in one cluster, all of them voters: the coordinator of transactions moves
between the two kinds in the middle of transactions, and each node is ended in turn under load. In the end nothing
acknowledged is lost, each transaction ended as its producer was told, and the logs of all three are equal."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from durability.promises import PARTITIONS, TOPIC, Load, assert_kept, read_all, until_in_sync
from peers.cluster import HeadraceCluster
from peers.moved import SETTINGS, Mover, Transacting
from peers.transactions import set_transaction_version

from headrace.wire.batch import iter_headers

OURS = 1
KAFKAS = (2, 3)
SESSION_MS = 3000
PATIENCE_S = 60.0


def administrator(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def until_led_by_others(bootstrap: str, node: int) -> None:
    """Returns when no partition is led by a node that was ended, or by none."""
    admin = administrator(bootstrap)
    last = time.monotonic() + PATIENCE_S
    while True:
        leaders = {p.leader for p in admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()}
        if not leaders & {node, -1}:
            return
        assert time.monotonic() < last, leaders
        time.sleep(0.1)


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_is_ended_in_turn(tmp_path: Path) -> None:
    settings = {
        **SETTINGS,
        "min.insync.replicas": "2",
        "transaction.state.log.min.isr": "2",
        "broker.session.timeout.ms": str(SESSION_MS),
        "broker.heartbeat.interval.ms": "500",
        "log.segment.bytes": str(1 << 20),
    }
    with HeadraceCluster(tmp_path, settings, kafkas=KAFKAS, dynamic=True) as cluster:
        # through ours: whichever is the active controller
        admin = administrator(cluster.nodes[OURS].bootstrap)
        for name in (TOPIC, "grown"):
            admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(PATIENCE_S)
        admin.create_partitions([NewPartitions("grown", PARTITIONS + 1)])["grown"].result(PATIENCE_S)
        until_in_sync(cluster.bootstrap)
        mover = Mover(cluster, "moved")
        for version, giver, taker in ((2, OURS, 2), (1, 2, OURS)):
            set_transaction_version(mover.client, version)
            mover.lead(giver, taker, 3)
            mover.round(f"from-{giver}", partial(mover.lead, taker, giver, 3))
        transacting = Transacting(cluster.bootstrap, "transacted")
        with Load(cluster.bootstrap, "load") as load, transacting:
            for node, how in ((OURS, "stop"), (2, "kill"), (OURS, "kill"), (3, "stop")):
                victim = cluster.nodes[node]
                victim.stop() if how == "stop" else victim.kill()
                until_led_by_others(cluster.bootstrap, node)
                victim.start()
                until_in_sync(cluster.bootstrap)
        found = read_all(cluster.bootstrap)
        mover.until_in_sync()
        mover.check()
        transacting.check(cluster.bootstrap)
        mover.close()
        said = cluster.nodes[OURS].log.read_text()
    assert "defect" not in said, said[-3000:]
    assert_kept(cluster, load, found)
    mover.assert_equal_logs()
    for partition in range(PARTITIONS):
        epochs = {header.partition_leader_epoch for _, header in iter_headers(cluster.log_of(OURS, TOPIC, partition))}
        assert len(epochs) > 1, "more than one leader wrote"
