"""Delivery exactly once in a real Spark: drivers killed around a commit, or at any moment; there also task by task, and
with a commit topic."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import SMALL, set_transaction_version, visible

from headrace.client.admin import create_topic
from headrace.client.reading import latest_offsets

from .gates import Gates
from .test_kill_matrix import SINK, SOURCE, Matrix
from .watching import Watch, check, marked

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

EXACTLY_ONCE = {"delivery": "exactly-once"}
PER_TASK = {"delivery": "exactly-once-per-task"}
WITH_COMMIT_TOPIC = {**EXACTLY_ONCE, "commitTopic": "batches"}


@pytest.fixture
def kafka() -> Iterator[KafkaPeer]:
    with KafkaPeer(settings=SMALL) as kafka:
        yield kafka


def matrix_of(peer: HeadracePeer | KafkaPeer, directory: Path, sink: dict[str, str] = EXACTLY_ONCE) -> Matrix:
    with client_of(peer) as client:
        create_topic(client, SOURCE, partitions=2)
        create_topic(client, SINK, partitions=2)
    return Matrix(peer.bootstrap, directory, sink)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_driver_killed_before_and_after_its_commit(kafka: KafkaPeer, tmp_path: Path) -> None:
    matrix = matrix_of(kafka, tmp_path)
    with client_of(kafka) as client:
        with matrix.killed_at("done", begun=40):
            assert matrix.logged() == ({0}, set()) and latest_offsets(client, SINK) == {0: 0, 1: 0}
        with matrix.killed_at("committed"):
            assert matrix.logged() == ({0}, set()), "Spark does not know"
            assert len(visible(client, SINK)) == 40 and marked(client) == 0
            assert matrix.finished() == latest_offsets(client, SOURCE), "in the same transaction"
        matrix.produce(10)
        matrix.finish()
        check(client, matrix)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", [HeadracePeer, KafkaPeer])
@pytest.mark.parametrize(
    ("level", "sink"),
    [(2, EXACTLY_ONCE), (1, EXACTLY_ONCE), (2, PER_TASK), (1, PER_TASK), (2, WITH_COMMIT_TOPIC)],
    ids=["2", "1", "2 per task", "1 per task", "2 with a commit topic"],
)
def test_drivers_killed_at_any_moment(
    kind: type[HeadracePeer | KafkaPeer], tmp_path: Path, level: int, sink: dict[str, str]
) -> None:
    """Batches are small and many, so that most kills hit one that is under way."""
    chance = random.Random(level)
    with kind(settings=SMALL) as peer, client_of(peer) as client, Watch(peer.bootstrap) as watch:
        matrix = matrix_of(peer, tmp_path, sink)
        set_transaction_version(client, level)
        with matrix.killed_at("planned", begun=40):
            assert matrix.logged() == ({0}, set())
        for _ in range(8):
            before = matrix.logged()[1]
            running = matrix.driver(Gates(tmp_path / "open"), "forever")
            try:
                until = time.monotonic() + 120
                while len(matrix.logged()[1]) < len(before) + 2:
                    assert running.poll() is None and time.monotonic() < until, matrix.said()
                    matrix.produce(7)
                    time.sleep(0.02)
                until = time.monotonic() + chance.uniform(0, 3)
                while time.monotonic() < until:
                    matrix.produce(7)
            finally:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
            watch.check_once()
        matrix.finish()
        check(client, matrix, watch)
