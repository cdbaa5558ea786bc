"""A broker process killed with SIGKILL at random moments under load, thirty times (`--kills`), on one data directory.

What was promised is written down by the clients as it is acknowledged, and read back at the end: every acknowledged
record is at its offset, none of an idempotent producer is doubled or out of order, no committed offset goes back, and
every topic whose creation was answered is there. A seed decides when the kills come; it is in the test's name, so a
failure can be run again.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from durability.promises import PARTITIONS, TOPIC, Load, Promises, read_all
from peers.headrace import HeadracePeer

UPTIME_MAX_S = 0.6


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "flush"), [pytest.param(1, "none", marks=pytest.mark.soak), (2, "before-reply")])
def test_what_was_acknowledged_survives_kills(
    tmp_path: Path, seed: int, flush: str, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(seed)
    # Small segments, so that kills come in the middle of rolling too.
    broker = HeadracePeer(tmp_path, {"acks.flush": flush, "log.segment.bytes": str(1 << 20)})
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        promises = Promises(broker.bootstrap)
        with Load(broker.bootstrap, "load") as load:
            for _ in range(request.config.getoption("--kills") // 2):
                promises.killed.clear()
                worker = threading.Thread(target=promises.keep_until_killed)
                worker.start()
                time.sleep(rng.uniform(0.02, UPTIME_MAX_S))  # the moment of the kill is what is drawn
                broker.kill()
                promises.killed.set()
                broker.start()
                worker.join()  # a commit under way waits for the broker to come back
                promises.check()
        found = read_all(broker.bootstrap)
    finally:
        broker.stop()
    load.assert_kept(found)
    assert promises.committed > 0 and promises.topics
