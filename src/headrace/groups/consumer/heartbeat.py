"""ConsumerGroupHeartbeat: a member joins, stays, and is led to what it shall have, all by the one request (KIP-848).

A heartbeat that changes something is one atomic batch: the member, the group's epoch, the targets, what the member has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.groups.classic.states import GroupState
from headrace.groups.consumer import fencing, regexes
from headrace.groups.consumer.conversion import CannotUpgrade, upgrade
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.member_timers import AWAY, await_neither, touch
from headrace.groups.consumer.reconcile import Owned
from headrace.groups.consumer.records import Current, Held, Member, MemberState
from headrace.groups.consumer.step import Step
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

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = AWAY
"""Member epochs that say what a member wants."""

WAITING_SHARE: Final = 5
"""A member for whom there is more to come is told to ask again after this part of the interval. Kafka tells it the
whole: a partition that was given up lies idle for up to 5 s there."""

_CLIENTS_NAME_THEMSELVES_FROM: Final = 1
"""The version from which members bring their ids."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends a heartbeat, and in which version of it."""

    client_id: str
    client_host: str
    """As Kafka shows it: "/127.0.0.1"."""
    api_version: int
    may_describe: regexes.MayDescribe = regexes.everybody_may
    """Which topics its regular expression may mean."""
    principal: str = ""
    regex_fault: str = ""
    """What is wrong with the regular expression that it sends; empty where nothing is."""


def heartbeat(shard: GroupShardState, request: ConsumerGroupHeartbeatRequest, sender: Sender, now_ms: int) -> Outcome:
    """Decides a ConsumerGroupHeartbeat of somebody who may read the group and its topics."""
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
            # An empty group becomes one of either kind, and its offsets stay.
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
    return _Heartbeat(shard, group, request, sender, now_ms, out).decide()


def refuse(error: ErrorCode, why: str) -> Outcome:
    """The answer that tells an error."""
    return Outcome(ConsumerGroupHeartbeatResponse(error_code=error, error_message=why))


