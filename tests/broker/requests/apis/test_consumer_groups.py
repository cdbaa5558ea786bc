"""ConsumerGroupHeartbeat and ConsumerGroupDescribe over sockets: who may what, and what other APIs say of groups."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.raw import Raw, create_topic

from headrace.machine import patterns
from headrace.security.authorizer import UNCACHED, OpenAuthorizer, Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k08_offset_commit as k08
from headrace.wire.messages import k09_offset_fetch as k09
from headrace.wire.messages import k47_offset_delete as k47
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k16_list_groups import ListGroupsRequest
from headrace.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.k42_delete_groups import DeleteGroupsRequest
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.wire.messages.k66_list_transactions import ListTransactionsRequest
from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest as Heartbeat
from headrace.wire.messages.k68_consumer_group_heartbeat import TopicPartitions
from headrace.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

_numbers = itertools.count()
GROUP_CONFIG = 32


class Hides(OpenAuthorizer):
    """Hides one topic from everybody."""

    generation = UNCACHED

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (resource, name) != (ResourceType.TOPIC, self.topic)


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker({"group.consumer.assignment.interval.ms": 0}) as running:
        yield running


@pytest.fixture
def hide(served: TestBroker) -> Iterator[Callable[[str], None]]:
    yield lambda topic: served.call(lambda inside: setattr(inside, "authorizer", Hides(topic)))
    served.call(lambda inside: setattr(inside, "authorizer", OpenAuthorizer()))


@pytest.fixture
def group(raw: Raw) -> str:
    """A group's name that nobody has yet."""
    name = f"group-{next(_numbers)}"
    assert raw.ask(FindCoordinatorRequest(coordinator_keys=[name]), 4).coordinators[0].error_code == 0
    return name


def joins(group: str, *topics: str, member: str = "m", **more: Any) -> Heartbeat:
    names = None if more.get("subscribed_topic_regex") else list(topics)
    return Heartbeat(
        group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=names, topic_partitions=[], **more,
    )  # fmt: skip


def stays(group: str, epoch: int, member: str = "m") -> Heartbeat:
    return Heartbeat(group_id=group, member_id=member, member_epoch=epoch)


def assigned(answer: Any) -> int:
    """How many partitions."""
    assert answer.error_code == 0, answer.error_message
    return sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)


