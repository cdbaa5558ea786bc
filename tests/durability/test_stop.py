"""A broker process told to stop (SIGTERM) under load: a clean shutdown, after which nothing is scanned or missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from durability.promises import DELIVERY_PATIENCE_S, PARTITIONS, TOPIC, Load, read_all
from peers.headrace import HeadracePeer

from headrace.broker.broker import Broker
from headrace.log.recovery_report import RecoveryReport
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
ROUNDS = 2
RECORDS_A_ROUND = 2_000


def wait_for(load: Load, more: int) -> None:
    """Until that many more records are acknowledged."""
    wanted = len(load.acknowledged) + more
    patience = time.monotonic() + DELIVERY_PATIENCE_S
    while len(load.acknowledged) < wanted:
        assert time.monotonic() < patience, f"{len(load.acknowledged)} of {wanted} acknowledged, {load.failed}"
        time.sleep(0.005)


@contextmanager
def opened(peer: HeadracePeer) -> Iterator[tuple[TestBroker, list[RecoveryReport]]]:
    """The peer's directory and port under a broker in this process, and what opening each log did. After a clean stop
    logs are opened in the background."""
    settings = {"listeners": f"PLAINTEXT://{peer.bootstrap}", "log.segment.bytes": str(1 << 20)}
    with running_broker(settings, data=peer.data) as broker:
        patience = time.monotonic() + DELIVERY_PATIENCE_S
        while len(reports := broker.call(opening_reports)) < PARTITIONS:
            assert time.monotonic() < patience, f"{len(reports)} logs are open"
            time.sleep(0.01)
        yield broker, reports


def opening_reports(running: Broker) -> list[RecoveryReport]:
    """Of every log that is led."""
    return [replica.log.recovery_report for replica in running.replicas.by_name.values()]


@pytest.mark.slow
def test_sigterm_under_load_is_a_clean_shutdown(tmp_path: Path) -> None:
    peer = HeadracePeer(tmp_path, {"log.segment.bytes": str(1 << 20)})
    peer.start()
    try:
        admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        with Load(peer.bootstrap, "load") as load:
            for _ in range(ROUNDS):
                wait_for(load, RECORDS_A_ROUND)
                assert peer.stop() == 0
                assert (peer.data / CLEAN_SHUTDOWN).exists()
                with opened(peer) as (_, reports):
                    assert len(reports) == PARTITIONS
                    assert reports == [RecoveryReport()] * PARTITIONS
                    wait_for(load, 1)
                peer.start()
            wait_for(load, RECORDS_A_ROUND)
            peer.kill()  # what the check above would see
            with opened(peer) as (_, reports):
                assert sum(report.bytes_scanned for report in reports) > 0
                load.stop()
                found = read_all(peer.bootstrap)
    finally:
        peer.stop()
    load.assert_kept(found)
