"""The cluster image's topics in the form that consumer groups use, kept up to date from change to change.

A topic whose name, id, partitions and racks stay is the same value before and after, even if its leaders change. Groups
look at their topics again for each new `Topics`, so there is a new one only after a change that concerns them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.groups.modern.topics import TopicInfo, Topics

if TYPE_CHECKING:
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage, Topic


def topics_of(image: ClusterImage) -> Topics:
    """Returns all topics of an image."""
    racks = _racks(image)
    known = (_info(topic, racks) for topic in image.topics)
    return Topics(known, version=image.offset, last_created_version=image.offset)


def topics_after(before: Topics, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> Topics:
    """Returns the topics after a change of the image; the same object if nothing changed for groups."""
    racks = _racks(new)
    if delta.changed_brokers and racks != _racks(old):
        changed = {topic.name: _info(topic, racks) for topic in new.topics}
    else:
        changed = {each.name: _info(each.new, racks) for each in delta.topics.values() if each.new is not None}
    gone = [topic.name for topic in delta.deleted_topics.values() if topic.name not in new.topics.topics_by_name]
    fresh = {name: info for name, info in changed.items() if before.by_name.get(name) != info}
    if not fresh and not any(name in before.by_name for name in gone):
        return before
    known = {**before.by_name, **fresh}
    for name in gone:
        known.pop(name, None)
    is_created = any(info.id not in before.by_id for info in fresh.values())
    created = new.offset if is_created else before.last_created_version
    return Topics(known.values(), version=new.offset, last_created_version=created)


def _racks(image: ClusterImage) -> dict[int, str]:
    return {broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None}


def _info(topic: Topic, racks: dict[int, str]) -> TopicInfo:
    placed: tuple[tuple[str, ...], ...] = ()
    if racks:
        placed = tuple(tuple(racks[each] for each in one.replicas if each in racks) for one in topic.partitions)
    return TopicInfo(topic.name, topic.id, len(topic.partitions), placed)
