"""Directories that the release before clusters has written, opened by this one: all of it is there, and goes on.

`before_clusters.tar.xz` is what a broker of commit ecfc7d5 left after a clean stop, in two log directories, with
offsets.topic.num.partitions=2: `kept` (3 partitions, 100 records in each, lz4, idempotent, several segments),
`compacted`, the offsets 10, 11 and 12 of the group `readers`, and a topic `gone` that was deleted.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

import headrace.testing
from headrace.metadata.meta_properties import FILE_NAME

ARCHIVE = Path(__file__).with_name("before_clusters.tar.xz")
RECORDS = 300
PATIENCE_S = 60


def read(bootstrap: str, topic: str, partitions: int) -> dict[int, list[ck.Message]]:
    settings: dict[str, str | int | bool] = {"bootstrap.servers": bootstrap, "group.id": "others", "log_level": 0}
    consumer = ck.Consumer({**settings, "enable.partition.eof": True, "check.crcs": True})
    consumer.assign([ck.TopicPartition(topic, at, 0) for at in range(partitions)])
    found: dict[int, list[ck.Message]] = {at: [] for at in range(partitions)}
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "nothing to read"
        at = message.partition()
        assert at is not None
        if message.error() is not None:
            ended.add(at)
        else:
            found[at].append(message)
    consumer.close()
    return found


def write(bootstrap: str, first: int, last: int) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(first, last):
        producer.produce("kept", key=str(number), value=f"value {number}", partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ["clean", "crash"])
def test_a_directory_of_before_clusters(tmp_path: Path, end: str) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    if end == "crash":
        for directory in ("a", "b"):
            (tmp_path / directory / ".kafka_cleanshutdown").unlink()
            (tmp_path / directory / "recovery-point-offset-checkpoint").unlink()
    settings = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}", "offsets.topic.num.partitions": "2"}
    properties = (tmp_path / "a" / FILE_NAME).read_bytes()
    for life in (1, 2):
        with headrace.testing.broker(settings, data=tmp_path / "a") as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            assert set(admin.list_topics(timeout=PATIENCE_S).topics) - {"__consumer_offsets"} == {"kept", "compacted"}
            resource = ConfigResource(ResourceType.TOPIC, "kept")
            configs = admin.describe_configs([resource])[resource].result(PATIENCE_S)
            assert configs["retention.ms"].value == "-1"
            last = RECORDS * life
            for partition, messages in read(broker.bootstrap, "kept", 3).items():
                assert [message.offset() for message in messages] == list(range(last // 3))
                assert [message.value() for message in messages] == [b"value %d" % n for n in range(partition, last, 3)]
            compacted = read(broker.bootstrap, "compacted", 1)[0]
            assert {message.key(): message.value() for message in compacted} == {b"0": b"18", b"1": b"19", b"2": b"17"}
            consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "log_level": 0})
            committed = consumer.committed([ck.TopicPartition("kept", at) for at in range(3)], timeout=PATIENCE_S)
            consumer.close()
            assert [each.offset for each in committed] == [10, 11, 12]
            write(broker.bootstrap, last, last + RECORDS)
    assert (tmp_path / "a" / FILE_NAME).read_bytes() == properties
