"""ConsumerGroupHeartbeat: a member joins, stays, and is reconciled with its target, all by one request (KIP-848).

A heartbeat that changes something is one atomic batch: the member, the group's epoch, the targets, the member's
assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.groups.classic.states import GroupState
from headrace.groups.consumer import fencing, regexes
from headrace.groups.consumer.conversion import CannotUpgrade, upgrade
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.member_timers import AWAY, await_neither, touch
from headrace.groups.consumer.member_update import MemberUpdate
from headrace.groups.consumer.records import CurrentAssignment, Held, Member, MemberState
from headrace.groups.modern.epochs import JOINS, SentEpoch, compare
from headrace.groups.modern.reconciliation import owns_only
from headrace.groups.records import GroupRecord
from headrace.groups.subscription import MEMBER_NAMES_MAX
from headrace.machine.outcome import Outcome
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headrace.groups.shard_state import GroupShardState

LEAVES_FOR_A_WHILE: Final = AWAY
"""The member epoch of a static member that leaves temporarily."""

WAITING_SHARE: Final = 5
"""A member that waits for partitions is asked to send its next heartbeat after this fraction of the interval. Kafka
answers the whole interval: a revoked partition may be idle for 5 s there."""

_CLIENTS_NAME_THEMSELVES_FROM: Final = 1
"""The API version from which members choose their ids."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The client that sends a heartbeat, and the API version."""

    client_id: str
    client_host: str
    """As Kafka shows it: "/127.0.0.1"."""
    api_version: int
    may_describe: regexes.MayDescribe = regexes.everybody_may
    """Returns whether its regular expression may match a topic."""
    principal: str = ""
    regex_fault: str = ""
    """The error in the member's regular expression; empty if there is none."""


def heartbeat(shard: GroupShardState, request: ConsumerGroupHeartbeatRequest, sender: Sender, now_ms: int) -> Outcome:
    """Decides a ConsumerGroupHeartbeat of a client that may read the group and its topics."""
    invalid = what_is_wrong(request, sender.api_version)
    if invalid:
        return refuse(ErrorCode.INVALID_REQUEST, invalid)
    known = shard.settings_of(request.group_id).assignors
    if request.server_assignor is not None and request.server_assignor not in known:
        why = f"Assignor {request.server_assignor} is not known; there are: {', '.join(known)}."
        return refuse(ErrorCode.UNSUPPORTED_ASSIGNOR, why)
    group = shard.modern.latest.get(request.group_id)
    if request.member_epoch < 0:
        if not isinstance(group, ConsumerGroup):
            return _not_found(request.group_id)
        return fencing.leave(shard, group, request, now_ms)
    out = Outcome()
    if group is None and request.member_epoch == JOINS:
        classic = shard.groups.get(request.group_id)
        if classic is not None and classic.state is GroupState.EMPTY:
            # An empty group changes its kind, and its offsets stay.
            out.records.append(GroupRecord(request.group_id, None))
        elif classic is not None:
            try:
                group = upgrade(shard, classic, now_ms, out)
            except CannotUpgrade as error:
                return refuse(ErrorCode.GROUP_ID_NOT_FOUND, str(error))
        elif not shard.has_room_for_group(sender.principal, now_ms):
            return refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no room for another group.")
        if group is None:
            group = ConsumerGroup(request.group_id, shard.timeline)
            shard.group_made(group.id, sender.principal)
    if not isinstance(group, ConsumerGroup):
        return _not_found(request.group_id)
    is_known = request.member_id in group.members.latest
    if not is_known and len(group.members.latest) >= shard.settings_of(group.id).max_size:
        return refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, f"Group {group.id} is full.")
    update = MemberUpdate(shard, group, request.member_id or shard.new_id(), now_ms, out)
    return _Heartbeat(update, request, sender).decide()


