"""Group membership and offsets, as Kafka answers about them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k16_list_groups import ListGroupsRequest
from headrace.wire.messages.k42_delete_groups import DeleteGroupsRequest
from headrace.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

from .conftest import PLAIN, Both, Side

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

COORDINATOR_PATIENCE_S = 30.0
NOT_COORDINATOR_CODES = (14, 15, 16)


def settle(side: Side, group: str) -> None:
    """Until the group's coordinator is there: the first question makes its topic."""
    deadline = time.monotonic() + COORDINATOR_PATIENCE_S
    while time.monotonic() < deadline:
        found = side.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators[0]
        if found.error_code == 0 and fetch(side, 7, group, [0]).error_code not in NOT_COORDINATOR_CODES:
            return
        time.sleep(0.1)
    raise AssertionError("there is no coordinator")


def fetch(side: Side, version: int, group: str, partitions: list[int] | None) -> Any:
    if version >= 8:
        topic = OffsetFetchRequestTopics(name=PLAIN, partition_indexes=partitions or [])
        if version >= 10:
            topic = OffsetFetchRequestTopics(topic_id=side.topic_ids[PLAIN], partition_indexes=partitions or [])
        wanted = OffsetFetchRequestGroup(group_id=group, topics=None if partitions is None else [topic])
        if version >= 9:
            wanted.member_epoch = -1
        return side.ask(OffsetFetchRequest(groups=[wanted]), version)
    topics = None if partitions is None else [OffsetFetchRequestTopic(name=PLAIN, partition_indexes=partitions)]
    return side.ask(OffsetFetchRequest(group_id=group, topics=topics), version)


def commit(side: Side, version: int, group: str, generation: int = -1, member: str = "", note: str = "note") -> Any:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata=note)
    topic = OffsetCommitRequestTopic(name=PLAIN, partitions=[part])
    if version >= 10:
        topic = OffsetCommitRequestTopic(topic_id=side.topic_ids[PLAIN], partitions=[part])
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
    )
    return side.ask(request, version)


def test_offsets(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        settle(side, name)
        yield fetch(side, min(version, 9), name, [0])
        yield commit(side, version, name)
        yield commit(side, version, name, generation=5, member="nobody")
        yield commit(side, version, name, note="x" * 5000)
        yield commit(side, version, "")

    both.compare(8, script)

    def fetching(side: Side, version: int, name: str) -> Iterator[Any]:
        settle(side, name)
        yield fetch(side, version, name, [0, 1, 9])
        commit(side, 6, name)
        yield fetch(side, version, name, [0, 1, 9])
        if version >= 2:
            yield fetch(side, version, name, None)

    both.compare(9, fetching)


def join(side: Side, version: int, group: str, member: str = "", **more: Any) -> Any:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m")]
    wanted: dict[str, Any] = {"session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": protocols, **more}
    request = JoinGroupRequest(group_id=group, member_id=member, **wanted)
    if version >= 1:
        request.rebalance_timeout_ms = 10_000
    return side.ask(request, version)


def test_join(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        settle(side, name)
        first = join(side, version, name)
        yield first
        if version >= 4:
            first = join(side, version, name, first.member_id)
            yield first
        yield join(side, version, name, "nobody")
        yield join(side, version, name, session_timeout_ms=1)
        yield join(side, version, "")
        yield join(side, version, name, first.member_id, protocol_type="other")
        yield join(side, version, name, first.member_id, protocols=[])

    both.compare(11, script, ignore=frozenset({"members"}))


def member_of(side: Side, group: str) -> tuple[str, int]:
    """A member alone in a stable group, and its generation."""
    settle(side, group)
    member = join(side, 5, group).member_id
    joined = join(side, 5, group, member)
    given = [SyncGroupRequestAssignment(member_id=member, assignment=b"a")]
    synced = side.ask(
        SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=member, assignments=given), 3
    )
    assert synced.error_code == 0
    return member, joined.generation_id


def test_sync(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        member, generation = member_of(side, name)
        for asked, number in ((member, generation), (member, generation + 1), ("nobody", generation)):
            request = SyncGroupRequest(group_id=name, generation_id=number, member_id=asked)
            if version >= 5:
                request.protocol_type, request.protocol_name = "consumer", "range"
            yield side.ask(request, version)
        settle(side, "says-none")
        yield side.ask(SyncGroupRequest(group_id="says-none", generation_id=1, member_id="x"), 4)

    both.compare(14, script)


def test_heartbeat(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        member, generation = member_of(side, name)
        for asked, number in ((member, generation), (member, generation + 1), ("nobody", generation)):
            yield side.ask(HeartbeatRequest(group_id=name, generation_id=number, member_id=asked), version)
        settle(side, name + "none")  # a coordinator that still loads says that all is well
        yield side.ask(HeartbeatRequest(group_id=name + "none", generation_id=1, member_id="x"), version)

    both.compare(12, script)


def test_leave(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        member, _ = member_of(side, name)
        for asked in ("nobody", member, member):
            if version >= 3:
                request = LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=asked)])
            else:
                request = LeaveGroupRequest(group_id=name, member_id=asked)
            yield side.ask(request, version)

    both.compare(13, script)


def test_describe_list_and_delete(both: Both) -> None:
    def describing(side: Side, version: int, name: str) -> Iterator[Any]:
        member_of(side, name)
        yield side.ask(DescribeGroupsRequest(groups=[name]), version)
        settle(side, name + "none")
        answer = side.ask(DescribeGroupsRequest(groups=[name + "none", ""]), version)
        yield sorted(answer.groups, key=lambda group: group.group_id)

    both.compare(15, describing, ignore=frozenset({"client_host"}))

    def listing(side: Side, version: int, name: str) -> Iterator[Any]:
        member_of(side, name)
        answer = side.ask(ListGroupsRequest(), version)
        yield [answer.error_code, [each for each in answer.groups if each.group_id == name]]
        if version >= 4:
            filtered = side.ask(ListGroupsRequest(states_filter=["Stable"]), version)
            yield [each for each in filtered.groups if each.group_id == name]
            yield side.ask(ListGroupsRequest(states_filter=["Dead"]), version)

    both.compare(16, listing)

    def deleting(side: Side, version: int, name: str) -> Iterator[Any]:
        member, _ = member_of(side, name)
        yield side.ask(DeleteGroupsRequest(groups_names=[name]), version)
        side.ask(LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=member)]), 3)
        settle(side, name + "none")
        answer = side.ask(DeleteGroupsRequest(groups_names=[name, name + "none", ""]), version)
        yield sorted(answer.results, key=lambda result: result.group_id)  # Kafka answers coordinator by coordinator

    both.compare(42, deleting)


def test_offset_delete(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        settle(side, name)
        wanted = [OffsetDeleteRequestTopic(name=PLAIN, partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
        yield side.ask(OffsetDeleteRequest(group_id=name, topics=wanted), version)
        commit(side, 6, name)
        yield side.ask(OffsetDeleteRequest(group_id=name, topics=wanted), version)

    both.compare(47, script)
