"""What exporters of metrics ask a cluster for, round after round, and a shop that writes orders; one process.

python -m bench.cluster.exporters BOOTSTRAP TOPIC...        one line for each round: how many seconds it took

Each exporter (kafka_exporter, Burrow and kminion work alike) asks for all topics, groups, their members and committed
offsets, the first and the last offset of each partition, and the settings of all topics and brokers. The shop writes
to the topics that are named. Runs until it is ended.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Final

import confluent_kafka.admin
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

EVERY_S: Final = (1.0, 2.0, 5.0)
"""How long an exporter rests after a round, for each of them."""
ORDERS_EVERY_S: Final = 0.005
PATIENCE_S: Final = 30.0
api: Any = confluent_kafka.admin
"""Its stubs lack some of it."""


def one_round(admin: AdminClient) -> None:
    """Everything that an exporter asks for. Raises KafkaException where the cluster refuses as a whole."""
    metadata = admin.list_topics(timeout=PATIENCE_S)
    groups = [each.group_id for each in admin.list_consumer_groups().result(PATIENCE_S).valid]
    waiting: list[Any] = []
    if groups:
        waiting += admin.describe_consumer_groups(groups).values()
    for group in groups:
        waiting += admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    partitions = [TopicPartition(name, each) for name, topic in metadata.topics.items() for each in topic.partitions]
    for spec in (api.OffsetSpec.earliest(), api.OffsetSpec.latest()):
        waiting += admin.list_offsets(dict.fromkeys(partitions, spec)).values()
    resources = [api.ConfigResource(api.ConfigResource.Type.TOPIC, name) for name in metadata.topics]
    waiting += admin.describe_configs(resources).values()
    for broker in metadata.brokers:
        waiting += admin.describe_configs([api.ConfigResource(api.ConfigResource.Type.BROKER, str(broker))]).values()
    for future in waiting:
        try:
            future.result(PATIENCE_S)
        except KafkaException as error:
            print(f"# {error}", flush=True)


def export(bootstrap: str, every_s: float) -> None:
    """One exporter; a line for each of its rounds."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    while True:
        before = time.perf_counter()
        try:
            one_round(admin)
        except KafkaException as error:
            print(f"# {error}", flush=True)
        print(f"{time.perf_counter() - before:.6f}", flush=True)
        time.sleep(every_s)


def shop(bootstrap: str, topics: list[str]) -> None:
    """Writes a record after the other, to each topic in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    number = 0
    while True:
        producer.produce(topics[number % len(topics)], b"x" * 200, key=str(number))
        producer.poll(0)
        number += 1
        time.sleep(ORDERS_EVERY_S)


def main(arguments: list[str]) -> int:
    bootstrap, *topics = arguments
    for every_s in EVERY_S:
        threading.Thread(target=export, args=(bootstrap, every_s), daemon=True).start()
    shop(bootstrap, topics)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
