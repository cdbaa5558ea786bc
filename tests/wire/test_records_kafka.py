"""Apache Kafka opens what our codecs write: topics that recompress make its Java decoders read every record."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from peers.kafka import KafkaPeer

import headrace
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer
from headrace.wire.records import Compression

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaPeer]:
    with KafkaPeer() as peer:
        yield peer


@pytest.mark.parametrize("theirs", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", Compression)
def test_kafka_opens_ours_and_we_open_kafkas(kafka: KafkaPeer, codec: Compression, theirs: str) -> None:
    topic = f"{codec.name.lower()}-{theirs}"
    draw = random.Random(topic)
    # some that compress well, some that do not, and more than a block of any codec
    values = [draw.randbytes(100) if number % 3 else b"%d " % number * 50 for number in range(3000)]
    with Client(kafka.bootstrap) as client:
        create_topic(client, topic, partitions=1, configs={"compression.type": theirs})
        with Producer(client, compression=codec) as producer:
            for number, value in enumerate(values):
                producer.send(topic, value, key=b"%d" % number, headers=[("h", None)], timestamp_ms=1 << 40)
    table = headrace.scan(topic, bootstrap=kafka.bootstrap)
    assert table["value"].to_pylist() == values
    assert table["key"].to_pylist() == [b"%d" % number for number in range(3000)]
    assert table["headers"].to_pylist() == [[{"key": "h", "value": None}]] * 3000
