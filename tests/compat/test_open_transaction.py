"""A directory that Apache Kafka left with an open transaction: refused by name, until Kafka has ended it."""

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
def test_kafka_ends_it_and_ours_takes_over(tmp_path: Path, end: str) -> None:
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
    with pytest.raises(RuntimeError, match=r"paid-0 has an open transaction of producer \d+ \(from offset 0\)"):
        ours.start()
    ours.kill()

    kafka.start()
    try:
        producer(kafka.bootstrap)  # whoever comes next under its name aborts it
    finally:
        kafka.stop()

    ours.start()
    try:
        reader = confluent_kafka.Consumer({"bootstrap.servers": ours.bootstrap, "group.id": "r"})
        assert reader.get_watermark_offsets(confluent_kafka.TopicPartition("paid", 0), PATIENCE_S) == (0, 2)
        reader.close()
    finally:
        assert ours.stop() == 0