def _not_found(group_id: str) -> Outcome:
    return refuse(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def what_is_wrong(request: ConsumerGroupHeartbeatRequest, api_version: int) -> str:
    """Why a request makes no sense, whatever the group; empty when it does."""
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


class _Heartbeat(Step):
    """A heartbeat of a member that is, or wants to be, in a group."""

    def __init__(
        self,
        shard: GroupShardState,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        sender: Sender,
        now_ms: int,
        out: Outcome,
    ) -> None:
        super().__init__(shard, group, request.member_id or shard.new_id(), now_ms, out)
        self.request = request
        self.sender = sender
        if request.topic_partitions is not None:
            self.owned = {each.topic_id: each.partitions for each in request.topic_partitions}

    def decide(self) -> Outcome:
        """Finds the member, then takes in what it says, then leads it on."""
        refused = self._find_static() if self.request.instance_id is not None else self._find_dynamic()
        if refused is not None:
            return refused
        said = self._as_said()
        if said.regex and said.regex not in self.group.regex_readers.latest:
            refused = self._take_in_regex(said.regex)
            if refused is not None:
                return refused
        size = said.size
        if size > self.member.size and not self.shard.has_room_for(self.sender.principal, size, self.now_ms):
            return refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no room for what the member says of itself.")
        if size != self.member.size:
            self.shard.member_owners[self.group.id, self.member_id] = self.sender.principal
            self.shard.member_bytes.add(self.sender.principal, max(0, size - self.member.size))
        self.take_in(said)
        names_changed = said.topics != self.member.topics
        regex_changed = self.change_regex(said)
        bumps = names_changed or (regex_changed and said.regex in self.group.regexes.latest)
        changed = names_changed or regex_changed
        epoch = self.bump(said, bumps, changed)
        target_epoch, target = self.target(epoch, said)
        reached = self.advance(said, target_epoch, target, changed)
        if reached is None:
            return refuse(ErrorCode.FENCED_MEMBER_EPOCH, "The member must give everything up and rejoin.")
        self.replaced()
        if self.member.classic is not None:
            await_neither(self.shard, self.group.id, self.member_id)
        touch(self.shard, self.group.id, self.member_id, said, self.now_ms)
        waits = reached.state is MemberState.UNRELEASED or target_epoch < epoch
        self.out.reply = self._answer(reached, waits)
        has_new_regex = said.regex != "" and said.regex not in self.group.regexes.latest
        if has_new_regex or regexes.is_due(self.group, self.shard.topics, self.settings, self.now_ms):
            regexes.look_after(self.shard, self.group.id, self.sender.principal, self.sender.may_describe, self.out)
        return self.out

    def _take_in_regex(self, regex: str) -> Outcome | None:
        """A regular expression that nobody of the group has: unless it is refused, the principal is charged for it."""
        shard, sender = self.shard, self.sender
        if sender.regex_fault:
            return refuse(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{regex}`: {sender.regex_fault}."
            )
        why = regexes.is_one_too_many(shard, self.group, self.member.regex, sender.principal, self.now_ms)
        if why:
            return refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        shard.regexes_held.add(sender.principal)
        shard.regex_owners[self.group.id, regex] = sender.principal
        return None

    # --- who it is ---------------------------------------------------------------------------------------------------

    def _find_dynamic(self) -> Outcome | None:
        member = self.group.members.latest.get(self.member_id)
        if member is None:
            return None if self.request.member_epoch == JOINS else unknown_member(self.group.id, self.member_id)
        self.member = member
        return self._check_epoch()

    def _find_static(self) -> Outcome | None:
        assert self.request.instance_id is not None
        group, instance_id = self.group, self.request.instance_id
        holder = group.instances.latest.get(instance_id)
        if self.request.member_epoch != JOINS:
            refused = fencing.check_instance(group, instance_id, self.member_id)
            if refused is not None:
                return refused
            self.member = group.members.latest[self.member_id]
            return self._check_epoch()
        if holder is None:
            self.member = group.members.latest.get(self.member_id, self.member)
            return None
        # A classic member does not say that it leaves for a while: whoever comes with its instance id takes its place.
        is_classic = group.members.latest[holder].classic is not None
        if not is_classic and group.current(holder).epoch != LEAVES_FOR_A_WHILE:
            return refuse(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {self.member_id} with instance id {instance_id} cannot join: "
                f"the instance id is in use by member {holder}.",
            )
        self.take_the_place_of(holder)
        return None

    def _check_epoch(self) -> Outcome | None:
        """FENCED_MEMBER_EPOCH unless the member is where we believe it, or one answer behind."""
        said, known = self.request.member_epoch, self.current.epoch
        if said in (JOINS, known):
            return None
        if said < known and said == self.current.previous_epoch and _is_within(self.owned, self.current.assigned):
            return None
        return refuse(ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch is {known}, it says {said}.")

    def _as_said(self) -> Member:
        """The member, with what this heartbeat changes."""
        request, before = self.request, self.member
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

    def _answer(self, reached: Current, waits: bool) -> ConsumerGroupHeartbeatResponse:
        """`waits`: there is more to come for the member, of what others still hold or of a target not computed yet."""
        request = self.request
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        tells = request.member_epoch == JOINS or is_full or reached.assigned != self.current.assigned
        interval_ms = self.settings.heartbeat_interval_ms
        return ConsumerGroupHeartbeatResponse(
            member_id=self.member_id,
            member_epoch=reached.epoch,
            heartbeat_interval_ms=max(1, interval_ms // WAITING_SHARE) if waits else interval_ms,
            assignment=_assignment(reached.assigned) if tells else None,
        )


def unknown_member(group_id: str, member_id: str) -> Outcome:
    """UNKNOWN_MEMBER_ID."""
    return refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def _is_within(owned: Owned | None, assigned: Held) -> bool:
    if owned is None:
        return False
    return all(partition in assigned.get(topic_id, ()) for topic_id, all_ in owned.items() for partition in all_)


def _assignment(assigned: Held) -> Assignment:
    return Assignment([TopicPartitions(topic_id, sorted(epochs)) for topic_id, epochs in sorted(assigned.items())])
