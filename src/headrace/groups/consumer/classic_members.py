"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup as the
newer protocol has them.

JoinGroup does what a heartbeat of the newer protocol does: it says what the member subscribes to and has, and leads it
on. Its generation is the member's epoch, and nobody leads. SyncGroup tells the assignment. Heartbeat tells a member to
join again where there is something new for it (KIP-848, "Supporting Online Consumer Group Upgrade").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.groups.classic.group import CONSUMER_PROTOCOL
from headrace.groups.classic.rebalance import join_error
from headrace.groups.consumer import conversion, fencing
from headrace.groups.consumer.group import NOTHING, ConsumerGroup
from headrace.groups.consumer.member_timers import await_join, await_sync, sync_key, touch
from headrace.groups.consumer.records import Current, Member, MemberState
from headrace.groups.consumer.step import Step, is_due
from headrace.groups.modern.topics import NO_TOPICS
from headrace.groups.subscription import read_subscription, write_assignment
from headrace.machine.outcome import Outcome
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k11_join_group import JoinGroupResponse
from headrace.wire.messages.k13_leave_group import LeaveGroupResponse, MemberResponse
from headrace.wire.messages.k14_sync_group import SyncGroupResponse
from headrace.wire.messages.newer_group_records import ClassicMemberMetadata, ClassicProtocol
from headrace.wire.primitives import DecodeError

if TYPE_CHECKING:
    from headrace.groups.group_client import GroupClient
    from headrace.groups.shard_state import GroupShardState
    from headrace.wire.messages.consumer_protocol import ConsumerProtocolSubscription
    from headrace.wire.messages.k11_join_group import JoinGroupRequest
    from headrace.wire.messages.k13_leave_group import MemberIdentity
    from headrace.wire.messages.k14_sync_group import SyncGroupRequest

_MEMBER_ID_REQUIRED_FROM: Final = 4
"""The JoinGroup version from which a member must come back with the id that it was given (KIP-394)."""


# --- JoinGroup -------------------------------------------------------------------------------------------------------


def join(
    shard: GroupShardState, group: ConsumerGroup, request: JoinGroupRequest, client: GroupClient, now_ms: int
) -> Outcome:
    """Decides a JoinGroup into a consumer group that has members. It is answered when what it changes is committed."""
    settings = shard.settings_of(group.id)
    names = [protocol.name for protocol in request.protocols]
    if not settings.upgrades and not settings.downgrades:
        return _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if len(group.members.latest) >= settings.max_size and request.member_id not in group.members.latest:
        return _refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if request.protocol_type != CONSUMER_PROTOCOL or not group.supports_classic(names):
        return _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.member_id and request.group_instance_id is None and client.api_version >= _MEMBER_ID_REQUIRED_FROM:
        return Outcome(join_error(shard.new_id(), ErrorCode.MEMBER_ID_REQUIRED))
    try:
        subscription = read_subscription(request.protocols[0].metadata)
    except DecodeError:
        return _refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    return _Join(shard, group, request, client, subscription, now_ms).decide()


def _refuse(error: ErrorCode) -> Outcome:
    return Outcome(join_error("", error))


class _Join(Step):
    """A JoinGroup of a member that is, or wants to be, in a consumer group."""

    def __init__(
        self,
        shard: GroupShardState,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        client: GroupClient,
        subscription: ConsumerProtocolSubscription,
        now_ms: int,
    ) -> None:
        super().__init__(shard, group, request.member_id or shard.new_id(), now_ms, Outcome())
        self.request = request
        self.client = client
        self.subscription = subscription
        owned: dict[bytes, list[int]] = {}
        for each in subscription.owned_partitions:
            topic = shard.topics.by_name.get(each.topic)
            if topic is not None:
                owned.setdefault(topic.id, []).extend(each.partitions)
        self.owned = owned

    def decide(self) -> Outcome:
        """Finds the member, then takes in what it says, then leads it on; or makes the group a classic one again."""
        holder, error = self._find()
        if error is not ErrorCode.NONE:
            return _refuse(error)
        downgrades = holder is not None and conversion.can_downgrade_by_replacing(self.shard, self.group, holder)
        said = self._as_said()
        self.take_in(said)
        changed = said.topics != self.member.topics
        changed = self.change_regex(said) or changed
        epoch = self.bump(said, changed, changed)
        is_stale = self.group.target_epoch.epoch < epoch
        reached: Current | None = self.current
        if not downgrades:
            target_epoch, target = self.target(epoch, said)
            reached = self.advance(said, target_epoch, target, changed)
        elif not is_stale:
            reached = self.advance(said, self.group.target_epoch.epoch, self.target_now, changed)
        if reached is None:
            return _refuse(ErrorCode.FENCED_MEMBER_EPOCH)
        self.replaced()
        if downgrades:
            assert holder is not None
            remains = conversion.Remains([holder], (self.member_id, said, reached), is_stale)
            conversion.downgrade(self.shard, self.group, remains, self.now_ms, self.out)
        else:
            touch(self.shard, self.group.id, self.member_id, said, self.now_ms)
            await_sync(self.shard, self.group.id, self.member_id, said, self.now_ms)
        self.out.reply = JoinGroupResponse(
            generation_id=reached.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=self.request.protocols[0].name,
            member_id=self.member_id,
        )
        return self.out

    def _find(self) -> tuple[str | None, ErrorCode]:
        """Whoever goes by its instance id, if it has one and somebody does; and why it may not join."""
        group, instance_id = self.group, self.request.group_instance_id
        if instance_id is None:
            self.member = group.members.latest.get(self.member_id, self.member)
            return None, ErrorCode.NONE
        holder = group.instances.latest.get(instance_id)
        if self.request.member_id:
            if holder != self.member_id:
                return None, ErrorCode.UNKNOWN_MEMBER_ID if holder is None else ErrorCode.FENCED_INSTANCE_ID
            self.member = group.members.latest[holder]
        elif holder is not None:
            self.take_the_place_of(holder)
        return holder, ErrorCode.NONE

    def _as_said(self) -> Member:
        """The member, with what this JoinGroup changes."""
        request, before = self.request, self.member
        return Member(
            instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
            rack_id=self.subscription.rack_id or before.rack_id,
            client_id=self.client.client_id,
            client_host=self.client.client_host,
            topics=frozenset(self.subscription.topics),
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
            ),
            assignor=before.assignor,
            classic=ClassicMemberMetadata(
                request.session_timeout_ms, [ClassicProtocol(each.name, each.metadata) for each in request.protocols]
            ),
        )


