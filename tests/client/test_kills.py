"""A producer whose broker is killed under it: nothing lost, nothing doubled, nothing out of order."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import pytest
from peers.headrace import HeadracePeer

from headrace.client import admin, reading
from headrace.client.cluster import Client
from headrace.client.fetcher import Fetcher
from headrace.client.producer import Producer
from headrace.client.reading import visible_batches
from headrace.wire.records import decode_batch

KILLS = 2


@pytest.mark.slow
def test_records_survive_kills_of_the_broker_once_each(tmp_path: Path) -> None:
    broker = HeadracePeer(tmp_path)
    broker.start()
    running = True

    def trouble() -> None:
        nonlocal running
        for _ in range(KILLS):
            time.sleep(0.7)
            broker.kill()
            broker.start()
        running = False

    try:
        with Client(broker.bootstrap) as client:
            admin.create_topic(client, "t", partitions=3)
            killer = Thread(target=trouble)
            sent = 0
            with Producer(client) as producer:
                killer.start()
                while running:
                    producer.send("t", b"%d" % sent, key=b"%d" % (sent % 50))
                    sent += 1
                killer.join()
            found = everything(client, "t")
    finally:
        broker.kill()
    assert sorted(value for values in found.values() for value in values) == list(range(sent))
    assert all(values == sorted(values) for values in found.values())


def everything(client: Client, topic: str) -> dict[int, list[int]]:
    ends = {(topic, index): end for index, end in reading.latest_offsets(client, topic).items()}
    found: dict[int, list[int]] = {}
    for fetched in Fetcher(client, dict.fromkeys(ends, 0), ends=ends):
        for _, body in visible_batches(fetched):
            found.setdefault(fetched.partition, []).extend(int(record.value or b"") for record in decode_batch(body))
    return found
