"""A member whose coordinator refuses, moves, goes away or says that the group goes on: it joins again, or says why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from client.fake_broker import HANG_UP, FakeBroker
from peers.waiting import until

from headrace.client.assignment import encode_assignment
from headrace.client.cluster import Client
from headrace.client.errors import BrokerError
from headrace.client.membership import Member
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from headrace.wire.messages.k12_heartbeat import HeartbeatResponse
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

PATIENCE_S = 60.0


class Coordinator:
    """What a broker says of one group: a list of codes is used up, then everything is well."""

    def __init__(self) -> None:
        self.joins: list[Any] = []
        self.syncs: list[int] = []
        self.heartbeats: list[Any] = []
        self.said_ids: list[str] = []
        self.left: list[LeaveGroupRequest] = []
        self.found = 0
        self.generation = 0
        self.broker = FakeBroker(
            answers={
                ApiKey.FIND_COORDINATOR: self._find,
                ApiKey.JOIN_GROUP: self._join,
                ApiKey.SYNC_GROUP: self._sync,
                ApiKey.HEARTBEAT: self._heartbeat,
                ApiKey.LEAVE_GROUP: self._leave,
            }
        )
        self.broker.versions_max[ApiKey.FIND_COORDINATOR] = 3

    def _find(self, _request: FindCoordinatorRequest, _version: int) -> FindCoordinatorResponse:
        self.found += 1
        return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=self.broker.port)

    def _join(self, request: JoinGroupRequest, _version: int) -> Any:
        self.said_ids.append(request.member_id)
        said = self.joins.pop(0) if self.joins else ErrorCode.NONE
        if said is HANG_UP or said is None:
            return said
        self.generation += 1
        member_id = request.member_id or f"member-{self.generation}"
        return JoinGroupResponse(
            error_code=said, generation_id=self.generation, protocol_type="consumer", protocol_name="range",
            leader="somebody", member_id=member_id,
        )  # fmt: skip

    def _sync(self, _request: SyncGroupRequest, _version: int) -> SyncGroupResponse:
        code = self.syncs.pop(0) if self.syncs else ErrorCode.NONE
        return SyncGroupResponse(error_code=code, assignment=encode_assignment([("events", 0)]))

    def _heartbeat(self, _request: Any, _version: int) -> Any:
        said = self.heartbeats.pop(0) if self.heartbeats else ErrorCode.NONE
        return said if said is HANG_UP or said is None else HeartbeatResponse(error_code=said)

    def _leave(self, request: LeaveGroupRequest, _version: int) -> LeaveGroupResponse:
        self.left.append(request)
        return LeaveGroupResponse()


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    coordinator = Coordinator()
    with coordinator.broker:
        yield coordinator


@pytest.fixture
def member(coordinator: Coordinator) -> Iterator[Member]:
    with Client(coordinator.broker.bootstrap, timeout_s=5.0) as client:
        yield Member(client, "g", ["events"], rebalance_timeout_ms=5000, heartbeat_interval_s=0.01)


@pytest.mark.parametrize(
    ("code", "keeps_its_id"),
    [
        (ErrorCode.MEMBER_ID_REQUIRED, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.NOT_COORDINATOR, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
    ],
)
def test_a_join_that_is_refused_for_now_is_tried_again(
    coordinator: Coordinator, member: Member, code: ErrorCode, keeps_its_id: bool
) -> None:
    coordinator.joins = [code]
    assert member.poll()
    assert member.assigned == [("events", 0)]
    assert coordinator.said_ids == ["", "member-1" if keeps_its_id else ""]
    assert coordinator.found == (
        2 if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) else 1
    )


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_sync_that_is_refused_begins_with_the_join(coordinator: Coordinator, member: Member, code: ErrorCode) -> None:
    coordinator.syncs = [code]
    assert member.poll()
    assert coordinator.said_ids == ["", "" if code == ErrorCode.UNKNOWN_MEMBER_ID else "member-1"]
    assert member.generation_id == 2


def test_what_the_group_refuses_for_good_is_raised(coordinator: Coordinator, member: Member) -> None:
    coordinator.joins = [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    with pytest.raises(BrokerError) as raised:
        member.poll()
    assert raised.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not member.joined


def test_a_coordinator_that_hangs_up_is_looked_for_again(coordinator: Coordinator, member: Member) -> None:
    coordinator.joins = [HANG_UP]
    assert member.poll()
    assert coordinator.found == 2


@pytest.mark.parametrize(
    ("code", "told", "same_id"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, 1, True),
        (ErrorCode.ILLEGAL_GENERATION, 0, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, 0, False),
    ],
)
def test_a_heartbeat_that_says_that_the_group_goes_on(
    coordinator: Coordinator, member: Member, code: ErrorCode, told: int, same_id: bool
) -> None:
    """What was read may be committed before the member joins again only while the group waits for it."""
    calls: list[bool] = []
    member.on_rebalance = lambda: calls.append(member.joined)
    assert member.poll()
    coordinator.heartbeats = [code]
    until(member.poll)
    assert calls == [True] * told
    assert coordinator.said_ids == ["", "member-1" if same_id else ""]
    assert member.joined


@pytest.mark.parametrize("said", [HANG_UP, ErrorCode.NOT_COORDINATOR])
def test_a_heartbeat_whose_coordinator_is_gone_finds_the_new_one(
    coordinator: Coordinator, member: Member, said: Any
) -> None:
    assert member.poll()
    coordinator.heartbeats = [said]

    def asked_again() -> bool:
        assert not member.poll()
        return coordinator.found == 2

    until(asked_again)
    assert member.joined


def test_a_heartbeat_that_nobody_answers_ends_with_the_session(coordinator: Coordinator, member: Member) -> None:
    member.session_timeout_ms = 50
    assert member.poll()
    coordinator.heartbeats = [None]
    until(member.poll)
    assert set(coordinator.said_ids[1:]) == {"member-1"}
    assert member.joined


def test_a_heartbeat_that_is_refused_for_good_is_raised(coordinator: Coordinator, member: Member) -> None:
    assert member.poll()
    coordinator.heartbeats = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(BrokerError):
        until(member.poll)


@pytest.mark.parametrize(
    ("code", "lost", "same_id"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, True, False),
        (ErrorCode.ILLEGAL_GENERATION, True, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, True, True),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, False, True),
    ],
)
def test_a_commit_that_the_group_refuses(member: Member, code: ErrorCode, lost: bool, same_id: bool) -> None:
    assert member.poll()
    assert member.lost_membership(BrokerError(code, "group g")) is lost
    assert member.joined is not lost
    assert bool(member.member_id) is same_id


def test_a_leave_does_not_wait_behind_a_join(coordinator: Coordinator, member: Member) -> None:
    """The coordinator holds the join back, for others: the leave takes a connection of its own."""
    assert member.poll()
    coordinator.joins = [None]
    member.joined = False
    member.client.router.timeout_s = 0.2
    member.rebalance_timeout_ms = 0
    with pytest.raises(Exception, match="."):
        member.poll()
    began = time.monotonic()
    member.leave()
    assert time.monotonic() - began < PATIENCE_S
    assert [each.members[0].member_id for each in coordinator.left] == ["member-1"]


def test_a_leave_in_the_first_version_names_the_member_alone(coordinator: Coordinator, member: Member) -> None:
    coordinator.broker.versions_max[ApiKey.LEAVE_GROUP] = 2
    assert member.poll()
    member.leave()
    assert [each.member_id for each in coordinator.left] == ["member-1"]


@pytest.mark.slow
def test_a_leave_that_nobody_hears_is_no_error(coordinator: Coordinator, member: Member) -> None:
    assert member.poll()
    coordinator.broker.answers[ApiKey.LEAVE_GROUP] = lambda _request, _version: HANG_UP
    member.client.router.timeout_s = 0.2
    member.leave()
    assert (member.joined, member.member_id) == (False, "")
