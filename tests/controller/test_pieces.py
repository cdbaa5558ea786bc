"""How much of a request for thousands of partitions one decision does, and what holds if others decide in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from controller.test_departure import applied, context_of, image_of

from headrace.broker.quorum.log.proposals import prepare
from headrace.controller import drawing, pieces, placement
from headrace.controller.configs import Alteration, AlterOperation, decide_alter_configs
from headrace.controller.context import MAX_RECORDS_PER_REQUEST, ControllerContext
from headrace.controller.directories import decide_assign_directories
from headrace.controller.heartbeats import Heartbeat, decide_heartbeat
from headrace.controller.in_sync import PartitionAlteration, decide_alter_partitions
from headrace.controller.leaders import (
    PREFERRED_ELECTION,
    decide_balance_leaders,
    decide_elect_leaders,
    decide_elect_missing,
)
from headrace.controller.partition_changes import PartitionChanges, Target
from headrace.controller.partitions import decide_create_partitions
from headrace.controller.reassignments import decide_reassign
from headrace.controller.topics import decide_create_topics, decide_delete_topics
from headrace.machine import Decision
from headrace.metadata import levels
from headrace.metadata.framing import decode_record
from headrace.metadata.image import (
    DIRECTORY_LOST,
    NO_LEADER,
    ClusterImage,
    Features,
    Partition,
    ResourceType,
    Topic,
    TopicsImage,
)
from headrace.metadata.new_partitions import NewPartitions
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k37_create_partitions import CreatePartitionsTopic
from headrace.wire.messages.metadata_records import PartitionRecord, TopicRecord

TOPICS, PARTITIONS = 60, 50
HUGE = 4 * drawing.SLICE_PARTITIONS + 10
Decide = Callable[[ClusterImage], Decision[Any]]


def moved(image: ClusterImage, to: Callable[[Partition], Partition]) -> ClusterImage:
    """The image with every partition changed."""
    topics = [replace(each, partitions=tuple([to(one) for one in each.partitions])) for each in image.topics]
    by_id, by_name = {each.id: each for each in topics}, {each.name: each for each in topics}
    return replace(image, topics=TopicsImage(by_id, by_name))


def with_broker(image: ClusterImage, broker_id: int, **changes: Any) -> ClusterImage:
    return replace(image, brokers={**image.brokers, broker_id: replace(image.brokers[broker_id], **changes)})


def at_newest(image: ClusterImage) -> ClusterImage:
    return replace(image, features=Features({levels.METADATA_VERSION: levels.LATEST_METADATA_VERSION}))


def finished(image: ClusterImage, decide: Decide) -> tuple[ClusterImage, Any, list[int]]:
    """The image at the end, the reply, and the records of each piece."""
    sizes: list[int] = []
    following: Decide | None = decide
    while following is not None:
        decision = following(image)
        sizes.append(len(decision.records))
        image, following = applied(image, decision.records), decision.then
    return image, decision.reply, sizes


def without_leaders() -> ClusterImage:
    """Broker 1 is fenced; it alone is in sync, and nobody leads."""
    image = with_broker(image_of((1, 2)), 1, fenced=True)
    return moved(image, lambda each: replace(each, isr=(1,), leader=NO_LEADER))


def returns(context: ControllerContext) -> Decide:
    """Broker 1 sends the heartbeat with which it is unfenced."""
    sessions = context.sessions
    assert sessions is not None
    return lambda image: decide_heartbeat(image, context, sessions, Heartbeat(1, 1, 100))


def leaders(image: ClusterImage) -> set[int]:
    return {each.leader for topic in image.topics for each in topic.partitions}


# --- a broker that comes back


def test_a_broker_that_comes_back_leads_thousands_of_partitions_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_PARTITIONS", 500)
    looked: list[int] = []
    real = PartitionChanges.without_leader

    def without_leader(self: PartitionChanges, topic: Topic) -> list[Partition]:
        looked[-1] += len(topic.partitions)
        return real(self, topic)

    monkeypatch.setattr(PartitionChanges, "without_leader", without_leader)
    image, context = without_leaders(), context_of()
    following: Decide | None = returns(context)
    while following is not None:
        looked.append(0)
        decision = following(image)
        assert len(decision.records) <= pieces.PIECE_RECORDS + 1
        image, following = applied(image, decision.records), decision.then
        assert not image.brokers[1].fenced, "it is unfenced first: who leads is not fenced"
    assert leaders(image) == {1}
    assert decision.reply.error is ErrorCode.NONE and not decision.reply.is_fenced
    assert max(looked) <= 500 and len(looked) >= TOPICS * PARTITIONS // pieces.PIECE_RECORDS


def test_elections_that_come_to_nothing_take_their_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    real = PartitionChanges.change

    def change(self: PartitionChanges, topic: Topic, partition: Partition, target: Target) -> Partition:
        tried[-1] += 1
        return real(self, topic, partition, target)

    monkeypatch.setattr(PartitionChanges, "change", change)
    image = moved(without_leaders(), lambda each: replace(each, isr=(2,)))
    image, context = with_broker(image, 2, fenced=True), context_of()
    following: Decide | None = returns(context)
    while following is not None:
        tried.append(0)
        decision = following(image)
        image, following = applied(image, decision.records), decision.then
    assert max(tried) <= pieces.PIECE_TRIES and sum(tried) == TOPICS * PARTITIONS
    assert leaders(image) == {NO_LEADER}


def test_a_broker_that_goes_again_between_two_pieces_is_elected_no_more() -> None:
    image, context = without_leaders(), context_of()
    first = returns(context)(image)
    image = with_broker(applied(image, first.records), 1, fenced=True)
    assert first.then is not None
    last = first.then(image)
    assert not last.records and last.then is None


def test_the_next_controller_elects_what_the_one_before_had_not_come_to() -> None:
    image, context = without_leaders(), context_of()
    first = returns(context)(image)
    image = applied(image, first.records)
    assert leaders(image) == {1, NO_LEADER}
    assert context.sessions is not None
    context.sessions.begin(image, 0)
    image, _, sizes = finished(image, lambda image: decide_elect_missing(image, context))
    assert leaders(image) == {1} and max(sizes) <= pieces.PIECE_RECORDS
    assert sum(sizes) == TOPICS * PARTITIONS - len(first.records) + 1


def test_leaders_are_balanced_in_pieces_and_no_more_than_are_allowed() -> None:
    image = moved(image_of((1, 2)), lambda each: replace(each, leader=2))
    image, may_be_more, sizes = finished(image, lambda image: decide_balance_leaders(image, context_of(), 250))
    assert sizes == [100, 100, 50] and may_be_more
    image, may_be_more, sizes = finished(image, lambda image: decide_balance_leaders(image, context_of(), 5_000))
    assert sum(sizes) == TOPICS * PARTITIONS - 250 and not may_be_more and leaders(image) == {1}


# --- requests for many partitions


def test_partitions_are_reassigned_in_pieces() -> None:
    image = image_of((1, 2, 3))
    wanted = [(topic.name, [(index, [1, 2, 4]) for index in range(PARTITIONS)]) for topic in image.topics]
    context = context_of()
    image, answers, sizes = finished(image, lambda image: decide_reassign(image, context, wanted, True))
    assert max(sizes) <= pieces.PIECE_RECORDS and sum(sizes) == TOPICS * PARTITIONS
    assert all(each.adding == (4,) for topic in image.topics for each in topic.partitions)
    assert [(name, [index for index, _ in parts]) for name, parts in answers] == [
        (name, list(range(PARTITIONS))) for name, _ in wanted
    ]
    assert {error.code for _, parts in answers for _, error in parts} == {ErrorCode.NONE}


def test_a_request_has_as_many_records_in_all_its_pieces_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.controller.partition_changes.MAX_RECORDS_PER_REQUEST", 250)
    image = moved(image_of((1, 2)), lambda each: replace(each, leader=2))
    wanted = [(topic.name, range(PARTITIONS)) for topic in image.topics]
    context = context_of()
    _, answers, sizes = finished(image, lambda i: decide_elect_leaders(i, context, PREFERRED_ELECTION, wanted))
    assert sum(sizes) == 250
    codes = [error.code for _, parts in answers for _, error in parts]
    assert codes == [ErrorCode.NONE] * 250 + [ErrorCode.POLICY_VIOLATION] * (TOPICS * PARTITIONS - 250)


def test_leaders_of_all_partitions_are_elected_in_pieces() -> None:
    image = moved(image_of((1, 2)), lambda each: replace(each, leader=2 if each.index % 2 else 1))
    context = context_of()
    image, answers, sizes = finished(image, lambda i: decide_elect_leaders(i, context, PREFERRED_ELECTION, None))
    assert max(sizes) <= pieces.PIECE_RECORDS and leaders(image) == {1}
    assert len(answers) == TOPICS
    assert all([index for index, _ in parts] == list(range(1, PARTITIONS, 2)) for _, parts in answers)


@pytest.mark.parametrize("given", ["elect", "reassign"])
def test_topics_without_partitions_are_looked_at_in_pieces(given: str) -> None:
    context, topics = context_of(), [f"n{number}" for number in range(3 * pieces.PIECE_TRIES)]

    def decide(image: ClusterImage) -> Decision[Any]:
        if given == "elect":
            return decide_elect_leaders(image, context, PREFERRED_ELECTION, [(name, []) for name in topics])
        return decide_reassign(image, context, [(name, []) for name in topics], True)

    image, looked_at = image_of((1, 2)), [0]
    following: Decide | None = decide
    while following is not None:
        decision = following(image)
        looked_at.append(len(decision.reply))
        following = decision.then
    assert decision.reply == [(name, []) for name in topics]
    assert max(after - before for before, after in pairwise(looked_at)) <= pieces.PIECE_TRIES


def test_names_are_counted_in_pieces_and_forgotten_one_by_one() -> None:
    names = [f"n{number % (pieces.PIECE_COUNTED + 10)}" for number in range(2 * pieces.PIECE_COUNTED)]
    named = pieces.Named(names, str)
    rounds = 0
    while not named.is_counted:
        named.count_some()
        rounds += 1
    assert rounds == 2
    assert named.is_twice("n0") and not named.is_twice(f"n{pieces.PIECE_COUNTED}")
    left: list[int] = []
    for name, expected in zip(named.in_order(), dict.fromkeys(names), strict=True):
        assert name == expected
        left.append(len(named._last))
    assert left == list(range(pieces.PIECE_COUNTED + 10, 0, -1))


def test_a_leader_alters_thousands_of_in_sync_sets_in_pieces() -> None:
    image = image_of((1, 2, 3))
    wanted = [PartitionAlteration(t.id, p.index, 0, 0, ((1, -1),)) for t in image.topics for p in t.partitions]
    context = context_of()
    first = decide_alter_partitions(image, context, 1, 1, wanted)
    assert len(first.records) == pieces.PIECE_RECORDS and first.then is not None
    image = applied(image, first.records)
    gone = with_broker(image, 1, epoch=7)
    assert first.then(gone).reply.error is ErrorCode.STALE_BROKER_EPOCH
    image, reply, sizes = finished(image, first.then)
    assert max(sizes) <= pieces.PIECE_RECORDS and len(reply.results) == TOPICS * PARTITIONS
    assert {each.isr for topic in image.topics for each in topic.partitions} == {(1,)}


def test_a_broker_assigns_thousands_of_directories_in_pieces() -> None:
    image, directory = at_newest(image_of((1, 2))), b"\x07" * 16
    chosen = [(t.id, p.index, directory) for t in image.topics for p in t.partitions]
    context = context_of()
    image, reply, sizes = finished(image, lambda i: decide_assign_directories(i, context, 1, chosen))
    assert max(sizes) <= pieces.PIECE_RECORDS and len(reply.results) == TOPICS * PARTITIONS
    assert {each.directory_of(1) for topic in image.topics for each in topic.partitions} == {directory}


@pytest.mark.parametrize("broker_epoch", [None, 1])
def test_a_replica_that_lies_nowhere_is_led_by_another(broker_epoch: int | None) -> None:
    """Unless nobody else has all of it: then it is to lead again once its broker has found it."""
    image = at_newest(image_of((1, 2)))
    alone, shared = image.topics.by_name("t001"), image.topics.by_name("t002")
    assert alone is not None and shared is not None
    only_one = replace(alone, partitions=tuple([replace(each, isr=(1,)) for each in alone.partitions]))
    by_id, by_name = {only_one.id: only_one, shared.id: shared}, {"t001": only_one, "t002": shared}
    image = replace(image, topics=TopicsImage(by_id, by_name))
    chosen = [(topic.id, 0, DIRECTORY_LOST) for topic in (only_one, shared)]
    context = context_of()
    image, reply, _ = finished(image, lambda i: decide_assign_directories(i, context, 1, chosen, broker_epoch))
    assert [error for _, _, error in reply.results] == [ErrorCode.NONE] * 2
    kept, given = (image.topics.by_name(name).partitions[0] for name in ("t001", "t002"))  # type: ignore[union-attr]
    assert (kept.leader, kept.isr, kept.directory_of(1)) == (1, (1,), only_one.partitions[0].directory_of(1))
    assert (given.leader, given.isr, given.directory_of(1)) == (2, (2,), DIRECTORY_LOST)


def test_settings_of_many_topics_are_altered_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer stands where its alteration does, and what one request may write is counted over all pieces."""
    monkeypatch.setattr(pieces, "PIECE_RECORDS", 7)
    monkeypatch.setattr("headrace.controller.pieces.MAX_RECORDS_PER_REQUEST", 2 * TOPICS - 2)
    image, context = image_of((1, 2)), context_of()
    changes = [(name, AlterOperation.SET, "60000") for name in ("retention.ms", "segment.ms")]
    names = [topic.name for topic in image.topics]
    wanted = [Alteration(ResourceType.TOPIC, name, changes) for name in (*names, "nobody", "twice", "twice")]
    _, only_checked, sizes = finished(image, lambda i: decide_alter_configs(i, wanted, context, validate_only=True))
    assert sizes == [0] * len(sizes)
    image, answers, sizes = finished(image, lambda i: decide_alter_configs(i, wanted, context))
    assert max(sizes) <= 8 and sum(sizes) == 2 * TOPICS - 2 and answers == only_checked
    assert [each.code for each in answers] == [
        *[ErrorCode.NONE] * (TOPICS - 1),
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        *[ErrorCode.INVALID_REQUEST] * 2,
    ]
    overridden = [name for name in names if image.configs.topic_overrides(name)]
    assert overridden == names[:-1]


