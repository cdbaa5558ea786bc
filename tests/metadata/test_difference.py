"""The difference of two images leads from one to the other, and says exactly what changed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata.records import histories
from metadata.test_image import replayed, through_bytes

from headrace.metadata.delta import ImageDelta, InconsistentMetadataError
from headrace.metadata.difference import difference
from headrace.metadata.image import ClusterImage
from headrace.metadata.snapshot import image_records
from headrace.wire.messages import metadata_records as mr

Histories = st.tuples(histories(), st.integers(0, 40))
"""Records, and how many of them the older image has."""


def check(old: ClusterImage, new: ClusterImage) -> None:
    delta = difference(old, new)
    made = delta.image(offset=new.offset, epoch=new.epoch, timestamp_ms=new.timestamp_ms)
    assert made == new
    before, after = old.topics.topics_by_id, new.topics.topics_by_id
    assert delta.base is old
    assert delta.deleted_topics == {i: topic for i, topic in before.items() if i not in after}
    assert set(delta.topics) == {i for i, topic in after.items() if before.get(i) != topic}
    for topic_id, topic in delta.topics.items():
        assert (topic.old, topic.new) == (before.get(topic_id), after[topic_id])
        known = () if topic.old is None else topic.old.partitions
        assert topic.changed == {p.index for p in after[topic_id].partitions if p not in known}
    gone = {topic.name for topic in delta.deleted_topics.values()}
    keys = old.configs.overrides.keys() | new.configs.overrides.keys()
    differ = {key for key in keys if old.configs.of(*key) != new.configs.of(*key)}
    # The configuration of a topic that was born again is a new one, though it be equal.
    again = {(kind, name) for kind, name in old.configs.overrides if kind == 2 and name in gone}
    assert delta.changed_configs == differ | again
    ids = old.brokers.keys() | new.brokers.keys()
    assert delta.changed_brokers == {i for i in ids if old.brokers.get(i) != new.brokers.get(i)}
    assert delta.features_changed == (old.features.levels != new.features.levels)


@given(Histories)
def test_from_an_earlier_image_to_a_later_one(drawn: tuple[list[Any], int]) -> None:
    records, count = drawn
    check(replayed(records[:count]), replayed(records))


@given(histories())
def test_from_an_image_to_itself_and_from_nothing(records: list[Any]) -> None:
    image = replayed(records)
    check(image, image)
    check(ClusterImage(cluster_id="c"), image)
    check(image, ClusterImage(cluster_id="c", offset=99))


def test_an_image_from_a_snapshot_equals_the_one_from_deltas_at_every_step() -> None:
    """And whoever hears of differences alone knows the same. Topics are born again under their names."""
    rng = random.Random(17)
    image = heard = ClusterImage(cluster_id="c")
    level = 30
    records: list[Any] = [mr.FeatureLevelRecord(name="metadata.version", feature_level=level)]
    for step in range(400):
        delta = ImageDelta(image)
        delta.apply_all(records)
        image = delta.image(offset=step, epoch=1, timestamp_ms=5)
        loaded = ImageDelta(ClusterImage(cluster_id="c"))
        loaded.apply_all(through_bytes(image_records(image), level))
        snapshot = loaded.image(offset=step, epoch=1, timestamp_ms=5)
        assert snapshot == image
        if rng.random() < 0.3:  # not every one is loaded
            check(heard, snapshot)
            heard = difference(heard, snapshot).image(offset=step, epoch=1, timestamp_ms=5)
            assert heard == image
        records = list(next_records(rng, image, step + 1))


def next_records(rng: random.Random, image: ClusterImage, step: int) -> Any:
    name = rng.choice("abc")
    topic = image.topics.by_name(name)
    replicas = rng.sample(range(4), 2)
    if topic is None:
        topic_id = step.to_bytes(16, "big")
        yield mr.TopicRecord(name=name, topic_id=topic_id)
        for index in range(rng.randint(1, 3)):
            yield mr.PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=replicas[0],
                directories=[bytes(16)] * 2, removing_replicas=[], adding_replicas=[],
            )  # fmt: skip
        yield mr.ConfigRecord(resource_type=2, resource_name=name, name="k", value=str(step % 3))
    elif rng.random() < 0.3:
        yield mr.RemoveTopicRecord(topic_id=topic.id)
    elif rng.random() < 0.5:
        yield mr.PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=replicas[:1], leader=replicas[0])
    else:
        yield mr.ConfigRecord(
            resource_type=2, resource_name=name, name=rng.choice("kj"), value=rng.choice([None, "1", "2"])
        )
    broker_id = rng.randrange(3)
    known = image.brokers.get(broker_id)
    if known is None:
        yield mr.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=step, incarnation_id=bytes(16), log_dirs=[])
    elif rng.random() < 0.5:
        yield mr.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=known.epoch)


def test_a_topic_that_was_born_again_is_deleted_and_created() -> None:
    def born(topic_id: bytes) -> ClusterImage:
        partition = mr.PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
        partition.removing_replicas = partition.adding_replicas = []
        return replayed([mr.TopicRecord(name="a", topic_id=topic_id), partition])

    old, new = born(b"o" * 16), born(b"n" * 16)
    delta = difference(old, new)
    assert set(delta.deleted_topics) == {b"o" * 16}
    assert delta.topics[b"n" * 16].old is None and delta.topics[b"n" * 16].changed == {0}


def test_a_topic_never_shrinks() -> None:
    partitions = [mr.PartitionRecord(partition_id=i, topic_id=b"a" * 16, replicas=[1], isr=[1]) for i in range(2)]
    for partition in partitions:
        partition.removing_replicas = partition.adding_replicas = []
    topic = mr.TopicRecord(name="a", topic_id=b"a" * 16)
    with pytest.raises(InconsistentMetadataError, match="topic a has become another"):
        difference(replayed([topic, *partitions]), replayed([topic, partitions[0]]))
