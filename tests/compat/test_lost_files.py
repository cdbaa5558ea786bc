"""A log directory of Apache Kafka, and one of ours, of which derived files are lost after a clean stop: Kafka starts on
one copy and ours on another, and what each says is compared with what was said before.

Partition by partition other files are lost. Where Kafka itself loses state (`docs/divergence.md`), ours does not.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.link import Link
from peers.transactions import SMALL, state_of
from peers.waiting import until

from headrace.client import Client
from headrace.client.admin import create_topic
from headrace.client.transactions import TransactionalProducer
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.records import Record, build_batch

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC = "lost"
T0 = int(time.time()) * 1000 - 60_000
"""Now: what is known of a producer is forgotten a day later."""
PATIENCE_S = 60.0
LARGE = 400_000
SEGMENT_BYTES = 1 << 20
KINDS = ("index", "timeindex", "txnindex", "snapshot")
LOST = [kinds for count in range(5) for kinds in itertools.combinations(KINDS, count)]
"""What each partition loses: nothing, and every choice of the files that Kafka has."""
PARTITIONS = range(len(LOST))


@contextmanager
def served(peer: KafkaPeer, kind: str, *, has_topic: bool = True) -> Iterator[int]:
    """One of the two kinds of broker on the directory of `peer`, stopped cleanly at the end; its port, when it leads
    all partitions."""
    broker: KafkaPeer | HeadracePeer = peer
    if kind == "ours":
        broker = HeadracePeer(peer.directory, properties=peer.write_properties(), port=peer.port)
        broker.settings = {}
    broker.start()
    try:
        if has_topic:
            until_led(broker.port)
        yield broker.port
    finally:
        assert broker.stop() in (0, None)


def until_led(port: int) -> None:
    with Link(port) as link:
        until(lambda: {listed(link, each, -2, 0)[0] for each in PARTITIONS} == {0}, "all partitions are led")


def write(port: int) -> int:
    """To each partition: a committed transaction, two aborted ones in two segments, three batches of an idempotent
    producer, whose id is the answer, and a transaction that stays open."""
    with Client(f"127.0.0.1:{port}", timeout_s=PATIENCE_S) as client, Link(port) as link:
        configs = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
        create_topic(client, TOPIC, partitions=len(PARTITIONS), configs=configs)
        until_led(port)
        ended, opened = (TransactionalProducer(client, name, timeout_ms=600_000) for name in ("ended", "opened"))
        for number, (size, commits) in enumerate(((LARGE, True), (LARGE, False), (LARGE, True), (1, False))):
            transact(client, ended, number, size, commits=commits)
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        producer_id: int = link.ask(init, 4).producer_id
        for sequence in range(3):
            assert all(repeat(link, producer_id, sequence, partition)[0] == 0 for partition in PARTITIONS)
        opened.begin()
        send(opened, 5, 1)
    return producer_id


def transact(client: Client, producer: TransactionalProducer, number: int, size: int, *, commits: bool) -> None:
    producer.begin()
    send(producer, number, size)
    producer.commit() if commits else producer.abort()
    assert state_of(client, "ended").startswith("Complete")


def send(producer: TransactionalProducer, number: int, size: int) -> None:
    for partition in PARTITIONS:
        value = b"%d-" % number + b"x" * size
        producer.send(TOPIC, value, partition=partition, timestamp_ms=T0 + number * 1000)
    producer.flush()


def write_more(port: int) -> None:
    """One more aborted transaction, behind what was sealed."""
    with Client(f"127.0.0.1:{port}", timeout_s=PATIENCE_S) as client:
        transact(client, TransactionalProducer(client, "ended"), 55, 1, commits=False)


def repeat(link: Link, producer_id: int, sequence: int, partition: int) -> tuple[int, int]:
    """(error, offset) of one record of the idempotent producer."""
    record = Record(0, T0 + 50_000 + sequence, None, b"sequenced", [])
    batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    topic = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(partition, batch)])
    (answer,) = link.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9).responses
    part = answer.partition_responses[0]
    return part.error_code, part.base_offset


def listed(link: Link, partition: int, timestamp: int, isolation: int) -> tuple[int, int, int]:
    part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[part])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
    found = link.ask(request, 7).topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


def fetched(link: Link, partition: int, offset: int) -> Any:
    """What a consumer of committed records is answered."""
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
    request = FetchRequest(
        max_wait_ms=0, max_bytes=1 << 24, isolation_level=1, session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[part])],
    )  # fmt: skip
    found = link.ask(request, 11).responses[0].partitions[0]
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
    return found.error_code, found.last_stable_offset, aborted, bytes(found.records or b"")


def said(link: Link, partition: int) -> dict[str, Any]:
    """What derived files have a part in."""
    end = listed(link, partition, -1, 0)[1]
    request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[partition])])
    (described,) = link.ask(request, 0).topics[0].partitions
    return {
        "ends": [listed(link, partition, -1, isolation) for isolation in (0, 1)],
        "times": [listed(link, partition, T0 + late, 0) for late in range(0, 60_000, 500)],
        "newest": listed(link, partition, -3, 0),
        "committed": [fetched(link, partition, offset) for offset in range(end)],
        "producers": sorted(
            (each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
            for each in described.active_producers
        ),
    }  # fmt: skip


def lose(data: Path) -> None:
    """Of the derived files of Kafka's that lie there each partition loses those of its kinds, and every seal but those
    of the even partitions."""
    for partition, kinds in zip(PARTITIONS, LOST, strict=True):
        folder = data / f"{TOPIC}-{partition}"
        for kind in kinds if partition % 2 == 0 else (*kinds, "seal"):
            for path in folder.glob(f"*.{kind}"):
                path.unlink()


def kafka_keeps(kinds: tuple[str, ...]) -> dict[str, bool]:
    """What Apache Kafka still says: it makes everything again if an offset index is missing, and nothing otherwise."""
    is_recovered = not kinds or "index" in kinds
    return {
        "ends": is_recovered or "snapshot" not in kinds,
        "times": True,
        "newest": is_recovered or "timeindex" not in kinds,
        "committed": is_recovered or not {"txnindex", "snapshot"} & set(kinds),
        "producers": is_recovered or "snapshot" not in kinds,
    }


def described(port: int) -> list[dict[str, Any]]:
    with Link(port) as link:
        return [said(link, partition) for partition in PARTITIONS]


def leave_seals(data: Path) -> None:
    """As a crash may leave them, in the middle of a deletion and of a compaction."""
    for suffix in ("deleted", "cleaned", "swap"):
        for seal in (data / f"{TOPIC}-0").glob("*.seal"):
            shutil.copy(seal, f"{seal}.{suffix}")
            break


@pytest.mark.parametrize("writer", ["kafka", "ours"])
def test_ours_loses_nothing_and_kafka_what_the_page_says(tmp_path: Path, writer: str) -> None:
    first = KafkaPeer(tmp_path / "first", SMALL)
    with served(first, writer, has_topic=False) as port:
        producer_id = write(port)
        before = described(port)
    assert all(each["ends"][1] < each["ends"][0] for each in before)
    assert all(len({aborted for answer in each["committed"] for aborted in answer[2]}) == 2 for each in before)
    assert len(list((first.data / f"{TOPIC}-0").glob("*.log"))) == 2
    lose(first.data)
    second = KafkaPeer(tmp_path / "second", SMALL)
    shutil.copytree(first.data, second.data)
    with served(first, "ours") as port, Link(port) as link:
        for kinds, old, new in zip(LOST, before, described(port), strict=True):
            assert new == old, kinds
        for partition in PARTITIONS:
            assert repeat(link, producer_id, 2, partition)[0] == 0
            assert listed(link, partition, -1, 0) == before[partition]["ends"][0]
    with served(second, "kafka") as port:
        for kinds, old, new in zip(LOST, before, described(port), strict=True):
            assert {name: new[name] == value for name, value in old.items()} == kafka_keeps(kinds), kinds
    assert len(list((first.data / f"{TOPIC}-0").glob("*.seal"))) == 2
    leave_seals(first.data)
    with served(first, "kafka") as port:
        assert described(port) == before  # on what ours made again, with seals
        write_more(port)
        more = described(port)
    with served(first, "ours") as port:
        assert described(port) == more
