"""A mirror's topics and groups between two brokers, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

import headrace.testing
from headrace.client import admin, groups
from headrace.client.cluster import Client
from headrace.client.metadata import TopicPartition
from headrace.client.producer import Producer
from headrace.spark.options import Subscription, source_options
from headrace.spark.planning import Range
from headrace.spark.tasks import tasks_of
from headrace_pipelines.mirror import CopiesFile, Mirror
from headrace_pipelines.mirror_groups import GroupSync
from headrace_pipelines.mirror_offsets import Run, Runs
from headrace_pipelines.mirror_topics import TopicFollower

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[Client, Client]]:
    with headrace.testing.broker() as source, headrace.testing.broker() as target:
        with source.client() as ours, target.client() as theirs:
            yield ours, theirs


@pytest.fixture
def source(clients: tuple[Client, Client]) -> Client:
    return clients[0]


@pytest.fixture
def target(clients: tuple[Client, Client]) -> Client:
    return clients[1]


def copied(client: Client, topic: str, count: int) -> dict[TopicPartition, Runs]:
    """A topic of `count` records in one partition, and what a mirror would know of it."""
    admin.create_topic(client, topic, partitions=1)
    with Producer(client) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)
    return {(topic, 0): (Run(1000, 1000 + count - 1, 0, count),)}


def committed(client: Client, group: str) -> dict[TopicPartition, int]:
    return {at: found.offset for at, found in groups.fetch_offsets(client, group).items()}


class TestTopics:
    def test_they_are_made_as_they_are_and_grow(self, source: Client, target: Client) -> None:
        said: list[str] = []
        configs = {"retention.ms": "86400000", "message.timestamp.type": "LogAppendTime", "min.insync.replicas": "1"}
        admin.create_topic(source, "made", partitions=3, configs=configs)
        follower = TopicFollower(source, target, Subscription(pattern="made.*"), "west.", said.append)
        assert follower.follow() == [("made", 0), ("made", 1), ("made", 2)]
        assert len(target.topics(["west.made"])[0].partitions) == 3
        entries = admin.describe_configs(target, admin.Resource.TOPIC, "west.made")
        found = {entry.name: entry.value for entry in entries}
        assert (found["retention.ms"], found["message.timestamp.type"]) == ("86400000", "CreateTime")
        admin.add_partitions(source, "made", 5)
        admin.create_topic(source, "made-later", partitions=1)
        follower.follow()
        assert [len(topic.partitions) for topic in target.topics(["west.made", "west.made-later"])] == [5, 1]
        assert follower.follow() and said == []

    def test_settings_that_are_refused_cost_no_topic(
        self, source: Client, target: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        admin.create_topic(source, "odd", partitions=2)
        follower = TopicFollower(source, target, Subscription(topics=("odd",)), "", said.append)
        monkeypatch.setattr(follower, "_configs", lambda _: {"some.vendors.setting": "1"})
        follower.follow()
        assert len(target.topics(["odd"])[0].partitions) == 2
        (line,) = said
        assert line.startswith("the target refuses the settings of topic odd") and "some.vendors" in line


class TestGroups:
    def sync(self, source: Client, target: Client, pattern: str) -> tuple[GroupSync, list[str]]:
        said: list[str] = []
        return GroupSync(source, target, pattern, "", said.append), said

    def test_a_group_stands_where_it_stood(self, source: Client, target: Client) -> None:
        copies = copied(target, "read", 100)
        admin.create_topic(source, "read", partitions=1)
        sync, said = self.sync(source, target, "reader-.*")
        for group, offset in {"reader-a": 1040, "reader-b": 1100, "reader-c": 12, "other": 1040}.items():
            groups.commit_offsets(source, group, {("read", 0): offset})
        groups.commit_offsets(source, "headrace-mirror-1", {("read", 0): 1040})
        sync.sync(copies)
        found = {name: committed(target, name) for name in ("reader-a", "reader-b", "reader-c", "other")}
        at = ("read", 0)
        assert found == {"reader-a": {at: 40}, "reader-b": {at: 100}, "reader-c": {at: 0}, "other": {}}
        for offset, there in ((1050, 50), (1030, 30)):  # on, and back
            groups.commit_offsets(source, "reader-a", {at: offset})
            sync.sync(copies)
            assert committed(target, "reader-a") == {at: there}
        everything = self.sync(source, target, ".*")[0]
        everything.sync(copies)
        assert committed(target, "other") == {at: 40} and committed(target, "headrace-mirror-1") == {}
        assert said == []

    def test_never_below_what_is_left(self, source: Client, target: Client) -> None:
        copies = copied(target, "expired", 100)
        admin.create_topic(source, "expired", partitions=1)
        admin.delete_records(target, {("expired", 0): 60})
        groups.commit_offsets(source, "slow", {("expired", 0): 1040})
        self.sync(source, target, "slow")[0].sync(copies)
        assert committed(target, "slow") == {("expired", 0): 60}

    def test_a_group_with_members_is_left_alone_and_one_that_was_further_stays(
        self, source: Client, target: Client
    ) -> None:
        copies = copied(target, "busy", 100)
        admin.create_topic(source, "busy", partitions=1)
        at = ("busy", 0)
        groups.commit_offsets(source, "members", {at: 1040})
        host, port = target.bootstrap[0]
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": f"{host}:{port}", "group.id": "members", "auto.offset.reset": "earliest"}
        )
        sync, said = self.sync(source, target, "members|missing")
        try:
            consumer.subscribe(["busy"])
            read = [consumer.poll(PATIENCE_S) for _ in range(70)]
            assert read[-1] is not None and read[-1].value() == b"69"
            for _ in range(3):
                sync.sync(copies)
            assert committed(target, "members") == {}
            consumer.commit(message=read[-1], asynchronous=False)
        finally:
            consumer.close()
        assert said == ["group members has members at the target: the mirror waits until they leave"]
        sync.sync(copies)
        assert committed(target, "members") == {at: 70}, "the copy was read further than the source"
        groups.commit_offsets(source, "members", {at: 1080})
        sync.sync(copies)
        assert committed(target, "members") == {at: 80}

    def test_one_group_that_fails_keeps_no_other_back(self, source: Client, target: Client) -> None:
        copies = copied(target, "whole", 10)
        for topic in ("whole", "half"):
            admin.create_topic(source, topic, partitions=1)
        copies["half", 0] = (Run(0, 9, 0, 10),)
        groups.commit_offsets(source, "first", {("half", 0): 5})
        groups.commit_offsets(source, "second", {("whole", 0): 1005})
        sync, said = self.sync(source, target, "first|second")
        for _ in range(2):
            sync.sync(copies)
        (line,) = said
        assert line.startswith("cannot mirror the offsets of group first now: topic half")
        assert committed(target, "second") == {("whole", 0): 5}
        admin.create_topic(target, "half", partitions=1)
        sync.sync(copies)
        assert committed(target, "first") == {("half", 0): 5}

    def test_a_cluster_that_does_not_answer_is_said_once(self, source: Client) -> None:
        said: list[str] = []
        admin.create_topic(source, "alone", partitions=1)
        groups.commit_offsets(source, "lonely", {("alone", 0): 3})
        with Client("127.0.0.1:1", timeout_s=0.2) as nobody:
            sync = GroupSync(source, nobody, "lonely", "", said.append)
            for _ in range(2):
                sync.sync({})
        (line,) = said
        assert line.startswith("cannot mirror the offsets of groups now: no broker answers")


def test_a_partition_is_one_tasks_however_large() -> None:
    """In pieces, it would be written out of order."""
    mirror = Mirror("127.0.0.1:1", "127.0.0.1:2", Path("state"), topics=("a",))
    whole = Range("a", 0, 0, 1_000_000_000)
    options = source_options(mirror.read_options(), streaming=True)
    assert tasks_of([whole], options, {("a", 0): 1000.0}, cores=8) == [[whole]]


def test_what_is_known_of_copies_outlives_the_driver(tmp_path: Path) -> None:
    copies = CopiesFile(tmp_path)
    copies.add([("a", 0), ("a", 1)], {("a", 0): [Run(0, 9, 0, 10), Run(20, 29, 10, 10)]})
    before = copies.runs
    copies.add([("a", 0), ("b", 0)], {("a", 0): [Run(30, 30, 20, 1)]})
    known = {("a", 0): (Run(0, 9, 0, 10), Run(20, 30, 10, 11)), ("a", 1): (), ("b", 0): ()}
    assert copies.runs == CopiesFile(tmp_path).runs == known
    assert before != known, "who looked before has what there was then"