def test_topics_are_deleted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_PARTITIONS", 500)
    image, context = image_of((1, 2)), context_of()
    wanted: list[tuple[str | None, bytes]] = [(topic.name, bytes(16)) for topic in image.topics]
    image, results, sizes = finished(image, lambda image: decide_delete_topics(image, wanted, context))
    assert sizes[:6] == [10] * 6 and not len(image.topics)
    assert [each.name for each in results] == [name for name, _ in wanted]
    assert {each.error_code for each in results} == {ErrorCode.NONE}


def test_a_topic_that_gets_a_deleted_name_between_two_pieces_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_PARTITIONS", 1)
    image, context = image_of((1, 2)), context_of()
    first = decide_delete_topics(image, [("t001", bytes(16)), ("t002", bytes(16)), ("t001", bytes(16))], context)
    image = applied(applied(image, first.records), [TopicRecord(name="t001", topic_id=b"n" * 16)])
    assert first.then is not None
    image, results, _ = finished(image, first.then)
    assert [each.error_code for each in results] == [0, 0, ErrorCode.INVALID_REQUEST]
    assert image.topics.by_name("t001") is not None and image.topics.by_name("t002") is None


# --- one topic with thousands of partitions


def huge(name: str = "huge", partitions: int = HUGE, **more: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=2)], **more
    )


