"""Classic members of consumer groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup in terms of the newer protocol.

JoinGroup has the role of ConsumerGroupHeartbeat: it carries the member's subscription and owned partitions, and
reconciles the member with its target. The generation is the member epoch, and no member leads. SyncGroup answers the
assignment. Heartbeat asks a member to rejoin if its assignment is to change (KIP-848, "Supporting Online Consumer Group
Upgrade").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.groups.classic.group import CONSUMER_PROTOCOL
from headrace.groups.classic.rebalance import join_error
from headrace.groups.consumer import conversion, fencing
from headrace.groups.consumer.group import NO_PARTITIONS, ConsumerGroup
from headrace.groups.consumer.member_timers import await_join, await_sync, sync_key, touch
from headrace.groups.consumer.member_update import MemberUpdate
from headrace.groups.consumer.records import CurrentAssignment, Member, MemberState
from headrace.groups.modern.epochs import may_compute
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
    """Decides a JoinGroup into a consumer group with members. It is answered when its records are committed."""
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
    update = MemberUpdate(shard, group, request.member_id or shard.new_id(), now_ms, Outcome())
    shard.member_bytes.sent_by(group.id, update.member_id, client.principal)
    return _Join(update, request, client, subscription).decide()


def _refuse(error: ErrorCode) -> Outcome:
    return Outcome(join_error("", error))


class _Join:
    """A JoinGroup of a current or new member of a consumer group."""

    def __init__(
        self,
        update: MemberUpdate,
        request: JoinGroupRequest,
        client: GroupClient,
        subscription: ConsumerProtocolSubscription,
    ) -> None:
        self.update = update
        self.request = request
        self.client = client
        self.subscription = subscription
        owned: dict[bytes, list[int]] = {}
        for each in subscription.owned_partitions:
            topic = update.shard.topics.by_name.get(each.topic)
            if topic is not None:
                owned.setdefault(topic.id, []).extend(each.partitions)
        update.owned = owned

    def decide(self) -> Outcome:
        """Finds the member, applies the JoinGroup's updates, and reconciles the member with its target; or converts the
        group to a classic one."""
        update = self.update
        shard, group, out = update.shard, update.group, update.out
        holder, error = self._find()
        if error is not ErrorCode.NONE:
            return _refuse(error)
        downgrades = holder is not None and conversion.can_downgrade_by_replacing(shard, group, holder)
        updated = self._updated()
        update.store(updated)
        changed = updated.topics != update.member.topics
        changed = update.change_regex(updated) or changed
        epoch = update.raise_epoch(updated, changed, changed)
        is_stale = group.target_epoch.epoch < epoch
        reached: CurrentAssignment | None = update.current
        if not downgrades:
            assignment_epoch, target = update.target(epoch, updated)
            reached = update.reconcile(updated, assignment_epoch, target, changed)
        elif not is_stale:
            reached = update.reconcile(updated, group.target_epoch.epoch, update.target_before, changed)
        if reached is None:
            return _refuse(ErrorCode.FENCED_MEMBER_EPOCH)
        update.forget_replaced()
        if downgrades:
            assert holder is not None
            remains = conversion.Remains([holder], (update.member_id, updated, reached), is_stale)
            conversion.downgrade(shard, group, remains, update.now_ms, out)
        else:
            touch(shard, group.id, update.member_id, updated, update.now_ms)
            await_sync(shard, group.id, update.member_id, updated, update.now_ms)
        out.reply = JoinGroupResponse(
            generation_id=reached.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=self.request.protocols[0].name,
            member_id=update.member_id,
        )
        return out

    def _find(self) -> tuple[str | None, ErrorCode]:
        """Finds the member; returns the id of the member that has its instance id, and why it may not join."""
        update, instance_id = self.update, self.request.group_instance_id
        group = update.group
        if instance_id is None:
            update.member = group.members.latest.get(update.member_id, update.member)
            return None, ErrorCode.NONE
        holder = group.instances.latest.get(instance_id)
        if self.request.member_id:
            if holder != update.member_id:
                return None, ErrorCode.UNKNOWN_MEMBER_ID if holder is None else ErrorCode.FENCED_INSTANCE_ID
            update.member = group.members.latest[holder]
        elif holder is not None:
            update.replace_static(holder)
        return holder, ErrorCode.NONE

    def _updated(self) -> Member:
        """Returns the member with what this JoinGroup changes."""
        request, before = self.request, self.update.member
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
    """Decides a SyncGroup: returns the member's assignment, or the error that makes it rejoin."""
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


def _is_all_free(group: ConsumerGroup, member_id: str, current: CurrentAssignment) -> bool:
    """Returns whether no member holds any of the partitions that a member waits for."""
    return not any(
        partition not in current.assigned.get(topic_id, ()) and (topic_id, partition) in group.holders.latest
        for topic_id, partitions in group.targets.latest.get(member_id, NO_PARTITIONS).items()
        for partition in partitions
    )


def _targets_wait_for_a_join(shard: GroupShardState, group: ConsumerGroup, now_ms: int) -> bool:
    """Returns whether new targets are due and no member of the newer protocol is left whose heartbeat computes them: a
    member left, or the topics changed. Apache Kafka waits until a member joins."""
    if group.classic_count < len(group.members.latest):
        return False
    last = group.target_epoch
    if last.epoch < group.epoch.epoch:
        return may_compute(last, shard.settings_of(group.id).assignment_interval_ms, now_ms)
    if group.checked_topics is shard.topics or shard.topics is NO_TOPICS:
        return False
    if shard.topics.hash(group.topics()) != group.epoch.metadata_hash:
        return True
    group.checked_topics = shard.topics
    return False


# --- LeaveGroup ------------------------------------------------------------------------------------------------------


def leave(shard: GroupShardState, group: ConsumerGroup, leaving: list[MemberIdentity], now_ms: int) -> Outcome:
    """Removes members that leave, or static members that an administrator names by instance id alone."""
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
