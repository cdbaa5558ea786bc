"""ConsumerGroupHeartbeat: a member joins, stays, and is led to what it shall have, all by the one request (KIP-848).

A heartbeat that changes something is one atomic batch: the member, the group's epoch, the targets, what the member has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.groups.consumer import fencing, regexes
from headrace.groups.consumer.assignors import ASSIGNORS, Subscriber
from headrace.groups.consumer.group import NOTHING, ConsumerGroup
from headrace.groups.consumer.reconcile import Owned, reconcile
from headrace.groups.consumer.records import (
    ConsumerRecord,
    Current,
    GroupEpoch,
    Held,
    Kind,
    Member,
    Partitions,
    TargetEpoch,
)
from headrace.groups.records import GroupRecord
from headrace.groups.states import GroupState
from headrace.machine.outcome import Outcome
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headrace.groups.outcome import ShardState

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
"""Member epochs that say what a member wants."""

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


def heartbeat(shard: ShardState, request: ConsumerGroupHeartbeatRequest, sender: Sender, now_ms: int) -> Outcome:
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
        return fencing.leave(shard, group, request)
    out = Outcome()
    if group is None and request.member_epoch == JOINS:
        classic = shard.groups.get(request.group_id)
        if classic is not None and classic.state is GroupState.EMPTY:
            # An empty group becomes one of either kind, and its offsets stay.
            out.records.append(GroupRecord(request.group_id, None))
        elif classic is not None:
            return refuse(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        elif shard.is_full:
            return refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no room for another group.")
        group = ConsumerGroup(request.group_id, shard.timeline)
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
    """A heartbeat of a member that is, or wants to be, in a group; what it decides gathers in `out`."""

    def __init__(
        self,
        shard: ShardState,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        sender: Sender,
        now_ms: int,
        out: Outcome,
    ) -> None:
        self.shard = shard
        self.group = group
        self.request = request
        self.sender = sender
        self.now_ms = now_ms
        self.out = out
        self.settings = shard.settings_of(group.id)
        self.member_id = request.member_id or shard.new_id()
        self.replaces: str | None = None
        """The member whose place a static member takes: its other, earlier id, or the same."""
        self.member = Member()
        """What the member said before."""
        self.current = group.current(self.member_id)
        self.owned: Owned | None = None
        if request.topic_partitions is not None:
            self.owned = {each.topic_id: each.partitions for each in request.topic_partitions}

    def write(
        self, kind: Kind, name: str, value: Member | GroupEpoch | TargetEpoch | Partitions | Current | None
    ) -> None:
        """A record of the group, or with None its tombstone."""
        self.out.records.append(ConsumerRecord(self.group.id, kind, name, value))

    def decide(self) -> Outcome:
        """Finds the member, then takes in what it says, then leads it on."""
        refused = self._find_static() if self.request.instance_id is not None else self._find_dynamic()
        if refused is not None:
            return refused
        said = self._as_said()
        if said.regex and said.regex not in self.group.regex_readers.latest:
            wrong = regexes.what_is_wrong(said.regex)
            if wrong:
                return refuse(ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{said.regex}`: {wrong}.")
        names_changed = said.topics != self.member.topics
        is_new = self.replaces is None and self.member_id not in self.group.members.latest
        if is_new or said != self.member:
            self.write(Kind.MEMBER, self.member_id, said)
        regex_changed = self._change_regex(said)
        epoch = self._bump(said, names_changed, regex_changed)
        target_epoch, target = self._target(epoch, said)
        reads = self.shard.topics.ids(self.group.topics_of(said))
        mine = (self.member_id, self.replaces)
        reached = reconcile(
            self.current,
            target_epoch,
            target,
            reads,
            self.owned,
            lambda partition: self.group.holders.latest.get(partition, self.member_id) not in mine,
            names_changed or regex_changed,
        )
        if reached is None:
            return refuse(ErrorCode.FENCED_MEMBER_EPOCH, "The member must give everything up and rejoin.")
        if reached != self.current:
            self.write(Kind.CURRENT, self.member_id, reached)
            fencing.await_revocation(self.shard, self.group.id, self.member_id, said, reached, self.now_ms)
        if self.replaces is not None and self.replaces != self.member_id:
            fencing.forget(self.shard, self.group.id, self.replaces)
        fencing.touch(self.shard, self.group.id, self.member_id, self.now_ms)
        self.out.reply = self._answer(reached)
        has_new_regex = said.regex != "" and said.regex not in self.group.regexes.latest
        if has_new_regex or regexes.is_due(self.group, self.shard.topics, self.settings, self.now_ms):
            regexes.look_after(self.shard, self.group.id, self.sender.may_describe, self.out)
        return self.out

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
        if group.current(holder).epoch != LEAVES_FOR_A_WHILE:
            return refuse(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {self.member_id} with instance id {instance_id} cannot join: "
                f"the instance id is in use by member {holder}.",
            )
        self._take_the_place_of(holder)
        return None

    def _take_the_place_of(self, holder: str) -> None:
        """A static member is back, as another process: it goes on with what its instance had, from epoch 0."""
        group = self.group
        self.replaces = holder
        self.member = group.members.latest[holder]
        had = group.current(holder)
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.write(kind, holder, None)
        self.current = Current(0, 0, had.state, had.assigned, had.revoking)
        self.write(Kind.MEMBER, self.member_id, self.member)
        self.write(Kind.TARGET, self.member_id, group.targets.latest.get(holder, NOTHING))
        self.write(Kind.CURRENT, self.member_id, self.current)
        self.out.notes.append(
            f"group {group.id}: static member {self.member.instance_id} was {holder} and is now {self.member_id}"
        )

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

    def _change_regex(self, said: Member) -> bool:
        """Whether the member has another regular expression, one that is not resolved yet perhaps."""
        before = self.member.regex
        if said.regex == before:
            return False
        if before in self.group.regexes.latest and self.group.regex_readers.latest.get(before) == 1:
            self.write(Kind.REGEX, before, None)
        return True

    # --- the group's epoch and targets -------------------------------------------------------------------------------

    def _bump(self, said: Member, names_changed: bool, regex_changed: bool) -> int:
        """The group's epoch: the next one where its subscriptions or its topics changed."""
        group, topics = self.group, self.shard.topics
        before = group.epoch
        bumps = names_changed or (regex_changed and said.regex in group.regexes.latest)
        if not bumps and group.checked_topics is topics:
            return before.epoch
        known = topics.hash(group.topics_with(self.member, said) if names_changed or regex_changed else group.topics())
        if not bumps and known == before.metadata_hash:
            group.checked_topics = topics
            return before.epoch
        self.write(Kind.EPOCH, "", GroupEpoch(before.epoch + 1, known))
        if group.known_topics.latest:
            self.write(Kind.PARTITION_METADATA, "", None)
        return before.epoch + 1

    def _target(self, epoch: int, said: Member) -> tuple[int, Partitions]:
        """The epoch of the targets and the member's own: computed here where that is due."""
        group = self.group
        last = group.target_epoch
        holder = self.replaces if self.replaces is not None else self.member_id
        due_ms = last.computed_ms + self.settings.assignment_interval_ms
        if last.epoch >= epoch or (last.computed_ms and last.computed_ms <= self.now_ms < due_ms):
            return last.epoch, group.targets.latest.get(holder, NOTHING)
        computed = self._compute(said)
        for member_id, target in sorted(computed.items()):
            before = group.targets.latest.get(holder if member_id == self.member_id else member_id)
            if target != before:
                self.write(Kind.TARGET, member_id, target)
        self.write(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, self.now_ms))
        return epoch, computed[self.member_id]

    def _compute(self, said: Member) -> dict[str, Partitions]:
        """The targets of everybody, by the assignor that most members ask for."""
        group, topics = self.group, self.shard.topics
        members = {**group.members.latest, self.member_id: said}
        if self.replaces is not None and self.replaces != self.member_id:
            del members[self.replaces]
        subscribers = []
        for member_id, member in sorted(members.items()):
            holder = self.replaces if self.replaces is not None and member_id == self.member_id else member_id
            had = group.targets.latest.get(holder, NOTHING)
            reads = topics.ids(group.topics_of(member))
            subscribers.append(Subscriber(member_id, member.instance_id, reads, had))
        counts = {topic_id: topics.by_id[topic_id].partition_count for each in subscribers for topic_id in each.topics}
        votes = dict(group.votes.latest)
        for member, by in ((self.member, -1), (said, 1)):
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + by
        chosen = max(self.settings.assignors, key=lambda name: votes.get(name, 0))
        self.out.notes.append(f"group {group.id}: targets of {len(subscribers)} members computed by {chosen}")
        return ASSIGNORS[chosen](subscribers, counts)

    # --- the answer --------------------------------------------------------------------------------------------------

    def _answer(self, reached: Current) -> ConsumerGroupHeartbeatResponse:
        request = self.request
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        tells = request.member_epoch == JOINS or is_full or reached.assigned != self.current.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=self.member_id,
            member_epoch=reached.epoch,
            heartbeat_interval_ms=self.settings.heartbeat_interval_ms,
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
