"""librdkafka's idempotent producer, whose broker begins to lead in the middle of what it has sent."""

from __future__ import annotations

import json
import threading
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker.broker import Broker
from headrace.testing import TestBroker

SENT = 5
"""Requests of one connection that librdkafka has in flight at most."""


def test_what_is_acknowledged_is_there(headrace_broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka takes all that it sent before an acknowledged batch for acknowledged: no later one may come first."""
    admin = AdminClient({"bootstrap.servers": headrace_broker.bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)
    waiting = threading.Event()
    on_their_way = threading.Event()

    def look(stats: str) -> None:
        brokers = json.loads(stats)["brokers"].values()
        if any(each["waitresp_cnt"] == SENT for each in brokers):
            on_their_way.set()

    acknowledged: list[bytes] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        acknowledged.append(message.value())

    producer = ck.Producer(
        {
            "bootstrap.servers": headrace_broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "statistics.interval.ms": 5,
            "stats_cb": look,
        }
    )
    producer.produce("t", b"hello", partition=1)  # it has its producer id, and a connection
    assert producer.flush(60) == 0

    def stand_still(inside: Broker) -> None:
        """Leads no more for a while, and takes the first two of five requests before it does again."""
        replicas = inside.replicas
        replica = replicas.held(("t", 0))
        partition = inside.image.topics.partition("t", 0)
        assert replica is not None and partition is not None
        replicas._table.rest(replica)
        refused = 0
        come_again = replicas.come_again

        def refuse(topic: str, topic_id: bytes, index: int, batch: Any) -> None:
            nonlocal refused
            come_again(topic, topic_id, index, batch)
            refused += 1
            if refused == 2:
                replicas._lead(replica, partition)

        monkeypatch.setattr(replicas, "come_again", refuse)
        waiting.set()
        assert on_their_way.wait(60)

    still = threading.Thread(target=headrace_broker.call, args=(stand_still,))
    still.start()
    assert waiting.wait(60)
    values = [b"%d" % number for number in range(SENT)]
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=delivered)
    while not on_their_way.is_set():
        producer.poll(0.01)
    still.join()
    assert producer.flush(60) == 0
    assert acknowledged == values
    consumer = ck.Consumer({"bootstrap.servers": headrace_broker.bootstrap, "group.id": "g"})
    consumer.assign([ck.TopicPartition("t", 0, 0)])
    read = [message.value() for message in consumer.consume(SENT, 10)]
    consumer.close()
    assert read == values
