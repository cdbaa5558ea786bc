"""Batch writes exactly once in a real Spark, whose drivers are killed at any moment: each is seen whole, or not at all.

Minutes long: `make soak`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import SMALL, settled_ends, visible
from peers.waiting import until

from headrace.client.admin import create_topic
from headrace.client.reading import latest_offsets
from headrace.client.transaction_groups import end_leftovers
from headrace.client.transaction_states import list_transactions

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.soak]

TOPIC = "written"
ROWS = 600_000
KILLS = 8
KILLED_WITHIN_S = 1.0
"""Of its first row."""
PATIENCE_S = 120.0


@contextmanager
def writing(bootstrap: str, label: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that begins to write; it is killed with all of its Spark at the end."""
    command = [sys.executable, "-m", "spark.writing", bootstrap, TOPIC, label, str(ROWS)]
    directory = Path(__file__).parent.parent
    running = subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert running.stdout is not None
    try:
        assert running.stdout.readline() == "begins\n"
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [HeadracePeer, KafkaPeer])
def test_drivers_killed_at_any_moment(kind: type[HeadracePeer | KafkaPeer]) -> None:
    chance = random.Random(kind.__name__)
    with kind(settings=SMALL) as peer, client_of(peer) as client:
        create_topic(client, TOPIC, partitions=2)
        left = 0
        for number in range(KILLS):
            before = latest_offsets(client, TOPIC)
            with writing(peer.bootstrap, f"killed{number}"):
                until(lambda: latest_offsets(client, TOPIC) != before, "rows are sent")  # noqa: B023
                time.sleep(chance.uniform(0, KILLED_WITHIN_S))
            left += len(end_leftovers(client, "headrace-write"))  # as its timeout does, some time
        with writing(peer.bootstrap, "lived") as driver:
            assert driver.wait(PATIENCE_S) == 0
        found = Counter(value.split(b"-")[0].decode() for value in visible(client, TOPIC))
        assert found["lived"] == ROWS
        assert set(found.values()) == {ROWS}, "a part of a write is seen"
        assert settled_ends(client, TOPIC) == latest_offsets(client, TOPIC), "nothing is open"
        assert len(found) <= KILLS, "a kill was in the middle"
        if kind is HeadracePeer:
            assert left, "tasks had transactions open"
            assert any("~" in each.transactional_id for each in list_transactions(client))
