"""How much of a request for many topics one decision does, and what holds if others decide something in between."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from headrace.broker.settings.config_rules import SettingsRules
from headrace.config import BrokerConfig
from headrace.controller import drawing
from headrace.controller import topics as creation
from headrace.controller.context import MAX_RECORDS_PER_REQUEST, ControllerContext
from headrace.controller.topics import decide_create_topics, decide_delete_topics
from headrace.machine import Decision
from headrace.metadata.image import Broker, ClusterImage
from headrace.metadata.replay import Replay
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.metadata_records import PartitionRecord, TopicRecord

IMAGE = ClusterImage(
    offset=10, brokers={i: Broker(i, i, bytes(16), (), (), None, False, False, ()) for i in range(1, 4)}
)


def context_of() -> ControllerContext:
    ids = count(1)
    rules = SettingsRules(BrokerConfig.load({}))
    return ControllerContext(1, 1, 3, rules, lambda: next(ids).to_bytes(16, "big"))


def request_of(names: list[str], partitions: int, *, validate_only: bool = False) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=2) for name in names]
    return CreateTopicsRequest(topics=topics, validate_only=validate_only)


def applied(image: ClusterImage, records: Any) -> ClusterImage:
    replay = Replay(image)
    for record in records:
        replay.apply(record)
    replay.advance(offset=image.offset + len(records), epoch=1, timestamp_ms=0)
    return replay.finish()


def finished(
    image: ClusterImage, decision: Decision[CreateTopicsResponse]
) -> tuple[ClusterImage, dict[str, int], list[int]]:
    """The image at the end, the code of each topic, and the records of each piece."""
    sizes = [len(decision.records)]
    image = applied(image, decision.records)
    while decision.then is not None:
        decision = decision.then(image)
        image = applied(image, decision.records)
        sizes.append(len(decision.records))
    return image, {topic.name: topic.error_code for topic in decision.reply.topics}, sizes


def test_no_piece_has_many_records_and_a_topic_is_in_one() -> None:
    names = [f"t{number}" for number in range(300)]
    decision = decide_create_topics(IMAGE, request_of(names, 30), context_of())
    image, codes, sizes = finished(IMAGE, decision)
    assert codes == dict.fromkeys(names, 0)
    assert sum(sizes) == 300 * 31
    assert max(sizes) < creation.PIECE_RECORDS + 31
    assert not [size for size in sizes if size % 31], "a topic comes with all its partitions"
    assert {len(topic.partitions) for topic in image.topics} == {30}


def test_no_piece_looks_at_many_topics() -> None:
    names = [f"t{number}" for number in range(100)]
    image, codes, sizes = finished(IMAGE, decide_create_topics(IMAGE, request_of(names, 1), context_of()))
    assert max(sizes) == 2 * creation.PIECE_TOPICS
    assert list(codes) == names and set(codes.values()) == {0}
    _, codes, sizes = finished(image, decide_create_topics(image, request_of(names, 1), context_of()))
    assert set(codes.values()) == {ErrorCode.TOPIC_ALREADY_EXISTS}
    assert sizes == [0] * len(range(0, 100, creation.PIECE_TOPICS)), "what is refused takes its time too"


def test_a_request_has_as_many_records_in_all_its_pieces_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "PIECE_RECORDS", 1_000)
    monkeypatch.setattr(drawing, "SLICE_PARTITIONS", 1_000)
    names = [f"t{number}" for number in range(12)]
    _, codes, sizes = finished(IMAGE, decide_create_topics(IMAGE, request_of(names, 999), context_of()))
    assert sum(sizes) == MAX_RECORDS_PER_REQUEST
    assert [codes[name] for name in names] == [0] * 10 + [ErrorCode.POLICY_VIOLATION] * 2


def test_topics_that_others_create_or_delete_between_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "PIECE_TOPICS", 2)
    context = context_of()
    first = decide_create_topics(IMAGE, request_of(["a", "b.x", "c", "d.y"], 1), context)
    image = applied(IMAGE, first.records)
    for other in (
        decide_create_topics(image, request_of(["c", "d_y"], 3), context),
        decide_delete_topics(image, [("a", bytes(16))], context),
    ):
        image = applied(image, other.records)
    assert first.then is not None
    image, codes, _ = finished(image, first.then(image))
    assert codes == {"a": 0, "b.x": 0, "c": ErrorCode.TOPIC_ALREADY_EXISTS, "d.y": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert [(topic.name, len(topic.partitions)) for topic in image.topics] == [("b.x", 1), ("c", 3), ("d_y", 3)]


def test_a_broker_that_goes_between_two_pieces_leads_nothing_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "PIECE_TOPICS", 2)
    first = decide_create_topics(IMAGE, request_of(["a", "b", "c", "d"], 3), context_of())
    image = applied(IMAGE, first.records)
    image = replace(image, brokers={**image.brokers, 1: replace(image.brokers[1], fenced=True)})
    assert first.then is not None
    records = first.then(image).records
    assert [each.name for each in records if isinstance(each, TopicRecord)] == ["c", "d"]
    assert not [each for each in records if isinstance(each, PartitionRecord) and 1 in each.isr]


def test_names_that_collide_are_found_in_another_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "PIECE_TOPICS", 1)
    for validate_only in (False, True):
        request = request_of(["a.b", "c", "a_b", "a.b"], 1, validate_only=validate_only)
        request.topics.append(CreatableTopic(name="a_b.", num_partitions=1, replication_factor=1))
        request.topics.append(CreatableTopic(name="a.b_", num_partitions=1, replication_factor=1))
        image, codes, sizes = finished(IMAGE, decide_create_topics(IMAGE, request, context_of()))
        assert codes == {
            "a.b": ErrorCode.INVALID_REQUEST,
            "c": 0,
            "a_b": 0,
            "a_b.": 0,
            "a.b_": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert len(sizes) == 5
        assert len(image.topics) == (0 if validate_only else 3)
