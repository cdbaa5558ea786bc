"""What consumer groups are told of a cluster's topics, from change to change."""

from __future__ import annotations

from typing import Any

from headrace.groups.modern.cluster_topics import topics_after, topics_of
from headrace.groups.modern.topics import TopicInfo, Topics
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage
from headrace.wire.messages import metadata_records as mr


class Cluster:
    """An image that changes, and what groups were told of it."""

    def __init__(self, *records: Any) -> None:
        delta = ImageDelta(ClusterImage())
        delta.apply_all(records)
        self.image = delta.image(offset=1, epoch=1, timestamp_ms=1)
        self.told = topics_of(self.image)

    def change(self, *records: Any) -> Topics:
        delta = ImageDelta(self.image)
        delta.apply_all(records)
        before, self.image = self.image, delta.image(offset=self.image.offset + len(records), epoch=1, timestamp_ms=1)
        self.told = topics_after(self.told, before, self.image, delta)
        assert self.told.by_name == topics_of(self.image).by_name
        assert self.told.by_id == topics_of(self.image).by_id
        return self.told


def topic(name: str, number: int, partitions: int = 1) -> list[Any]:
    topic_id = bytes([number]) * 16
    made = [
        mr.PartitionRecord(partition_id=each, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], leader=1)
        for each in range(partitions)
    ]
    return [mr.TopicRecord(name=name, topic_id=topic_id), *made]


def broker(number: int, rack: str | None) -> Any:
    return mr.RegisterBrokerRecord(broker_id=number, broker_epoch=number, rack=rack)


def test_topics_come_grow_and_go() -> None:
    cluster = Cluster(broker(1, None), *topic("a", 1))
    first = cluster.told
    assert first.by_name == {"a": TopicInfo("a", bytes([1]) * 16, 1)}
    second = cluster.change(*topic("b", 2, 3))
    assert (second.version, second.last_created_version) == (cluster.image.offset,) * 2
    assert second.by_name["a"] is first.by_name["a"]
    third = cluster.change(topic("b", 2, 4)[-1])
    assert (third.version, third.last_created_version) == (cluster.image.offset, second.last_created_version)
    assert third.by_name["b"].partition_count == 4
    fourth = cluster.change(mr.RemoveTopicRecord(topic_id=bytes([2]) * 16))
    assert set(fourth.by_name) == {"a"}
    assert fourth.last_created_version == second.last_created_version


def test_a_topic_made_anew_is_another() -> None:
    cluster = Cluster(*topic("a", 1))
    cluster.change(mr.RemoveTopicRecord(topic_id=bytes([1]) * 16), *topic("a", 2))
    assert cluster.told.by_name["a"].id == bytes([2]) * 16
    assert cluster.told.last_created_version == cluster.image.offset


def test_a_new_leader_is_nothing_to_a_group() -> None:
    cluster = Cluster(broker(1, "r1"), broker(2, "r2"), *topic("a", 1))
    before = cluster.told
    assert before.by_name["a"].racks == (("r1", "r2"),)
    change = mr.PartitionChangeRecord(partition_id=0, topic_id=bytes([1]) * 16, leader=2, isr=[2])
    assert cluster.change(change) is before
    assert cluster.change(mr.FenceBrokerRecord(id=1, epoch=1)) is before


def test_racks_of_replicas_are_seen() -> None:
    cluster = Cluster(broker(1, "r1"), broker(2, None), *topic("a", 1))
    assert cluster.told.by_name["a"].racks == (("r1",),)
    assert cluster.change(broker(2, "r2")).by_name["a"].racks == (("r1", "r2"),)
    assert cluster.change(mr.PartitionChangeRecord(partition_id=0, topic_id=bytes([1]) * 16, replicas=[2])).by_name[
        "a"
    ].racks == (("r2",),)
