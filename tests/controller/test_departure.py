"""How much of a departure one decision does: so many records, and so many partitions that are looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.broker.settings.config_rules import SettingsRules
from headrace.config import BrokerConfig
from headrace.controller import pieces as controller_pieces
from headrace.controller.context import ControllerContext
from headrace.controller.directories import decide_directories_failed
from headrace.controller.heartbeats import Heartbeat, decide_heartbeat
from headrace.controller.leaders import decide_elect_leaders
from headrace.controller.membership import decide_fence_brokers, decide_unregister
from headrace.controller.partition_changes import PartitionChanges
from headrace.controller.sessions import BrokerSessions
from headrace.machine import Decision
from headrace.metadata import levels
from headrace.metadata.image import Broker, ClusterImage, Features, Partition, Topic, TopicsImage
from headrace.metadata.replay import Replay

TOPICS, PARTITIONS = 60, 50
FAILS, WORKS = b"\x01" * 16, b"\x02" * 16


def image_of(replicas: tuple[int, ...]) -> ClusterImage:
    """Every partition has these replicas, all of them in sync."""
    places = tuple(
        [Partition(i, replicas, (bytes(16),) * len(replicas), replicas, replicas[0], 0, 0) for i in range(PARTITIONS)]
    )
    topics = [Topic(f"t{number:03}", number.to_bytes(16, "big"), places) for number in range(1, TOPICS + 1)]
    brokers = {i: Broker(i, i, bytes(16), (), (), None, False, False, ()) for i in range(1, 5)}
    by_id, by_name = {topic.id: topic for topic in topics}, {topic.name: topic for topic in topics}
    return ClusterImage(offset=100, brokers=brokers, topics=TopicsImage(by_id, by_name))


def in_directories() -> ClusterImage:
    """Broker 1 has its replicas of every other topic in a directory of two, and leads all but the last partitions."""
    image = image_of((1, 2, 3))

    def moved(at: int, partition: Partition) -> Partition:
        directories = (FAILS if at % 2 else WORKS, *partition.directories[1:])
        leader = 2 if partition.index == PARTITIONS - 1 else 1
        return replace(partition, directories=directories, leader=leader)

    topics = [
        replace(topic, partitions=tuple([moved(at, each) for each in topic.partitions]))
        for at, topic in enumerate(image.topics)
    ]
    by_id, by_name = {topic.id: topic for topic in topics}, {topic.name: topic for topic in topics}
    brokers = {**image.brokers, 1: replace(image.brokers[1], directories=(FAILS, WORKS))}
    features = Features({levels.METADATA_VERSION: levels.LATEST_METADATA_VERSION})
    return replace(image, brokers=brokers, features=features, topics=TopicsImage(by_id, by_name))


def context_of() -> ControllerContext:
    rules = SettingsRules(BrokerConfig.load({}))
    return ControllerContext(1, 1, 3, rules, lambda: bytes(16), sessions=BrokerSessions(9_000))


def applied(image: ClusterImage, records: Any) -> ClusterImage:
    replay = Replay(image)
    for record in records:
        replay.apply(record)
    replay.advance(offset=image.offset + len(records), epoch=1, timestamp_ms=0)
    return replay.finish()


def pieces(
    image: ClusterImage, decide: Callable[[ClusterImage], Decision[Any]], monkeypatch: pytest.MonkeyPatch
) -> tuple[ClusterImage, list[tuple[int, int]]]:
    """The image at the end, and (records, partitions that were looked at) of each piece."""
    looked: list[int] = []
    real = PartitionChanges.take_out

    def take_out(self: PartitionChanges, topic: Topic, *rest: Any, **named: Any) -> bool:
        looked[-1] += len(topic.partitions)
        return real(self, topic, *rest, **named)

    monkeypatch.setattr(PartitionChanges, "take_out", take_out)
    sizes: list[tuple[int, int]] = []
    following: Callable[[ClusterImage], Decision[Any]] | None = decide
    while following is not None:
        looked.append(0)
        decision = following(image)
        sizes.append((len(decision.records), looked[-1]))
        image, following = applied(image, decision.records), decision.then
    return image, sizes


def test_no_piece_has_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of()
    image, sizes = pieces(
        image_of((1, 2, 3)), lambda image: decide_fence_brokers(image, context, [(1, 1)]), monkeypatch
    )
    assert sum(records for records, _ in sizes) == TOPICS * PARTITIONS + 1
    assert max(records for records, _ in sizes) <= controller_pieces.PIECE_RECORDS + 1
    assert image.brokers[1].fenced
    assert all(partition.leader == 2 and partition.isr == (2, 3) for t in image.topics for partition in t.partitions)


def test_no_piece_looks_at_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_pieces, "PIECE_PARTITIONS", 500)
    context = context_of()
    image, sizes = pieces(
        image_of((2, 3)), lambda image: decide_fence_brokers(image, context, [(1, 1), (4, 4)]), monkeypatch
    )
    assert max(looked for _, looked in sizes) <= 500
    assert sum(looked for _, looked in sizes) == 2 * TOPICS * PARTITIONS, "no topic is looked at twice in vain"
    assert image.brokers[1].fenced and image.brokers[4].fenced


def test_a_lone_replica_stays_in_sync_and_the_departure_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of()
    image, _ = pieces(image_of((1,)), lambda image: decide_unregister(image, context, 1), monkeypatch)
    assert 1 not in image.brokers
    assert all(partition.isr == (1,) and partition.leader == -1 for t in image.topics for partition in t.partitions)


def test_a_topic_that_changes_meanwhile_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_pieces, "PIECE_PARTITIONS", 500)
    context = context_of()
    first = decide_fence_brokers(image_of((2, 3)), context, [(1, 1)])
    assert first.then is not None and not first.records
    topic = image_of((1, 2)).topics.by_name("t001")
    assert topic is not None
    others = image_of((2, 3))
    by_id, by_name = {**others.topics.topics_by_id, topic.id: topic}, {**others.topics.topics_by_name, "t001": topic}
    image, _ = pieces(replace(others, topics=TopicsImage(by_id, by_name)), first.then, monkeypatch)
    changed = image.topics.by_name("t001")
    assert changed is not None and all(partition.isr == (2,) for partition in changed.partitions)


def test_what_lies_in_failed_directories_is_given_up_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_pieces, "PIECE_PARTITIONS", 500)
    image, context = in_directories(), context_of()
    sessions = context.sessions
    assert sessions is not None
    beat = Heartbeat(1, 1, 100, failed_directories=(FAILS,))
    first = decide_heartbeat(image, context, sessions, beat)
    image = applied(image, first.records)
    assert len(first.records) == controller_pieces.PIECE_RECORDS and first.then is not None
    assert sessions.failing(image) == {FAILS} and image.brokers[1].directories == (FAILS, WORKS)
    elected = decide_elect_leaders(image, context, 0, [(each.name, range(PARTITIONS)) for each in image.topics])
    found = {image.topics.topics_by_id[record.topic_id].partitions[-1].directory_of(1) for record in elected.records}
    assert found == {WORKS}, "others do not elect it where its directory failed"
    image, sizes = pieces(image, first.then, monkeypatch)
    assert max(records for records, _ in sizes) <= controller_pieces.PIECE_RECORDS + 1
    assert max(looked for _, looked in sizes) <= 500
    assert image.brokers[1].directories == (WORKS,) and not sessions.failing(image)
    for topic in image.topics:
        for partition in topic.partitions:
            is_lost = partition.directory_of(1) == FAILS
            stays = 2 if partition.index == PARTITIONS - 1 else 1
            assert (partition.leader, partition.isr) == ((2, (2, 3)) if is_lost else (stays, (1, 2, 3)))


def test_the_next_controller_hears_of_failed_directories_again(monkeypatch: pytest.MonkeyPatch) -> None:
    image, context = in_directories(), context_of()
    sessions = context.sessions
    assert sessions is not None
    beat = Heartbeat(1, 1, 100, failed_directories=(FAILS,))
    first = decide_heartbeat(image, context, sessions, beat)
    image = applied(image, first.records)
    sessions.begin(image, 0)
    assert not sessions.failing(image)
    image, sizes = pieces(image, lambda image: decide_heartbeat(image, context, sessions, beat), monkeypatch)
    lost = TOPICS // 2 * PARTITIONS
    assert sum(records for records, _ in sizes) == lost - len(first.records) + 1
    assert image.brokers[1].directories == (WORKS,)
    assert not decide_heartbeat(image, context, sessions, beat).records


def test_a_broker_alone_gives_up_what_it_leads_in_failed_directories_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image, sizes = pieces(in_directories(), lambda image: decide_directories_failed(image, 1, [WORKS]), monkeypatch)
    assert sum(records for records, _ in sizes) == TOPICS // 2 * (PARTITIONS - 1) + 1
    assert max(records for records, _ in sizes) <= controller_pieces.PIECE_RECORDS + 1
    assert image.brokers[1].directories == (WORKS,)
    for topic in image.topics:
        for partition in topic.partitions:
            stays = 2 if partition.index == PARTITIONS - 1 else 1
            assert partition.leader == (-1 if stays == 1 and partition.directory_of(1) == FAILS else stays)
