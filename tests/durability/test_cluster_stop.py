"""The leader of a partition stopped with SIGSTOP under load, for less and for more than its session, and let go on:
nothing acknowledged is lost, a leader of the past acknowledges nothing, and the logs are equal in the end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from broker.raw import Raw, batch, produce
from confluent_kafka.admin import AdminClient, NewTopic
from durability.promises import SYNC_PATIENCE_S, Load, assert_kept, make_topic, read_all, until_in_sync
from peers.cluster import HeadraceCluster

from headrace.wire.errors import ErrorCode

SESSION_S = 3.0
SETTINGS = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "1",
}
PROBE = "probe"
STALE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
         ErrorCode.REQUEST_TIMED_OUT}  # fmt: skip
"""What a leader of the past may answer: where its followers have gone, no record of its own is ever committed."""


def leader_of(cluster: HeadraceCluster, asked: int, *, not_led_by: int = -1) -> int:
    """The node that leads the probe, as a node says that runs."""
    admin = AdminClient({"bootstrap.servers": cluster.nodes[asked].bootstrap, "log_level": 0})
    last = time.monotonic() + SYNC_PATIENCE_S
    while True:
        leader = admin.list_topics(PROBE, timeout=SYNC_PATIENCE_S).topics[PROBE].partitions[0].leader
        if leader not in (-1, not_led_by):
            return leader
        assert time.monotonic() < last, f"node {not_led_by} is not replaced"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("stopped_s", "rounds"), [(0.3 * SESSION_S, 3), (1.5 * SESSION_S, 2)], ids=["for less than its session", "for more"]
)
def test_a_leader_that_is_stopped_and_goes_on(tmp_path: Path, stopped_s: float, rounds: int) -> None:
    with HeadraceCluster(tmp_path, SETTINGS) as cluster:
        make_topic(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(PROBE, 1, 3)])[PROBE].result(SYNC_PATIENCE_S)
        acknowledged: list[tuple[int, bytes]] = []
        with Load(cluster.bootstrap, "load", silence_ms=2000) as load:
            for number in range(rounds):
                load.goes_on()
                leader = leader_of(cluster, 1)
                other = next(node for node in cluster.nodes if node != leader)
                value = b"asked of a stopped leader, round %d" % number
                with Raw(cluster.nodes[leader].port, timeout_s=120) as raw:
                    os.kill(cluster.nodes[leader].pid, signal.SIGSTOP)
                    try:
                        raw.send(request := produce(PROBE, batch(value), acks=-1), 9)
                        time.sleep(stopped_s)
                        if stopped_s > SESSION_S:
                            leader_of(cluster, other, not_led_by=leader)
                            load.goes_on()
                    finally:
                        os.kill(cluster.nodes[leader].pid, signal.SIGCONT)
                    _, answer = raw.receive(request.API_KEY, 9)
                said = answer.responses[0].partition_responses[0]
                if stopped_s > SESSION_S:
                    assert said.error_code in STALE
                if said.error_code == ErrorCode.NONE:
                    acknowledged.append((said.base_offset, value))
                until_in_sync(cluster.bootstrap)
        found = read_all(cluster.bootstrap)
        until_in_sync(cluster.bootstrap)
        until_in_sync(cluster.bootstrap, PROBE)
    assert_kept(cluster, load, found)
    probes = {cluster.log_of(node, PROBE, 0) for node in cluster.nodes}
    assert len(probes) == 1, "the replicas differ"
    log = probes.pop()
    assert all(value in log for _, value in acknowledged)