def refuse(error: ErrorCode, why: str) -> Outcome:
    """Returns the outcome that answers an error."""
    return Outcome(ConsumerGroupHeartbeatResponse(error_code=error, error_message=why))


def _not_found(group_id: str) -> Outcome:
    return refuse(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def what_is_wrong(request: ConsumerGroupHeartbeatRequest, api_version: int) -> str:
    """Returns why a request is malformed whatever the group; empty if it is not."""
    epoch = request.member_epoch
    if not request.group_id:
        return "GroupId can't be empty."
    if epoch < LEAVES_FOR_A_WHILE:
        return f"MemberEpoch is {epoch}."
    if request.instance_id == "" or request.rack_id == "":
        return "InstanceId and RackId can't be empty: they may be null."
    if len(request.subscribed_topic_names or ()) > MEMBER_NAMES_MAX:
        return f"SubscribedTopicNames has more than {MEMBER_NAMES_MAX} names: subscribe by SubscribedTopicRegex."
    needs_id = api_version >= _CLIENTS_NAME_THEMSELVES_FROM or epoch != JOINS
    if not request.member_id and needs_id:
        return "MemberId can't be empty."
    if epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null of a static member that leaves for a while."
    if epoch == JOINS:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be set in first request."
    return ""


class _Heartbeat:
    """A heartbeat of a current or new member of a group."""

    def __init__(self, update: MemberUpdate, request: ConsumerGroupHeartbeatRequest, sender: Sender) -> None:
        self.update = update
        self.request = request
        self.sender = sender
        if request.topic_partitions is not None:
            update.owned = {each.topic_id: each.partitions for each in request.topic_partitions}

    def decide(self) -> Outcome:
        """Finds the member, applies the heartbeat's updates, and reconciles the member with its target."""
        update = self.update
        shard, group, out = update.shard, update.group, update.out
        refused = self._find_static() if self.request.instance_id is not None else self._find_dynamic()
        if refused is not None:
            return refused
        before, updated = update.member, self._updated()
        refused = self._charge(updated)
        if refused is not None:
            return refused
        update.store(updated)
        names_changed = updated.topics != before.topics
        regex_changed = update.change_regex(updated)
        is_bumped = names_changed or (regex_changed and updated.regex in group.regexes.latest)
        subscription_changed = names_changed or regex_changed
        epoch = update.raise_epoch(updated, is_bumped, subscription_changed)
        assignment_epoch, target = update.target(epoch, updated)
        reached = update.reconcile(updated, assignment_epoch, target, subscription_changed)
        if reached is None:
            return refuse(ErrorCode.FENCED_MEMBER_EPOCH, "The member must give everything up and rejoin.")
        update.forget_replaced()
        if before.classic is not None:
            await_neither(shard, group.id, update.member_id)
        touch(shard, group.id, update.member_id, updated, update.now_ms)
        is_short = reached.state is MemberState.UNRELEASED or assignment_epoch < epoch
        out.reply = self._answer(reached, is_short)
        has_new_regex = updated.regex != "" and updated.regex not in group.regexes.latest
        if has_new_regex or regexes.is_due(group, shard.topics, update.settings, update.now_ms):
            regexes.look_after(shard, group.id, self.sender.principal, self.sender.may_describe, out)
        return out

    def _charge(self, updated: Member) -> Outcome | None:
        """Charges the principal for a new regular expression and for the member's growth; returns the refusal if that
        exceeds a limit."""
        shard, group, principal = self.update.shard, self.update.group, self.sender.principal
        if updated.regex and updated.regex not in group.regex_readers.latest:
            refused = self._take_in_regex(updated.regex)
            if refused is not None:
                return refused
        size, size_before = updated.size, self.update.member.size
        if size == size_before:
            return None
        if size > size_before and not shard.has_room_for(principal, size):
            return refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no room for what the member says of itself.")
        shard.member_bytes.sent_by(group.id, self.update.member_id, principal)
        return None

    def _take_in_regex(self, regex: str) -> Outcome | None:
        """Charges the principal for a regular expression that no member of the group has; returns the answer if it is
        refused."""
        shard, sender, update = self.update.shard, self.sender, self.update
        if sender.regex_fault:
            return refuse(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{regex}`: {sender.regex_fault}."
            )
        why = regexes.is_one_too_many(shard, update.group, update.member.regex, sender.principal, update.now_ms)
        if why:
            return refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        shard.regexes_held.add(sender.principal)
        shard.regex_owners[update.group.id, regex] = sender.principal
        return None

    # --- the member --------------------------------------------------------------------------------------------------

    def _find_dynamic(self) -> Outcome | None:
        update = self.update
        member = update.group.members.latest.get(update.member_id)
        if member is None:
            return None if self.request.member_epoch == JOINS else unknown_member(update.group.id, update.member_id)
        update.member = member
        return self._check_epoch()

    def _find_static(self) -> Outcome | None:
        assert self.request.instance_id is not None
        update, instance_id = self.update, self.request.instance_id
        group = update.group
        holder = group.instances.latest.get(instance_id)
        if self.request.member_epoch != JOINS:
            refused = fencing.check_instance(group, instance_id, update.member_id)
            if refused is not None:
                return refused
            update.member = group.members.latest[update.member_id]
            return self._check_epoch()
        if holder is None:
            update.member = group.members.latest.get(update.member_id, update.member)
            return None
        # A classic member does not announce that it leaves temporarily: a member with its instance id replaces it.
        is_classic = group.members.latest[holder].classic is not None
        if not is_classic and group.current(holder).epoch != LEAVES_FOR_A_WHILE:
            return refuse(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {update.member_id} with instance id {instance_id} cannot join: "
                f"the instance id is in use by member {holder}.",
            )
        update.replace_static(holder)
        return None

    def _check_epoch(self) -> Outcome | None:
        """Returns FENCED_MEMBER_EPOCH unless the heartbeat has the member's epoch, or the previous one with no
        partition beyond its assignment: then the last answer was lost."""
        sent, current = self.request.member_epoch, self.update.current
        how = compare(sent, current.epoch, current.previous_epoch)
        if how is SentEpoch.CURRENT or (how is SentEpoch.PREVIOUS and owns_only(self.update.owned, current.assigned)):
            return None
        return refuse(ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch is {current.epoch}, it says {sent}.")

    def _updated(self) -> Member:
        """Returns the member with what this heartbeat changes."""
        request, before = self.request, self.update.member
        return Member(
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            client_id=self.sender.client_id,
            client_host=self.sender.client_host,
            topics=before.topics
            if request.subscribed_topic_names is None
            else frozenset(request.subscribed_topic_names),
            regex=before.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
            ),
            assignor=before.assignor if request.server_assignor is None else request.server_assignor,
        )

    # --- the answer --------------------------------------------------------------------------------------------------

    def _answer(self, reached: CurrentAssignment, is_short: bool) -> ConsumerGroupHeartbeatResponse:
        """Returns the answer. `is_short`: the member waits for partitions that others hold or for a new target."""
        request = self.request
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        has_assignment = request.member_epoch == JOINS or is_full or reached.assigned != self.update.current.assigned
        interval_ms = self.update.settings.heartbeat_interval_ms
        return ConsumerGroupHeartbeatResponse(
            member_id=self.update.member_id,
            member_epoch=reached.epoch,
            heartbeat_interval_ms=max(1, interval_ms // WAITING_SHARE) if is_short else interval_ms,
            assignment=_assignment(reached.assigned) if has_assignment else None,
        )


def unknown_member(group_id: str, member_id: str) -> Outcome:
    """Returns the answer UNKNOWN_MEMBER_ID."""
    return refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def _assignment(assigned: Held) -> Assignment:
    return Assignment([TopicPartitions(topic_id, sorted(epochs)) for topic_id, epochs in sorted(assigned.items())])
