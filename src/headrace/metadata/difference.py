"""The delta from one image to another: it brings listeners up to date after a snapshot was loaded.

A snapshot has what exists, and not what was deleted. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from headrace.metadata import levels
from headrace.metadata.delta import ImageDelta, InconsistentMetadataError
from headrace.metadata.image import ClusterImage, ResourceType
from headrace.metadata.snapshot import broker_record, controller_record, partition_record
from headrace.wire.messages import metadata_records as mr

_ALL: Final = levels.LATEST_METADATA_VERSION
"""No record of a difference is ever written: none leaves out what an old level has no field for."""


def difference(old: ClusterImage, new: ClusterImage) -> ImageDelta:
    """A delta on `old` whose image is `new`; it names what changed, and only that.

    A topic that was born again under its name is deleted and created. Raises InconsistentMetadataError where `new`
    cannot follow `old`: a topic has another name, or fewer partitions.
    """
    delta = ImageDelta(old)
    delta.apply_all(_topic_records(old, new))
    delta.apply_all(_config_records(old, new))
    delta.apply_all(_broker_records(old, new))
    delta.apply_all(_controller_records(old, new))
    delta.apply_all(_feature_records(old.features.levels, new.features.levels))
    delta.take_over(new)
    made = delta.image(offset=new.offset, epoch=new.epoch, timestamp_ms=new.timestamp_ms)
    assert made == new, "the difference leads to the new image"
    return delta


def _topic_records(old: ClusterImage, new: ClusterImage) -> Iterator[Any]:
    for topic_id in old.topics.topics_by_id:
        if topic_id not in new.topics.topics_by_id:
            yield mr.RemoveTopicRecord(topic_id=topic_id)
    for topic in new.topics:
        before = old.topics.by_id(topic.id)
        if before is None:
            yield mr.TopicRecord(name=topic.name, topic_id=topic.id)
        elif before.name != topic.name or len(before.partitions) > len(topic.partitions):
            raise InconsistentMetadataError(f"topic {before.name} has become another under the same id")
        known = () if before is None else before.partitions
        for partition in topic.partitions:
            if partition.index >= len(known) or known[partition.index] != partition:
                yield partition_record(topic.id, partition, _ALL)


def _config_records(old: ClusterImage, new: ClusterImage) -> Iterator[Any]:
    gone = {topic.name for topic in old.topics if topic.id not in new.topics.topics_by_id}
    for kind, name in sorted(old.configs.overrides.keys() | new.configs.overrides.keys()):
        # With a topic went its configuration.
        before: Mapping[str, str] = {} if kind == ResourceType.TOPIC and name in gone else old.configs.of(kind, name)
        after = new.configs.of(kind, name)
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                yield mr.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=after.get(key))


def _broker_records(old: ClusterImage, new: ClusterImage) -> Iterator[Any]:
    for broker_id, broker in old.brokers.items():
        if broker_id not in new.brokers:
            yield mr.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    for broker_id, broker in new.brokers.items():
        if old.brokers.get(broker_id) != broker:
            yield broker_record(broker, _ALL)


def _controller_records(old: ClusterImage, new: ClusterImage) -> Iterator[Any]:
    for controller_id in old.controllers.keys() - new.controllers.keys():
        yield mr.UnregisterControllerRecord(controller_id=controller_id)
    for controller_id, controller in new.controllers.items():
        if old.controllers.get(controller_id) != controller:
            yield controller_record(controller)


def _feature_records(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[Any]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield mr.FeatureLevelRecord(name=name, feature_level=new.get(name, 0))
