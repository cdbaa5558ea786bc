"""Replicas move between log directories while they are flushed, and nothing goes offline.

Before a move took the log's locks, as retention and deletion do, a flush that the rolls had asked for met its folder
under another name: at most six of these moves, and every partition in the old directory was offline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker.raw import Raw, batch, create_topic, produce

from headrace.broker.broker import Broker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

WRITES = 8
WRITE = b"x" * 1_000_000
PATIENCE_S = 60.0


def move(raw: Raw, topic: str, home: Path) -> int:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(home), topics=topics)])
    code: int = raw.ask(request, 2).results[0].partitions[0].error_code
    return code


@contextmanager
def ticking(every_s: float, broker_call: object) -> Iterator[None]:
    """Has the broker do its background work that often: flushes, checkpoints, retention, removals."""
    done = threading.Event()

    def tick() -> None:
        while not done.wait(every_s):
            broker_call()  # type: ignore[operator]

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("moves", [20, pytest.param(300, marks=pytest.mark.soak)])
def test_moves_under_load_take_nothing_offline(tmp_path: Path, moves: int) -> None:
    homes = tmp_path / "one", tmp_path / "two"
    settings = {
        "log.dirs": ",".join(map(str, homes)),
        "log.retention.check.interval.ms": "50",
        "log.flush.offset.checkpoint.interval.ms": "50",
        "log.flush.start.offset.checkpoint.interval.ms": "50",
        "log.segment.delete.delay.ms": "10",
    }
    with running_broker(settings, data=homes[0]) as served, Raw(served.port, timeout_s=PATIENCE_S) as raw:
        create_topic(served.port, "t", segment_bytes=str(1 << 20), retention_bytes=str(6 << 20))

        def where() -> str:
            return served.call(lambda broker: str(Path(broker.logs.logs["t", 0].directory).parent))

        def tick(broker: Broker) -> None:
            background = broker.background
            if background._running <= background._compacting:
                for work in broker.logs.tick():
                    background._submit(work, background._done)

        with ticking(0.005, lambda: served.call(tick)):
            for _ in range(moves):
                for _ in range(WRITES):
                    sent = raw.ask(produce("t", batch(WRITE), acks=1), 9).responses[0].partition_responses[0]
                    assert sent.error_code == 0
                target = next(home for home in homes if str(home) != where())
                assert move(raw, "t", target) == 0
                deadline = time.monotonic() + PATIENCE_S
                while where() != str(target):
                    assert time.monotonic() < deadline
                    time.sleep(0.002)
        assert served.call(lambda broker: (len(broker.logs.online()), dict(broker.replicas.offline))) == (2, {})
