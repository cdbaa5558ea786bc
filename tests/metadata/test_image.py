"""Images: what records add up to, and that a snapshot of an image makes the same image again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from metadata.records import histories

from headrace.metadata.delta import ImageDelta, InconsistentMetadataError
from headrace.metadata.framing import MetadataRecordError, decode_record, encode_record, record_version
from headrace.metadata.image import ClusterImage, RawRecord, ResourceType
from headrace.metadata.replay import Replay
from headrace.metadata.snapshot import image_records
from headrace.wire.messages import metadata_records as mr


def replayed(records: list[Any], base: ClusterImage | None = None) -> ClusterImage:
    replay = Replay(base or ClusterImage(cluster_id="c"))
    for record in records:
        replay.apply(record)
    replay.advance(offset=len(records) - 1, epoch=1, timestamp_ms=5)
    return replay.finish()


def through_bytes(records: Any, level: int) -> list[Any]:
    return [decode_record(encode_record(record, record_version(record, level))) for record in records]


@given(histories())
def test_a_snapshot_of_an_image_makes_the_image_again(records: list[Any]) -> None:
    image = replayed(records)
    again = replayed(through_bytes(image_records(image), image.features.metadata_version))
    for part in ("features", "brokers", "controllers", "topics", "configs", "next_producer_id", "kept"):
        assert getattr(again, part) == getattr(image, part), part


@pytest.mark.parametrize("cordoned", [None, [], [bytes(15) + b"\x01"]])
def test_a_snapshot_tells_no_closed_directories_from_nothing_said_of_them(cordoned: list[bytes] | None) -> None:
    """As Apache Kafka's, to the byte: a broker registers, and says of them in a heartbeat later."""
    level = mr.FeatureLevelRecord(name="metadata.version", feature_level=30)
    registered = mr.RegisterBrokerRecord(broker_id=1, broker_epoch=1, cordoned_log_dirs=cordoned)
    (record,) = (each for each in image_records(replayed([level, registered])) if type(each) is type(registered))
    assert record.cordoned_log_dirs == cordoned


@given(histories())
def test_records_survive_their_framing(records: list[Any]) -> None:
    level = records[0].feature_level
    image = replayed(records)
    assert replayed(through_bytes(records, level)) == image


@given(histories())
def test_one_delta_for_all_records_is_one_delta_for_each(records: list[Any]) -> None:
    image = ClusterImage(cluster_id="c")
    for offset, record in enumerate(records):
        delta = ImageDelta(image)
        delta.apply(record)
        image = delta.image(offset=offset, epoch=1, timestamp_ms=5)
    assert image == replayed(records)


@given(histories())
def test_a_base_image_never_changes(records: list[Any]) -> None:
    half = len(records) // 2
    base = replayed(records[:half])
    before = list(image_records(base))
    replayed(records[half:], base)
    assert list(image_records(base)) == before


def test_an_unfinished_transaction_leaves_no_trace() -> None:
    replay = Replay(ClusterImage())
    replay.apply(mr.FeatureLevelRecord(name="metadata.version", feature_level=30))
    replay.apply(mr.BeginTransactionRecord())
    replay.apply(mr.TopicRecord(name="a", topic_id=b"a" * 16))
    assert replay.in_transaction
    assert len(replay.finish().topics) == 0
    replay.apply(mr.AbortTransactionRecord(reason="test"))
    replay.apply(mr.BeginTransactionRecord())
    replay.apply(mr.TopicRecord(name="b", topic_id=b"b" * 16))
    replay.apply(mr.EndTransactionRecord())
    assert [topic.name for topic in replay.finish().topics] == ["b"]


@pytest.mark.parametrize(
    "record",
    [
        mr.PartitionRecord(partition_id=0, topic_id=b"x" * 16),
        mr.RemoveTopicRecord(topic_id=b"x" * 16),
        mr.FenceBrokerRecord(id=4, epoch=1),
        mr.EndTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_about_nothing_is_refused(record: Any) -> None:
    with pytest.raises(InconsistentMetadataError):
        Replay(ClusterImage()).apply(record)


def test_the_same_topic_twice_is_refused() -> None:
    with pytest.raises(InconsistentMetadataError, match="created twice"):
        replayed([mr.TopicRecord(name="a", topic_id=b"a" * 16), mr.TopicRecord(name="a", topic_id=b"b" * 16)])


def test_an_unknown_record_stays_as_it_was_written() -> None:
    value = b"\x01\xf4\x03\x07anything"
    record = decode_record(value)
    assert record == RawRecord(500, value)
    assert encode_record(record, 0) == value


@pytest.mark.parametrize(
    "value", [b"", b"\x02\x02\x00", b"\x01", b"\x01\x02\x63", b"\x01\x02\x00\x05a", b"\x01\xf4\x83\x80\x80\x80\x00\x00"]
)
def test_a_broken_frame_is_an_error(value: bytes) -> None:
    with pytest.raises(MetadataRecordError):
        decode_record(value)


def test_a_delta_names_what_changed() -> None:
    base = replayed([mr.TopicRecord(name="a", topic_id=b"a" * 16), mr.TopicRecord(name="b", topic_id=b"b" * 16)])
    delta = ImageDelta(base)
    delta.apply(mr.RemoveTopicRecord(topic_id=b"a" * 16))
    delta.apply(mr.PartitionRecord(partition_id=0, topic_id=b"b" * 16, replicas=[1], isr=[1], leader=1))
    delta.apply(mr.TopicRecord(name="c", topic_id=b"c" * 16))
    delta.apply(mr.ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="b", name="retention.ms", value="1"))
    image = delta.image(offset=9, epoch=1, timestamp_ms=0)
    assert [topic.name for topic in delta.deleted_topics.values()] == ["a"]
    assert {topic.name: (topic.old is None, topic.changed) for topic in delta.topics.values()} == {
        "b": (False, {0}),
        "c": (True, set()),
    }
    assert delta.changed_configs == {(2, "b")}
    assert image.configs.topic_overrides("b") == {"retention.ms": "1"}
    assert image.topics.partition("b", 0) is not None
    assert image.topics.partition("b", 1) is None
