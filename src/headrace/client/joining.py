"""Being a member of a classic consumer group without I/O: join, assignment, heartbeats, leaving (KIP-62, KIP-345,
KIP-394).

Nothing runs in the background: the owner polls at least every few seconds. A poll sends a heartbeat when it is due,
takes in its answer without waiting, and joins again when the coordinator says that the group rebalances. Methods named
`..._steps` are conversations (see `conversation`): `Member` and `AsyncMember` run them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypedDict

from headrace.client.assignment import (
    PROTOCOL_TYPE,
    RANGE,
    Subscriber,
    assign_range,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headrace.client.conversation import Await, PendingCall, Steps
from headrace.client.errors import BrokerError, ClientError, ConnectionLostError, UnknownTopicError, UnreachableError
from headrace.client.groups import Membership
from headrace.client.metadata import TopicPartition
from headrace.client.retry import Retry
from headrace.client.routing import Router
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headrace.wire.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_S = 3.0
LEAVE_TIMEOUT_S = 5.0
REBALANCE_TIMEOUT_MS = 60_000

COORDINATOR_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class MemberOptions(TypedDict, total=False):
    """The options of a member."""

    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_s: float
    on_rebalance: Callable[[], None] | None


class MemberMachine:
    """One member of a group that reads topics; what waits is a conversation."""

    def __init__(self, router: Router, group: str, topics: Iterable[str], options: MemberOptions) -> None:
        """Does not join yet: a poll does.

        `on_rebalance` is called before the member joins again, while it may still commit what it has read.
        """
        self.router = router
        self.group = group
        self.topics = sorted(set(topics))
        self.instance_id = options.get("instance_id")
        self.session_timeout_ms = options.get("session_timeout_ms", SESSION_TIMEOUT_MS)
        self.rebalance_timeout_ms = options.get("rebalance_timeout_ms", REBALANCE_TIMEOUT_MS)
        self.heartbeat_interval_s = options.get("heartbeat_interval_s", HEARTBEAT_INTERVAL_S)
        self.on_rebalance = options.get("on_rebalance")
        self._clock = router.clock
        self.member_id = ""
        self.generation_id = -1
        self.assigned: list[TopicPartition] = []
        self.joined = False
        self._heartbeat: PendingCall[HeartbeatResponse] | None = None
        self._heartbeat_at = 0.0
        self._heard_at = 0.0

    @property
    def membership(self) -> Membership:
        """What offset commits of this member carry."""
        return Membership(self.member_id, self.generation_id, self.instance_id)

    def poll_steps(self) -> Steps[bool]:
        """Keeps the membership alive. Returns True when the assignment is new: read `assigned` and start from there.

        Raises `BrokerError` for what the group refuses for good (FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL...).
        """
        if not self.joined:
            yield from self._join()
            return True
        call = self._heartbeat
        now = self._clock.monotonic()
        if call is not None and not call.done:
            yield Await((call,), now)
        if call is not None and call.done:
            self._heartbeat = None
            self._take_heartbeat(call, now)
        elif call is None and now >= self._heartbeat_at:
            yield from self._send_heartbeat(now)
        if now - self._heard_at > self.session_timeout_ms / 1000:
            self.joined = False
        if not self.joined:
            yield from self._join()
            return True
        return False

    def lost_membership(self, error: ClientError) -> bool:
        """Whether an error (of a commit) means that the group went on without us: the next `poll` joins again."""
        if not isinstance(error, BrokerError):
            return False
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.joined = False
            return True
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.joined = False
            return True
        return False

    def leave_steps(self) -> Steps[None]:
        """Leaves the group, so that the others take over at once. A static member stays until its session ends.

        Raises nothing: a coordinator that cannot be reached expires the member by itself.
        """
        if not self.member_id or self.instance_id is not None:
            return
        request = LeaveGroupRequest(group_id=self.group)
        try:
            connection = yield from self.router.coordinator_connection(self.group)
            if connection.channel.outstanding:
                # Brokers answer in order: behind a join that waits for others, a leave would wait as well.
                connection.close()
                connection = yield from self.router.coordinator_connection(self.group)
            if connection.channel.version_for(LeaveGroupRequest.API_KEY) >= 3:
                request.members = [MemberIdentity(member_id=self.member_id, reason="the consumer is done")]
            else:
                request.member_id = self.member_id
            yield from self.router.at_coordinator(
                self.group, request, LeaveGroupResponse, lambda r: r.error_code, timeout_s=LEAVE_TIMEOUT_S
            )
        except ClientError:
            # The coordinator drops the member when its session ends.
            return
        finally:
            self.joined = False
            self.member_id = ""

    # -- heartbeats

    def _send_heartbeat(self, now: float) -> Steps[None]:
        self._heartbeat_at = now + self.heartbeat_interval_s
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        try:
            connection = yield from self.router.coordinator_connection(self.group)
            self._heartbeat = connection.send(request, HeartbeatResponse)
        except (UnreachableError, ConnectionLostError):
            self.router.forget_coordinator(self.group)

    def _take_heartbeat(self, call: PendingCall[HeartbeatResponse], now: float) -> None:
        try:
            code = call.result().error_code
        except ConnectionLostError:
            self.router.forget_coordinator(self.group)
            return
        if code == ErrorCode.NONE:
            self._heard_at = now
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            self.joined = False
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.on_rebalance is not None:
                self.on_rebalance()
            self.joined = False
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self.joined = False
        elif code in COORDINATOR_MOVED:
            self.router.forget_coordinator(self.group)
        else:
            raise BrokerError(code, f"group {self.group}")

    # -- joining

    def _join(self) -> Steps[None]:
        """JoinGroup and SyncGroup until both succeed for one generation."""
        self._heartbeat = None
        retry = self.router.retry(self.router.timeout_s + self.rebalance_timeout_ms / 1000)
        while True:
            try:
                joined = yield from self._join_once(retry)
                if joined is not None and (yield from self._sync(joined, retry)):
                    self.joined = True
                    self._heard_at = self._clock.monotonic()
                    self._heartbeat_at = self._heard_at + self.heartbeat_interval_s
                    return
            except (UnreachableError, ConnectionLostError) as error:
                self.router.forget_coordinator(self.group)
                yield from retry.pause(error)

    def _join_once(self, retry: Retry) -> Steps[JoinGroupResponse | None]:
        connection = yield from self.router.coordinator_connection(self.group)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=encode_subscription(self.topics))],
        )
        response = yield from self.router.wait(connection.send(request, JoinGroupResponse), retry.deadline)
        code = response.error_code
        if code == ErrorCode.NONE:
            self.member_id = response.member_id
            self.generation_id = response.generation_id
            return response
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return None
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        yield from self._pause_or_raise(code, retry)
        return None

    def _sync(self, joined: JoinGroupResponse, retry: Retry) -> Steps[bool]:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=joined.protocol_type or PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
        )
        if joined.leader == self.member_id and not joined.skip_assignment:
            request.assignments = yield from self._assign(joined)
        connection = yield from self.router.coordinator_connection(self.group)
        response = yield from self.router.wait(connection.send(request, SyncGroupResponse), retry.deadline)
        if response.error_code == ErrorCode.NONE:
            self.assigned = sorted(decode_assignment(response.assignment))
            return True
        if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        yield from self._pause_or_raise(response.error_code, retry)
        return False

    def _assign(self, joined: JoinGroupResponse) -> Steps[list[SyncGroupRequestAssignment]]:
        subscribers = [
            Subscriber(m.member_id, m.group_instance_id, decode_subscription(m.metadata)) for m in joined.members
        ]
        counts: dict[str, int] = {}
        for topic in sorted({topic for subscriber in subscribers for topic in subscriber.topics}):
            try:
                counts[topic] = len((yield from self.router.topics([topic]))[0].partitions)
            except UnknownTopicError:
                continue
        assigned = assign_range(subscribers, counts)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in assigned.items()
        ]

    def _pause_or_raise(self, code: int, retry: Retry) -> Steps[None]:
        """Pauses after an error that another round may cure; raises any other."""
        error = BrokerError(code, f"group {self.group}")
        if code in COORDINATOR_MOVED:
            self.router.forget_coordinator(self.group)
        elif code not in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ):
            raise error
        yield from retry.pause(error)
