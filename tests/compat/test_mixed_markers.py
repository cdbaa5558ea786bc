"""Markers of our coordinator at a leader of Apache Kafka that cannot write one of them: the others are written. Minutes
long: `make soak`."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.cluster import HeadraceCluster
from peers.moved import SETTINGS, Mover
from peers.transactions import DONE, state_of

from headrace.client import Client
from headrace.client.admin import create_topic
from headrace.client.transactions import TransactionalProducer

pytestmark = [pytest.mark.jvm, pytest.mark.soak, pytest.mark.timeout(600)]

OURS, THEIRS, FROZEN = 1, 2, 3
SLOW = {"broker.session.timeout.ms": "300000", "replica.lag.time.max.ms": "300000"}
"""A follower that freezes stays in sync: its leader waits for it."""
TIMEOUT_MS = 5_000
"""`request.timeout.ms`: at that Apache Kafka's leader answers for a partition that is stuck."""
HELD_MAX_S = TIMEOUT_MS / 1000 / 2
ROUND_S = 3 * TIMEOUT_MS / 1000
TOGETHER = 3


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[HeadraceCluster]:
    settings = {**SETTINGS, **SLOW, "request.timeout.ms": str(TIMEOUT_MS)}
    with HeadraceCluster(tmp_path, settings, kafkas=(THEIRS,), controllers=1) as cluster:
        yield cluster


def begin(producer: TransactionalProducer, topic: str) -> None:
    """A transaction whose record is replicated."""
    producer.begin()
    producer.send(topic, b"value", partition=0)
    producer.flush()


def producers(client: Client, topic: str) -> list[TransactionalProducer]:
    """Each with a transaction that is to be committed."""
    made = [TransactionalProducer(client, f"{topic}-{number}", timeout_ms=600_000) for number in range(TOGETHER)]
    for producer in made:
        begin(producer, topic)
    return made


def test_those_that_are_decided_with_a_stuck_one_do_not_wait(mixed: HeadraceCluster) -> None:
    """Their markers leave together, as the transactions are committed as a group."""
    mover = Mover(mixed, "moved")
    frozen = mixed.nodes[FROZEN].process
    assert frozen is not None
    try:
        mover.lead(OURS, THEIRS)
        create_topic(mover.client, "stuck", assignment={0: [THEIRS, FROZEN]})
        create_topic(mover.client, "free", assignment={0: [THEIRS]})
        stuck, *_ = producers(mover.client, "stuck")
        free = producers(mover.client, "free")
        frozen.send_signal(signal.SIGSTOP)
        stuck.commit([opened for each in free if (opened := each.hand_over())])
        decided_at = time.monotonic()
        for number in range(TOGETHER):
            while state_of(mover.client, f"free-{number}", settled=False) not in DONE:
                assert time.monotonic() < decided_at + HELD_MAX_S, "its marker waits for the stuck one"
                time.sleep(0.01)
        assert state_of(mover.client, "stuck-0", settled=False) == "PrepareCommit"
        frozen.send_signal(signal.SIGCONT)
        assert state_of(mover.client, "stuck-0") == "CompleteCommit"
    finally:
        frozen.send_signal(signal.SIGCONT)
        mover.close()


def test_a_stuck_partition_holds_nobody_else_up(mixed: HeadraceCluster) -> None:
    mover = Mover(mixed, "moved")
    frozen = mixed.nodes[FROZEN].process
    assert frozen is not None
    try:
        mover.lead(OURS, THEIRS)
        create_topic(mover.client, "stuck", assignment={0: [THEIRS, FROZEN]})
        create_topic(mover.client, "free", assignment={0: [THEIRS]})
        stuck, free = (producers(mover.client, topic) for topic in ("stuck", "free"))
        frozen.send_signal(signal.SIGSTOP)
        for producer in stuck:
            producer.commit()
        last = time.monotonic() + ROUND_S
        while time.monotonic() < last:
            for number, producer in enumerate(free):
                decided_at = time.monotonic()
                producer.commit()
                while state_of(mover.client, f"free-{number}", settled=False) not in DONE:
                    assert time.monotonic() < decided_at + HELD_MAX_S, "its marker waits for the stuck one"
                    time.sleep(0.01)
                begin(producer, "free")
        for number in range(TOGETHER):
            assert state_of(mover.client, f"stuck-{number}", settled=False) == "PrepareCommit"
        frozen.send_signal(signal.SIGCONT)
        for number in range(TOGETHER):
            assert state_of(mover.client, f"stuck-{number}") == "CompleteCommit"
    finally:
        frozen.send_signal(signal.SIGCONT)
        mover.close()