def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many new partitions were made since its last zero was put there."""
    counts: list[int] = []
    real = placement.new_partition

    def new_partition(*given: Any) -> Partition | None:
        counts[-1] += 1
        return real(*given)

    monkeypatch.setattr(placement, "new_partition", new_partition)
    return counts


def drawn_to_the_end(image: ClusterImage, decide: Decide, counts: list[int]) -> Decision[Any]:
    """The last piece; those before have no records."""
    counts.append(0)
    decision = decide(image)
    while decision.then is not None:
        assert not decision.records
        counts.append(0)
        decision = decision.then(image)
    return decision


def test_a_huge_topic_is_drawn_in_slices_and_comes_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, image = made(monkeypatch), at_newest(image_of((1, 2)))
    last = drawn_to_the_end(image, lambda image: decide_create_topics(image, huge(), context_of()), counts)
    assert max(counts) <= drawing.SLICE_PARTITIONS and sum(counts) == HUGE
    change, values = prepare(image, last.records, image.offset + 1, 1, 0)
    assert len(values.values) == HUGE + 1 and change.after.offset == image.offset + HUGE + 1
    assert counts[-1] == 0, "all was made before"
    (result,) = last.reply.topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, HUGE, 2)
    read = applied(image, [decode_record(value) for value in values.values])
    assert read.topics == change.after.topics, "what the log says is what was decided"
    topic = change.after.topics.by_name("huge")
    assert topic is not None and [each.index for each in topic.partitions] == list(range(HUGE))


def test_a_huge_topic_has_the_records_of_one_that_is_drawn_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    image = at_newest(image_of((1, 2)))
    last = drawn_to_the_end(image, lambda image: decide_create_topics(image, huge(), context_of()), [])
    assert isinstance(last.records[1], NewPartitions)
    monkeypatch.setattr(drawing, "SLICE_PARTITIONS", HUGE + 1)
    one = decide_create_topics(image, huge(), context_of())
    assert one.then is None and [type(each) for each in one.records] == [TopicRecord] + [PartitionRecord] * HUGE
    assert prepare(image, one.records, 101, 1, 0)[1] == prepare(image, last.records, 101, 1, 0)[1]


def test_a_name_that_another_gets_while_a_topic_is_drawn_is_taken() -> None:
    image, context = image_of((1, 2)), context_of()
    first = decide_create_topics(image, huge(), context)
    other = decide_create_topics(image, huge(partitions=1), context)
    assert first.then is not None and not first.records
    last = first.then(applied(image, other.records))
    assert last.then is None and not last.records
    assert [each.error_code for each in last.reply.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_broker_that_goes_while_a_topic_is_drawn_leads_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, image, context = made(monkeypatch), image_of((1, 2)), context_of()
    counts.append(0)
    first = decide_create_topics(image, huge(), context)
    assert first.then is not None
    image = with_broker(image, 1, fenced=True)
    last = drawn_to_the_end(image, first.then, counts)
    topic = applied(image, last.records).topics.by_name("huge")
    assert topic is not None and len(topic.partitions) == HUGE
    assert not [each for each in topic.partitions if each.leader == 1 or 1 in each.isr]


def test_a_topic_is_drawn_to_its_end_though_brokers_come_and_go_all_the_time() -> None:
    image, context = image_of((1, 2)), context_of()
    decision = decide_create_topics(image, huge(), context)
    for number in range(drawing.BEGUN_MAX):
        if decision.then is None:
            break
        image = with_broker(image, 4, fenced=number % 2 == 0)
        decision = decision.then(image)
    assert decision.then is None and [each.error_code for each in decision.reply.topics] == [0]


def test_a_huge_topic_that_is_only_looked_at_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, request = made(monkeypatch), huge(validate_only=True)
    last = drawn_to_the_end(image_of((1, 2)), lambda i: decide_create_topics(i, request, context_of()), counts)
    assert not last.records and [each.num_partitions for each in last.reply.topics] == [HUGE]
    assert max(counts) <= drawing.SLICE_PARTITIONS


def test_a_huge_topic_is_still_too_large_for_what_a_request_may_write() -> None:
    request = huge(partitions=MAX_RECORDS_PER_REQUEST)
    last = drawn_to_the_end(image_of((1, 2)), lambda i: decide_create_topics(i, request, context_of()), [])
    assert not last.records and [each.error_code for each in last.reply.topics] == [ErrorCode.POLICY_VIOLATION]


def test_a_topic_grows_by_thousands_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, image = made(monkeypatch), at_newest(image_of((1, 2)))
    grows = [CreatePartitionsTopic("t002", PARTITIONS + 1, None), CreatePartitionsTopic("t001", HUGE, None)]
    counts.append(0)
    first = decide_create_partitions(image, grows)
    assert len(first.records) == 1 and first.then is not None
    image = applied(image, first.records)
    last = drawn_to_the_end(image, first.then, counts)
    assert max(counts) <= drawing.SLICE_PARTITIONS + 1 and sum(counts) == HUGE - PARTITIONS + 1
    change, values = prepare(image, last.records, image.offset + 1, 1, 0)
    assert applied(image, [decode_record(value) for value in values.values]).topics == change.after.topics
    sizes = {name: len(change.after.topics.topics_by_name[name].partitions) for name in ("t001", "t002", "t003")}
    assert sizes == {"t001": HUGE, "t002": PARTITIONS + 1, "t003": PARTITIONS}
    assert [(name, error.code) for name, error in last.reply] == [("t002", 0), ("t001", 0)]


def test_a_topic_that_another_one_lets_grow_meanwhile_is_drawn_again() -> None:
    image = image_of((1, 2))
    first = decide_create_partitions(image, [CreatePartitionsTopic("t001", HUGE, None)])
    other = decide_create_partitions(image, [CreatePartitionsTopic("t001", PARTITIONS + 7, None)])
    assert first.then is not None
    image = applied(image, other.records)
    last = drawn_to_the_end(image, first.then, [])
    topic = applied(image, last.records).topics.by_name("t001")
    assert topic is not None and [each.index for each in topic.partitions] == list(range(HUGE))


def test_many_topics_grow_in_pieces() -> None:
    image = image_of((1, 2))
    grows = [CreatePartitionsTopic(topic.name, PARTITIONS + 30, None) for topic in image.topics]
    image, answers, sizes = finished(image, lambda image: decide_create_partitions(image, grows))
    assert max(sizes) < pieces.PIECE_RECORDS + 30 and not [size for size in sizes if size % 30]
    assert {len(topic.partitions) for topic in image.topics} == {PARTITIONS + 30}
    assert [name for name, _ in answers] == [each.name for each in grows]


def test_names_of_a_request_for_topics_are_counted_in_pieces() -> None:
    """Before anything is decided: a name that comes twice is refused both times, whatever lies between."""
    image, context = image_of((1, 2)), context_of()
    many = [CreatableTopic(f"t{i}", -2, -2) for i in range(2 * pieces.PIECE_COUNTED)]
    request = CreateTopicsRequest([*many, many[0]])
    decision = decide_create_topics(image, request, context)
    counting = 0
    while not decision.reply.topics:
        counting += 1
        assert decision.then is not None and not decision.records
        decision = decision.then(image)
    assert counting == 2
    assert decision.reply.topics[0].error_message == "Duplicate topic name."
    assert decision.reply.topics[1].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
