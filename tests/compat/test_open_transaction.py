"""A directory that Apache Kafka left with an open transaction: it keeps readers back here, until Kafka has ended it."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PATIENCE_S = 60.0
SMALL = {"transaction.state.log.num.partitions": "1"}


def producer(bootstrap: str) -> confluent_kafka.Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "left", "transaction.timeout.ms": 600_000}
    made = confluent_kafka.Producer(settings)
    made.init_transactions(PATIENCE_S)
    return made


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_ours_takes_it_over_open_and_kafka_ends_it(tmp_path: Path, end: str) -> None:
    kafka = KafkaPeer(tmp_path, SMALL)
    kafka.start()
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("paid", 1, 1)])["paid"].result(PATIENCE_S)
        left = producer(kafka.bootstrap)
        left.begin_transaction()
        left.produce("paid", b"half of it")
        assert left.flush(PATIENCE_S) == 0
    finally:
        kafka.stop() if end == "stop" else kafka.kill()

    ours = HeadracePeer(tmp_path, properties=kafka.write_properties(), port=kafka.port)
    ours.start()
    try:
        assert stable_end(ours.bootstrap) == 0
    finally:
        assert ours.stop() == 0

    kafka.start()
    try:
        producer(kafka.bootstrap)  # whoever comes next under its name aborts it
    finally:
        kafka.stop()

    ours.start()
    try:
        assert stable_end(ours.bootstrap) == 2
    finally:
        assert ours.stop() == 0


def stable_end(bootstrap: str) -> int:
    """Up to where readers of committed records come."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": "read_committed"}
    reader = confluent_kafka.Consumer(settings)
    try:
        end: int = reader.get_watermark_offsets(confluent_kafka.TopicPartition("paid", 0), PATIENCE_S)[1]
        return end
    finally:
        reader.close()
