"""The client against real brokers: administration, offsets, groups, records there and back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from peers.waiting import until

from headrace.client import admin, describe, groups, reading
from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, OffsetOutOfRangeError, TimedOutError, UnknownTopicError
from headrace.client.fetcher import Fetcher
from headrace.client.membership import Member
from headrace.client.producer import Producer
from headrace.client.reading import visible_batches
from headrace.wire import uuids
from headrace.wire.config_source import ConfigSource
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Compression, Record, build_batch, decode_batch


def read_all(client: Client, topic: str, isolation: reading.Isolation = "read_uncommitted") -> list[Record]:
    ends = {(topic, index): end for index, end in reading.latest_offsets(client, topic).items()}
    found: list[Record] = []
    for fetched in Fetcher(client, dict.fromkeys(ends, 0), ends=ends, isolation=isolation, max_wait_ms=50):
        for _, body in visible_batches(fetched):
            found += decode_batch(body)
    return found


def test_topics_come_grow_and_go(client: Client, topic: str) -> None:
    assert admin.create_topic(client, topic, partitions=2, configs={"retention.ms": "12345"})
    info = client.topic(topic)
    assert (len(info.partitions), info.internal) == (2, False)
    assert info.id != uuids.ZERO
    assert [partition.leader in client.nodes for partition in info.partitions] == [True, True]
    assert not admin.create_topic(client, topic, exist_ok=True)
    with pytest.raises(BrokerError) as refused:
        admin.create_topic(client, topic)
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    admin.add_partitions(client, topic, 5)
    assert len(client.topics([topic])[0].partitions) == 5
    with pytest.raises(BrokerError) as refused:
        admin.add_partitions(client, topic, 3)
    assert refused.value.code == ErrorCode.INVALID_PARTITIONS
    admin.delete_topic(client, topic)
    assert topic not in {info.name for info in client.topics()}
    with pytest.raises(UnknownTopicError):
        client.topic(topic)
    with pytest.raises(UnknownTopicError):
        admin.delete_topic(client, topic)


def test_what_cannot_be_created_is_refused_by_name(client: Client, topic: str) -> None:
    for code, name, options in (
        (ErrorCode.INVALID_REPLICATION_FACTOR, topic, {"partitions": 1, "replication_factor": 99}),
        (ErrorCode.INVALID_CONFIG, topic, {"configs": {"no.such.setting": "1"}}),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "a b", {}),
    ):
        with pytest.raises(BrokerError) as refused:
            admin.create_topic(client, name, **options)
        assert refused.value.code == code
        assert name in str(refused.value)
    assert admin.create_topic(client, topic, validate_only=True)
    assert topic not in [info.name for info in client.topics()]


def test_configurations_change_one_by_one(client: Client, topic: str) -> None:
    admin.create_topic(client, topic, partitions=1, configs={"retention.ms": "1000"})
    admin.alter_configs(client, admin.Resource.TOPIC, topic, set_values={"cleanup.policy": "compact"})
    admin.alter_configs(
        client, admin.Resource.TOPIC, topic, append={"cleanup.policy": "delete"}, delete=["retention.ms"]
    )

    def described() -> dict[str, admin.ConfigEntry]:
        entries = admin.describe_configs(client, admin.Resource.TOPIC, topic, synonyms=True)
        return {entry.name: entry for entry in entries}

    def policies() -> set[str]:
        return set((described()["cleanup.policy"].value or "").split(","))

    assert policies() == {"compact", "delete"}
    found = described()
    assert found["cleanup.policy"].source == ConfigSource.TOPIC
    assert found["retention.ms"].source == ConfigSource.DEFAULT
    assert not found["retention.ms"].is_set
    admin.alter_configs(
        client, admin.Resource.TOPIC, topic, set_values={"segment.bytes": "1048576"}, validate_only=True
    )
    (entry,) = admin.describe_configs(client, admin.Resource.TOPIC, topic, keys=["segment.bytes"])
    assert entry.source == ConfigSource.DEFAULT


def test_brokers_describe_themselves(client: Client) -> None:
    cluster = describe.describe_cluster(client)
    assert cluster.cluster_id
    assert [f"{broker.host}:{broker.port}" for broker in cluster.brokers] == [
        f"{host}:{port}" for host, port in client.bootstrap
    ]
    quorum = describe.describe_quorum(client)
    assert quorum.leader_id == cluster.brokers[0].id
    assert [replica.voter for replica in quorum.replicas] == [True]
    assert describe.describe_features(client)["metadata.version"] >= 7
    entries = admin.describe_configs(client, admin.Resource.BROKER, str(cluster.brokers[0].id))
    assert "log.dirs" in {entry.name for entry in entries}
    with pytest.raises(BrokerError):
        admin.describe_configs(client, admin.Resource.BROKER, "4711")


def test_log_directories_tell_sizes(client: Client, topic: str) -> None:
    admin.create_topic(client, topic, partitions=1)
    batch = build_batch([Record(0, 1, b"k", b"v" * 1000)])
    with Producer(client) as producer:
        producer.send_batch(topic, 0, batch)
    replicas = [replica for found in describe.describe_log_dirs(client, [topic]) for replica in found.replicas]
    assert [(replica.topic, replica.size, replica.lag) for replica in replicas] == [(topic, len(batch), 0)]


@pytest.mark.parametrize("codec", list(Compression))
def test_records_there_and_back(client: Client, topic: str, codec: Compression) -> None:
    admin.create_topic(client, topic, partitions=3)
    sent = {
        b"key-%d" % number: (None if number % 7 == 0 else b"value-%d" % number * 20, [("h", b"1"), ("n", None)])
        for number in range(500)
    }
    with Producer(client, compression=codec, batch_size=4000) as producer:
        for number, (key, (value, headers)) in enumerate(sent.items()):
            producer.send(topic, value, key=key, headers=headers, timestamp_ms=1_700_000_000_000 + number)
    found = {record.key: (record.value, list(record.headers)) for record in read_all(client, topic)}
    assert found == sent
    assert sum(reading.latest_offsets(client, topic).values()) == 500


def test_offsets_by_time_and_end(client: Client, topic: str) -> None:
    admin.create_topic(client, topic, partitions=1)
    at = (topic, 0)
    with Producer(client) as producer:
        for number in range(10):
            producer.send_batch(topic, 0, build_batch([Record(0, 1_700_000_000_000 + number * 1000, None, b"x")]))

    def look(when: int) -> int:
        return reading.list_offsets(client, {at: when})[at].offset

    assert look(reading.EARLIEST) == 0
    assert look(reading.LATEST) == 10
    assert look(reading.MAX_TIMESTAMP) == 9
    assert look(1_700_000_003_000) == 3
    assert look(1_700_000_003_001) == 4
    assert look(1_800_000_000_000) == -1
    assert admin.delete_records(client, {at: 4}) == {at: 4}
    assert reading.earliest_offsets(client, topic) == {0: 4}
    with pytest.raises(OffsetOutOfRangeError) as outside:
        list(Fetcher(client, {at: 0}, ends={at: 10}))
    assert (outside.value.topic, outside.value.partition, outside.value.offset) == (topic, 0, 0)
    fetcher = Fetcher(client, {at: 0}, ends={at: 10}, reset="earliest")
    assert next(iter(fetcher)).position == 4
    assert fetcher.resets == 1


def test_a_bounded_read_does_not_wait_for_ever(client: Client, bootstrap: str, topic: str) -> None:
    admin.create_topic(client, topic, partitions=1)
    with Client(bootstrap, timeout_s=1.0) as client:
        started = time.monotonic()
        with pytest.raises(TimedOutError, match="before the end 5"):
            list(Fetcher(client, {(topic, 0): 0}, ends={(topic, 0): 5}, max_wait_ms=100))
        assert time.monotonic() - started < 20


def test_a_following_read_sees_what_comes(client: Client, topic: str) -> None:
    admin.create_topic(client, topic, partitions=2)
    fetcher = Fetcher(client, {(topic, 0): 0, (topic, 1): 0}, max_wait_ms=10_000)
    assert fetcher.poll(0.1) == []
    with Client(client.bootstrap[0][0] + f":{client.bootstrap[0][1]}") as other, Producer(other) as producer:
        producer.send(topic, b"now", partition=1)
    started = time.monotonic()
    (fetched,) = fetcher.poll(9.0)
    assert time.monotonic() - started < 9
    assert (fetched.partition, fetched.position, fetched.next_position) == (1, 0, 1)
    assert not fetcher.finished


def test_group_offsets_from_outside(client: Client, topic: str) -> None:
    admin.create_topic(client, topic, partitions=3)
    assert groups.fetch_offsets(client, topic) == {}
    groups.commit_offsets(
        client, topic, {(topic, 0): 5, (topic, 2): groups.Committed(7, leader_epoch=0, metadata="note")}
    )
    assert groups.fetch_offsets(client, topic) == {
        (topic, 0): groups.Committed(5),
        (topic, 2): groups.Committed(7, 0, "note"),
    }
    assert groups.fetch_offsets(client, topic, [(topic, 1), (topic, 0)]) == {(topic, 0): groups.Committed(5)}
    assert topic in [found.group_id for found in groups.list_groups(client)]
    assert groups.describe_group(client, topic).state == "Empty"
    groups.delete_offsets(client, topic, [(topic, 0)])
    assert list(groups.fetch_offsets(client, topic)) == [(topic, 2)]
    groups.delete_group(client, topic)
    assert groups.fetch_offsets(client, topic) == {}
    with pytest.raises(BrokerError) as missing:
        groups.delete_group(client, topic)
    assert missing.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.describe_group(client, topic).state == "Dead"


def test_two_members_share_the_partitions(bootstrap: str, topic: str) -> None:
    with Client(bootstrap) as one, Client(bootstrap) as two:
        admin.create_topic(one, topic, partitions=4)
        first, second = (Member(each, topic, [topic], heartbeat_interval_s=0.2) for each in (one, two))
        assert first.poll()
        assert first.assigned == [(topic, index) for index in range(4)]
        groups.commit_offsets(one, topic, {(topic, 0): 1}, member=first.membership)
        with pytest.raises(BrokerError) as refused:
            groups.commit_offsets(one, topic, {(topic, 0): 2})
        assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        first.on_rebalance = lambda: groups.commit_offsets(one, topic, {(topic, 1): 9}, member=first.membership)
        _poll_until(lambda: len(first.assigned) == len(second.assigned) == 2, first, second)
        assert groups.fetch_offsets(one, topic)[topic, 1].offset == 9
        assert sorted([*first.assigned, *second.assigned]) == [(topic, index) for index in range(4)]
        assert len(first.assigned) == len(second.assigned) == 2
        described = groups.describe_group(one, topic)
        assert (described.state, described.assignor, len(described.members)) == ("Stable", "range", 2)
        assert {member.assigned for member in described.members} == {tuple(first.assigned), tuple(second.assigned)}
        second.leave()
        _poll_until(lambda: len(first.assigned) == 4, first)
        first.leave()
        assert groups.describe_group(one, topic).state == "Empty"


def _poll_until(condition: Callable[[], bool], *members: Member) -> None:
    """Polls members, each in a thread since a join waits for the others, until it is so."""
    done = threading.Event()

    def run(member: Member) -> None:
        while not done.is_set():
            member.poll()
            time.sleep(0.02)

    threads = [threading.Thread(target=run, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    try:
        until(condition, "each member has its part")
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_gap_in_the_sequence_is_answered_with_a_new_epoch(client: Client, topic: str) -> None:
    """What a broker says that has lost the batches before (KIP-360): here they were never sent."""
    admin.create_topic(client, topic, partitions=2)
    with Producer(client) as producer:
        for partition in (0, 1):
            producer.send(topic, b"first", partition=partition)
        producer.flush()
        producer._partitions[topic, 0].next_sequence += 5
        for number in range(20):
            producer.send_batch(topic, number % 2, build_batch([Record(0, 1, None, b"%d" % number)]))
        producer.flush()
    batches = [
        (fetched.partition, header.producer_epoch, header.base_sequence, bytes(record.value or b""))
        for fetched in Fetcher(client, {(topic, 0): 0, (topic, 1): 0}, ends={(topic, 0): 11, (topic, 1): 11})
        for header, body in visible_batches(fetched, committed=False)
        for record in decode_batch(body)
    ]
    assert sorted(batches) == sorted(
        [(partition, 0, 0, b"first") for partition in (0, 1)]
        + [(0, 1, number // 2, b"%d" % number) for number in range(0, 20, 2)]
        + [(1, 0, 1 + number // 2, b"%d" % number) for number in range(1, 20, 2)]
    )


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_a_topic_that_takes_small_batches_is_written_to_without_a_setting(
    client: Client, topic: str, compression: Compression
) -> None:
    admin.create_topic(client, topic, partitions=1, configs={"max.message.bytes": "20000"})
    # zstd finds half of it
    values = [(b"%06d" % number) * 4 + random.Random(number).randbytes(76).hex().encode() for number in range(3_000)]
    with Producer(client, compression=compression) as producer:
        for value in values[:2_000]:
            producer.send(topic, value, key=b"k", timestamp_ms=5)
        records = [Record(0, 5, None, value, [("h", b"x")]) for value in values[2_000:]]
        delivery = producer.send_batch(topic, 0, build_batch(records, compression=compression))
    assert (delivery.done, delivery.base_offset, delivery.record_count) == (True, 2_000, 1_000)
    found = read_all(client, topic)
    assert [record.value for record in found] == values
    assert {record.timestamp for record in found} == {5}
    assert found[-1].headers == [("h", b"x")]