def changed(raw: Raw, group: str, epoch: int) -> Any:
    """The first answer with an assignment, to heartbeats of member m."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        answer = raw.ask(stays(group, epoch), 1)
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer
        epoch = answer.member_epoch
        time.sleep(0.01)
    raise AssertionError("nothing is assigned")


def code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def test_a_members_life(raw: Raw, group: str, topic: Callable[..., str]) -> None:
    name = topic(3)
    first = raw.ask(joins(group, name), 1)
    assert (first.member_id, first.member_epoch, first.heartbeat_interval_ms, assigned(first)) == ("m", 2, 5_000, 3)
    assert raw.ask(stays(group, 2), 1).assignment is None
    (described,) = raw.ask(ConsumerGroupDescribeRequest([group]), 1).groups
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 2, "uniform")
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host, member.member_type) == ("m", "raw", "/127.0.0.1", 1)
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [(name, [0, 1, 2])]
    (listed,) = [each for each in raw.ask(ListGroupsRequest(), 5).groups if each.group_id == group]
    assert (listed.group_type, listed.group_state, listed.protocol_type) == ("consumer", "Stable", "consumer")
    assert code(raw.ask(DescribeGroupsRequest([group]), 6).groups[0]) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(raw.ask(DeleteGroupsRequest([group]), 2).results[0]) is ErrorCode.NON_EMPTY_GROUP
    protocol = JoinGroupRequestProtocol("range", b"")
    classic = JoinGroupRequest(group, 10_000, 10_000, "", None, "connect", [protocol])
    assert code(raw.ask(classic, 5)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    classic.protocol_type = "consumer"
    assert code(raw.ask(classic, 5)) is ErrorCode.MEMBER_ID_REQUIRED
    assert raw.ask(stays(group, -1), 1).member_epoch == -1
    assert raw.ask(ConsumerGroupDescribeRequest([group]), 0).groups[0].group_state == "Empty"
    assert code(raw.ask(DeleteGroupsRequest([group]), 2).results[0]) is ErrorCode.NONE
    assert code(raw.ask(ConsumerGroupDescribeRequest([group]), 0).groups[0]) is ErrorCode.GROUP_ID_NOT_FOUND


def test_who_waits_for_partitions_is_told_to_come_sooner(raw: Raw, group: str, topic: Callable[..., str]) -> None:
    name = topic(2)
    assert raw.ask(joins(group, name), 1).heartbeat_interval_ms == 5_000
    waiting = raw.ask(joins(group, name, member="n"), 1)
    assert (assigned(waiting), waiting.heartbeat_interval_ms) == (0, 1_000)
    kept = raw.ask(stays(group, 2), 1).assignment.topic_partitions
    assert raw.ask(stays(group, waiting.member_epoch, "n"), 1).heartbeat_interval_ms == 1_000
    gives_up = Heartbeat(
        group_id=group, member_id="m", member_epoch=2,
        topic_partitions=[TopicPartitions(each.topic_id, each.partitions) for each in kept],
    )  # fmt: skip
    assert raw.ask(gives_up, 1).heartbeat_interval_ms == 5_000
    got = raw.ask(stays(group, waiting.member_epoch, "n"), 1)
    assert (assigned(got), got.heartbeat_interval_ms) == (1, 5_000)


def test_who_waits_for_a_target_is_told_to_come_sooner(raw: Raw, group: str, topic: Callable[..., str]) -> None:
    config = AlterableConfig("consumer.assignment.interval.ms", 0, "15000")
    altered = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_CONFIG, group, [config])])
    assert code(raw.ask(altered, 1).responses[0]) is ErrorCode.NONE
    name = topic(2)
    assert raw.ask(joins(group, name), 1).heartbeat_interval_ms == 5_000
    assert raw.ask(joins(group, name, member="n"), 1).heartbeat_interval_ms == 1_000
    assert raw.ask(stays(group, 2), 1).heartbeat_interval_ms == 1_000


def test_version_0_gives_out_ids(raw: Raw, group: str, topic: Callable[..., str]) -> None:
    answer = raw.ask(joins(group, topic(), member=""), 0)
    assert len(answer.member_id) >= 22
    assert code(raw.ask(joins(group, topic(), member=""), 1)) is ErrorCode.INVALID_REQUEST


def test_what_makes_no_sense_is_refused(raw: Raw, group: str) -> None:
    for request in (joins("", "t"), stays(group, -3), Heartbeat(group_id=group, member_id="m", member_epoch=0)):
        answer = raw.ask(request, 1)
        assert code(answer) is ErrorCode.INVALID_REQUEST and answer.error_message
    assert code(raw.ask(joins(group, "t", server_assignor="none"), 1)) is ErrorCode.UNSUPPORTED_ASSIGNOR
    pattern = joins(group, subscribed_topic_regex="(?=a)")
    assert code(raw.ask(pattern, 1)) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert code(raw.ask(stays(group, 1), 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(raw.ask(ConsumerGroupDescribeRequest([""]), 1).groups[0]) is ErrorCode.INVALID_GROUP_ID


def test_topics_that_a_member_may_not_see(
    raw: Raw, group: str, topic: Callable[..., str], hide: Callable[[str], None]
) -> None:
    seen, hidden = topic(2), topic(2)
    assert assigned(raw.ask(joins(group, seen, hidden), 1)) == 4
    hide(hidden)
    (described,) = raw.ask(ConsumerGroupDescribeRequest([group], True), 1).groups
    assert (code(described), described.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert code(raw.ask(joins(group, seen, hidden, member="n"), 1)) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    other = group + "-other"
    pattern = f"{seen}|{hidden}"
    first = raw.ask(joins(other, subscribed_topic_regex=pattern), 1)
    assert assigned(first) == 0, "it is looked up afterwards"
    assert assigned(changed(raw, other, first.member_epoch)) == 2


def test_patterns_are_compiled_and_matched_on_workers(
    raw: Raw, served: TestBroker, group: str, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    compiled = patterns._compiled

    def watched(pattern: str) -> Any:
        threads.add(threading.current_thread().name)
        return compiled(pattern)

    monkeypatch.setattr(patterns, "_compiled", watched)
    loop = served.call(lambda _: threading.current_thread().name)
    name = topic(2)
    first = raw.ask(joins(group, subscribed_topic_regex=f"({name})"), 1)
    assert assigned(changed(raw, group, first.member_epoch)) == 2
    assert code(raw.ask(joins(group, member="n", subscribed_topic_regex="(?=a)"), 1)) is (
        ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    listed = raw.ask(ListTransactionsRequest(transactional_id_pattern="a.*b"), 2)
    assert code(listed) is ErrorCode.NONE
    assert threads and loop not in threads


def test_a_pattern_that_is_too_long_is_refused(raw: Raw, group: str) -> None:
    answer = raw.ask(joins(group, subscribed_topic_regex="[" + "a" * patterns.PATTERN_BYTES_MAX + "]"), 1)
    assert code(answer) is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_topics_that_grow_are_shared_out_anew(raw: Raw, group: str, topic: Callable[..., str]) -> None:
    name = topic(1)
    assert assigned(raw.ask(joins(group, name, "later-" + name), 1)) == 1
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, 3, None)], timeout_ms=10_000)
    assert raw.ask(grown, 3).results[0].error_code == 0
    answer = raw.ask(stays(group, 2), 1)
    assert (answer.member_epoch, assigned(answer)) == (3, 3)
    create_topic(raw.socket.getpeername()[1], "later-" + name, 2)
    answer = raw.ask(stays(group, 3), 1)
    assert (answer.member_epoch, assigned(answer)) == (4, 5)


def test_offsets_are_a_members_of_its_epoch(raw: Raw, group: str, topic: Callable[..., str]) -> None:
    name = topic(1)
    raw.ask(joins(group, name), 1)

    def commit(epoch: int, version: int = 9, member: str = "m") -> ErrorCode:
        partition = k08.OffsetCommitRequestPartition(0, 5)
        asked = k08.OffsetCommitRequestTopic(name=name, partitions=[partition])
        answer = raw.ask(k08.OffsetCommitRequest(group, epoch, member, topics=[asked]), version)
        return code(answer.topics[0].partitions[0])

    def fetch(epoch: int, member: str | None = "m") -> Any:
        topics = [k09.OffsetFetchRequestTopics(name=name, partition_indexes=[0])]
        asked = k09.OffsetFetchRequestGroup(group, member, epoch, topics)
        return raw.ask(k09.OffsetFetchRequest(groups=[asked]), 9).groups[0]

    assert commit(2) is ErrorCode.NONE
    assert commit(3) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(2, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(2, member="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(2).topics[0].partitions[0].committed_offset == 5
    assert fetch(-1, None).topics[0].partitions[0].committed_offset == 5
    assert code(fetch(3)) is ErrorCode.STALE_MEMBER_EPOCH
    delete = k47.OffsetDeleteRequest(group, [k47.OffsetDeleteRequestTopic(name, [k47.OffsetDeleteRequestPartition(0)])])
    refused = raw.ask(delete, 0).topics[0].partitions[0]
    assert code(refused) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    raw.ask(stays(group, -1), 1)
    assert code(raw.ask(delete, 0).topics[0].partitions[0]) is ErrorCode.NONE


def test_a_group_obeys_its_own_settings_at_once(raw: Raw, group: str, topic: Callable[..., str]) -> None:
    raw.ask(joins(group, topic()), 1)

    def alter(value: str) -> ErrorCode:
        config = AlterableConfig("consumer.heartbeat.interval.ms", 0, value)
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_CONFIG, group, [config])])
        return code(raw.ask(request, 1).responses[0])

    assert alter("1") is ErrorCode.INVALID_CONFIG
    assert alter("7000") is ErrorCode.NONE
    assert raw.ask(stays(group, 2), 1).heartbeat_interval_ms == 7_000


def test_both_take_turns_over_one_partition(raw: Raw, group: str, topic: Callable[..., str]) -> None:
    """The second gets nothing before the first has given something up."""
    name = topic(2)
    first = raw.ask(joins(group, name, member="a"), 1)
    (had,) = first.assignment.topic_partitions
    assert assigned(raw.ask(joins(group, name, member="b"), 1)) == 0
    asked = raw.ask(stays(group, 2, "a"), 1)
    assert assigned(asked) == 1
    keeps = asked.assignment.topic_partitions[0].partitions
    beat = stays(group, 3, "b")
    assert raw.ask(beat, 1).assignment is None
    done = stays(group, 2, "a")
    done.topic_partitions = [TopicPartitions(had.topic_id, keeps)]
    assert raw.ask(done, 1).member_epoch == 3
    assert raw.ask(beat, 1).assignment.topic_partitions[0].partitions == sorted({0, 1} - {*keeps})


@pytest.mark.parametrize("by", ["feature", "setting"])
def test_where_it_is_not_allowed(by: str) -> None:
    settings = {"group.coordinator.rebalance.protocols": "classic"} if by == "setting" else {}
    with running_broker(settings) as broker, Raw(broker.port) as raw:
        raw.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        if by == "feature":
            disabled = FeatureUpdateKey("group.version", 0, upgrade_type=2)
            assert raw.ask(UpdateFeaturesRequest(feature_updates=[disabled]), 2).error_code == 0
        assert code(raw.ask(joins("g", "t"), 1)) is ErrorCode.UNSUPPORTED_VERSION
        (described,) = raw.ask(ConsumerGroupDescribeRequest(["g"]), 1).groups
        assert code(described) is ErrorCode.UNSUPPORTED_VERSION
