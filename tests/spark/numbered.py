"""The topic `numbers`, which clusters' programs read: its values are 0, 1, 2, ... and its keys are theirs modulo 7."""

from __future__ import annotations

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer

PARTITIONS = 2


def make(client: Client, count: int, *targets: str) -> None:
    """Makes the topic with so many records, and topics for what is written."""
    for topic in ("numbers", *targets):
        create_topic(client, topic, partitions=PARTITIONS)
    with Producer(client) as producer:
        for number in range(count):
            producer.send("numbers", b"%d" % number, key=b"%d" % (number % 7), partition=number % PARTITIONS)