# --- SyncGroup, Heartbeat --------------------------------------------------------------------------------------------


def sync(shard: GroupShardState, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> Outcome:
    """Decides a SyncGroup: the member's assignment, or why it has to join again."""
    error = _check(group, request.member_id, request.group_instance_id, request.generation_id)
    if error is not ErrorCode.NONE:
        return Outcome(SyncGroupResponse(error_code=error))
    member, current = group.members.latest[request.member_id], group.current(request.member_id)
    assert member.classic is not None
    protocol = member.classic.supported_protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, protocol.name):
        return Outcome(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if group.target_epoch.epoch > current.epoch and current.state is not MemberState.UNREVOKED:
        await_join(shard, group.id, request.member_id, member, now_ms)
        return Outcome(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    touch(shard, group.id, request.member_id, member, now_ms)
    shard.timers.cancel(sync_key(group.id, request.member_id))
    has = sorted(
        (shard.topics.by_id[topic_id].name, sorted(partitions))
        for topic_id, partitions in current.assigned.items()
        if topic_id in shard.topics.by_id
    )
    return Outcome(
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(has, protocol.metadata),
        )
    )


def heartbeat(
    shard: GroupShardState, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> ErrorCode:
    """Decides a Heartbeat: restarts the session; REBALANCE_IN_PROGRESS if the member has to join again."""
    group = shard.modern.latest[group_id]
    assert isinstance(group, ConsumerGroup)
    error = _check(group, member_id, instance_id, generation)
    if error is not ErrorCode.NONE:
        return error
    member, current = group.members.latest[member_id], group.current(member_id)
    touch(shard, group.id, member_id, member, now_ms)
    if (
        current.epoch < group.target_epoch.epoch
        or current.state is MemberState.UNREVOKED
        or (current.state is MemberState.UNRELEASED and _is_all_free(group, member_id, current))
        or _targets_wait_for_a_join(shard, group, now_ms)
    ):
        await_join(shard, group.id, member_id, member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _check(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    if instance_id is not None:
        holder = group.instances.latest.get(instance_id)
        if holder != member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID if holder is None else ErrorCode.FENCED_INSTANCE_ID
    member = group.members.latest.get(member_id)
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation == group.current(member_id).epoch else ErrorCode.ILLEGAL_GENERATION


def _is_all_free(group: ConsumerGroup, member_id: str, current: Current) -> bool:
    """Whether nobody has any of what a member waits for."""
    return not any(
        partition not in current.assigned.get(topic_id, ()) and (topic_id, partition) in group.holders.latest
        for topic_id, partitions in group.targets.latest.get(member_id, NOTHING).items()
        for partition in partitions
    )


def _targets_wait_for_a_join(shard: GroupShardState, group: ConsumerGroup, now_ms: int) -> bool:
    """Whether there have to be new targets, and no member of the newer protocol is left whose heartbeat computes them:
    somebody left, or the topics changed. Apache Kafka waits until somebody joins."""
    if group.classic_count < len(group.members.latest):
        return False
    last = group.target_epoch
    if last.epoch < group.epoch.epoch:
        return is_due(last, shard.settings_of(group.id).assignment_interval_ms, now_ms)
    if group.checked_topics is shard.topics or shard.topics is NO_TOPICS:
        return False
    if shard.topics.hash(group.topics()) != group.epoch.metadata_hash:
        return True
    group.checked_topics = shard.topics
    return False


# --- LeaveGroup ------------------------------------------------------------------------------------------------------


def leave(shard: GroupShardState, group: ConsumerGroup, leaving: list[MemberIdentity], now_ms: int) -> Outcome:
    """Members leave, or an administrator takes members out: static ones by their instance id alone."""
    out = Outcome()
    answers = []
    gone: dict[str, None] = {}
    for identity in leaving:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        error = ErrorCode.NONE
        holder: str | None = member_id
        if instance_id is not None:
            holder = group.instances.latest.get(instance_id)
            if holder is not None and member_id not in ("", holder):
                error = ErrorCode.FENCED_INSTANCE_ID
        if holder is None or holder not in group.members.latest:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif error is ErrorCode.NONE:
            gone[holder] = None
        answers.append(MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error))
    fencing.remove(shard, group, list(gone), "it leaves", now_ms, out)
    out.reply = LeaveGroupResponse(members=answers)
    return out
