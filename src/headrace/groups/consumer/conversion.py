"""Conversion of groups with members between the protocols (KIP-848).

A classic group becomes a consumer group when the first member of the newer protocol joins, and a classic one again when
the last of them is gone. The records of both kinds are one atomic batch, so every coordinator finds the group whole, as
one or the other. No member has to revoke anything for the conversion itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.groups.classic.group import CONSUMER_PROTOCOL, Group, session_key
from headrace.groups.classic.group import Member as ClassicMember
from headrace.groups.classic.rebalance import answer_join, answer_sync, join_error, prepare, snapshot
from headrace.groups.classic.rebalance import touch as touch_classic
from headrace.groups.classic.states import GroupState
from headrace.groups.consumer.group import NO_PARTITIONS, ConsumerGroup
from headrace.groups.consumer.member_timers import forget, touch
from headrace.groups.consumer.records import ConsumerRecord, CurrentAssignment, Kind, Member, MemberState
from headrace.groups.modern.epochs import AssignmentEpoch, GroupEpoch
from headrace.groups.records import GroupRecord
from headrace.groups.subscription import read_assignment, read_subscription, write_assignment
from headrace.machine.outcome import Outcome
from headrace.machine.timeline import Timeline
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k14_sync_group import SyncGroupResponse
from headrace.wire.messages.newer_group_records import ClassicMemberMetadata, ClassicProtocol
from headrace.wire.primitives import DecodeError

if TYPE_CHECKING:
    from headrace.groups.consumer.records import Partitions
    from headrace.groups.modern.topics import Topics
    from headrace.groups.shard_state import GroupShardState
    from headrace.wire.messages.consumer_protocol import ConsumerProtocolSubscription


# --- to the newer protocol -------------------------------------------------------------------------------------------


_REPEATERS = frozenset({"cooperative-sticky"})
"""Assignors whose user data in an assignment may be dropped: librdkafka's repeats the user data of the member's
JoinGroup, and never reads it. Apache Kafka refuses it as any other data.
"""


class CannotUpgrade(Exception):
    """Raised if a classic group cannot become a consumer group; the message says why."""


def upgrade(shard: GroupShardState, classic: Group, now_ms: int, out: Outcome) -> ConsumerGroup:
    """Converts a classic group with members to a consumer group, whose records are added to `out`.

    Each member holds the assignment of the last generation, and the partitions that its last JoinGroup lists as owned:
    it may not have revoked those yet. All have that generation's epoch. Members that wait for an answer have to rejoin.
    Raises CannotUpgrade.
    """
    settings = shard.settings_of(classic.id)
    why = ""
    if not settings.upgrades:
        why = "online upgrade is disabled"
    elif not classic.is_consumer:
        why = "its members are not consumers"
    elif len(classic.members) > settings.max_size:
        why = "it has more members than a consumer group may have"
    if why:
        raise CannotUpgrade(f"Cannot upgrade classic group {classic.id} to consumer group: {why}.")
    try:
        group = _upgraded(shard, classic, out)
    except DecodeError as error:
        raise CannotUpgrade(
            f"Cannot upgrade classic group {classic.id} to consumer group: its members' metadata is malformed: {error}."
        ) from None
    for member in classic.members.values():
        answer_join(classic, member, join_error(member.id, ErrorCode.REBALANCE_IN_PROGRESS), out)
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), out)
    for member_id, consumer in group.members.latest.items():
        touch(shard, group.id, member_id, consumer, now_ms)
    out.note("group becomes a consumer group", group=group.id, epoch=classic.generation)
    return group


def _upgraded(shard: GroupShardState, classic: Group, out: Outcome) -> ConsumerGroup:
    topics, epoch = shard.topics, classic.generation
    sorted_members = sorted(classic.members.values(), key=lambda member: member.id)
    subscriptions = {member.id: _subscription(classic, member) for member in sorted_members}
    members = {member.id: _converted(member, subscriptions[member.id]) for member in sorted_members}
    shares = {member.id: _share(classic, member, topics) for member in sorted_members}
    shares = _with_owned(shares, subscriptions, topics)
    known = topics.hash({topic for member in members.values() for topic in member.topics})
    records = [ConsumerRecord(classic.id, Kind.MEMBER, member_id, member) for member_id, member in members.items()]
    records.append(ConsumerRecord(classic.id, Kind.EPOCH, "", GroupEpoch(epoch, known)))
    records += [ConsumerRecord(classic.id, Kind.TARGET, member_id, share) for member_id, share in shares.items()]
    records.append(ConsumerRecord(classic.id, Kind.TARGET_EPOCH, "", AssignmentEpoch(epoch)))
    for member_id, share in shares.items():
        held = {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in share.items()}
        current = CurrentAssignment(epoch, epoch, MemberState.STABLE, held)
        records.append(ConsumerRecord(classic.id, Kind.CURRENT, member_id, current))
    # The group as it will be in the log: the joining member is decided before the records are in the log.
    group = ConsumerGroup(classic.id, Timeline())
    for record in records:
        group.apply(record)
    out.records.append(GroupRecord(classic.id, None))
    out.records.extend(records)
    return group


def _subscription(classic: Group, member: ClassicMember) -> ConsumerProtocolSubscription:
    """Returns the subscription of a classic member's last JoinGroup. Raises DecodeError."""
    protocol = classic.protocol
    if protocol is None or protocol not in member.protocols:
        # There was no generation yet, or the member joins for the next one.
        protocol = classic.elect_protocol()
    return read_subscription(member.protocols[protocol])


def _converted(member: ClassicMember, subscription: ConsumerProtocolSubscription) -> Member:
    """Returns a classic member as a member of a consumer group."""
    return Member(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            member.session_timeout_ms, [ClassicProtocol(name, data) for name, data in member.protocols.items()]
        ),
    )


def _share(classic: Group, member: ClassicMember, topics: Topics) -> Partitions:
    """Returns the partitions of the last generation's assignment to a member, of topics that exist."""
    assignment = read_assignment(member.assignment)
    if assignment.user_data and classic.protocol not in _REPEATERS:
        raise CannotUpgrade(
            f"Cannot upgrade classic group {classic.id} to consumer group: its assignor puts data of its own into "
            "assignments, which would be lost."
        )
    share: dict[bytes, frozenset[int]] = {}
    for each in assignment.assigned_partitions:
        topic = topics.by_name.get(each.topic)
        if topic is not None and each.partitions:
            share[topic.id] = share.get(topic.id, frozenset()) | frozenset(each.partitions)
    return share


def _with_owned(
    shares: Mapping[str, Partitions], subscriptions: Mapping[str, ConsumerProtocolSubscription], topics: Topics
) -> dict[str, Partitions]:
    """Returns the shares, each with the partitions that its member reported as owned and nobody is assigned.

    A member that rebalances cooperatively (KIP-429) reads on while a generation ends without assignments, and revokes
    what its assignment does not name only when it has heard of it. Of two members that own a partition, the one with
    the later generation does.
    """
    taken = {(topic_id, each) for share in shares.values() for topic_id, all_ in share.items() for each in all_}
    held = {member_id: {topic_id: set(all_) for topic_id, all_ in share.items()} for member_id, share in shares.items()}
    for member_id, subscription in sorted(subscriptions.items(), key=lambda each: (-each[1].generation_id, each[0])):
        for owned in subscription.owned_partitions:
            topic = topics.by_name.get(owned.topic)
            if topic is None:
                continue
            for partition in owned.partitions:
                if 0 <= partition < topic.partition_count and (topic.id, partition) not in taken:
                    taken.add((topic.id, partition))
                    held[member_id].setdefault(topic.id, set()).add(partition)
    return {
        member_id: {topic_id: frozenset(all_) for topic_id, all_ in share.items()} for member_id, share in held.items()
    }


# --- and back --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remains:
    """The rest of a consumer group that becomes a classic one."""

    leaving: Collection[str]
    """Members that are not in the classic group: those that are gone, or whose place `joining` takes."""
    joining: tuple[str, Member, CurrentAssignment] | None = None
    """The id, subscription and assignment of a static member that takes the place of the only one in `leaving`; its
    records, and the tombstones of the replaced member, are decided already."""
    is_stale: bool = True
    """Whether the targets are older than the members."""


def can_downgrade(shard: GroupShardState, group: ConsumerGroup, leaving: Collection[str]) -> bool:
    """Returns whether the group has to become a classic one once these members are gone."""
    members = group.members.latest
    rest = len(members) - len(leaving)
    classic = group.classic_count - sum(members[each].classic is not None for each in leaving)
    return rest > 0 and classic == rest and _may_downgrade(shard, group, rest)


def can_downgrade_by_replacing(shard: GroupShardState, group: ConsumerGroup, replaced: str) -> bool:
    """Returns whether the group has to become a classic one if a classic member takes this static member's place."""
    members = group.members.latest
    is_last = group.classic_count == len(members) - 1 and members[replaced].classic is None
    return is_last and _may_downgrade(shard, group, len(members))


def _may_downgrade(shard: GroupShardState, group: ConsumerGroup, size: int) -> bool:
    return shard.settings_of(group.id).downgrades and size <= shard.settings.max_size


def downgrade(shard: GroupShardState, group: ConsumerGroup, remains: Remains, now_ms: int, out: Outcome) -> None:
    """Converts the group to a classic one, stable with the current assignments. It rebalances once that is stored,
    unless the members have their full targets.

    Apache Kafka stores the targets. If the group became a consumer group again before the members rejoined, it would
    then assign partitions that a member still reads.
    """
    classic, has, is_reconciled = _downgraded(group, remains, now_ms)
    assignments = {member_id: _assignment(shard, classic, member_id, has[member_id]) for member_id in classic.members}
    rebalances = remains.is_stale or not is_reconciled
    out.records.extend(_tombstones(group, remains))
    out.records.append(GroupRecord(group.id, snapshot(classic, assignments)))
    out.note("group becomes a classic group", group=group.id, generation=classic.generation)
    member_ids = [*group.members.latest, *classic.members]

    def stored(_error: ErrorCode, now_ms: int) -> Outcome:
        done = Outcome()
        live = shard.groups.get(group.id)
        if live is None or group.id in shard.modern.latest:
            return done  # the decision was lost, or it is a consumer group again
        for member_id in member_ids:
            forget(shard, group.id, member_id)
        for member in live.members.values():
            known = classic.members.get(member.id)
            if known is not None and member.join_waiter is None:
                live.update(member, known.protocols, known.rebalance_timeout_ms, known.session_timeout_ms)
            if member.session_key not in shard.timers:
                touch_classic(shard, member, now_ms)
        if rebalances and live.state is GroupState.STABLE and live.generation == classic.generation:
            prepare(shard, live, "it was a consumer group", now_ms, done)
        return done

    out.then = stored


_OF_MEMBERS = (Kind.CURRENT, Kind.TARGET, Kind.MEMBER)


def _tombstones(group: ConsumerGroup, remains: Remains) -> list[ConsumerRecord]:
    """Removes the group's records from the log, and those decided for a joining member, which has a record of each kind
    even if the replaced member has no target yet."""
    tombstones = group.tombstones()
    if remains.joining is None:
        return tombstones
    name = remains.joining[0]
    for at, record in enumerate(tombstones):
        if record.name in remains.leaving and record.kind in _OF_MEMBERS:
            tombstones[at] = ConsumerRecord(group.id, record.kind, name, None)
    removed = {record.kind for record in tombstones if record.name == name}
    return [ConsumerRecord(group.id, kind, name, None) for kind in _OF_MEMBERS if kind not in removed] + tombstones


def _downgraded(group: ConsumerGroup, remains: Remains, now_ms: int) -> tuple[Group, Mapping[str, Partitions], bool]:
    """Returns the classic group, its members' assignments, and whether these are their full targets."""
    members = {each: member for each, member in group.members.latest.items() if each not in remains.leaving}
    targets = dict(group.targets.latest)
    currents = {each: group.current(each) for each in members}
    if remains.joining is not None:
        member_id, members[member_id], currents[member_id] = remains.joining
        (replaced,) = remains.leaving
        targets[member_id] = targets.get(replaced, NO_PARTITIONS)
    classic = Group(group.id, state=GroupState.STABLE, state_since_ms=now_ms, generation=group.epoch.epoch)
    for member_id, member in sorted(members.items()):
        assert member.classic is not None
        classic.add(_classic_member(group.id, member_id, member, member.classic), CONSUMER_PROTOCOL, None)
    classic.protocol = classic.elect_protocol()
    has = {member_id: _held(current) for member_id, current in currents.items()}
    return classic, has, all(has[each] == targets.get(each, NO_PARTITIONS) for each in members)


def _held(current: CurrentAssignment) -> Partitions:
    """Returns the partitions that a member may read, including those that it has to revoke."""
    return {
        topic_id: frozenset((*current.assigned.get(topic_id, ()), *current.revoking.get(topic_id, ())))
        for topic_id in {**current.assigned, **current.revoking}
    }


def _assignment(shard: GroupShardState, classic: Group, member_id: str, share: Partitions) -> bytes:
    by_id = shard.topics.by_id
    named = sorted((by_id[each].name, sorted(partitions)) for each, partitions in share.items() if each in by_id)
    assert classic.protocol is not None
    return write_assignment(named, classic.members[member_id].protocols[classic.protocol])


def _classic_member(group_id: str, member_id: str, member: Member, classic: ClassicMemberMetadata) -> ClassicMember:
    protocols: dict[str, bytes] = {}
    for each in classic.supported_protocols:
        protocols.setdefault(each.name, each.metadata)
    return ClassicMember(
        id=member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=protocols,
        session_key=session_key(group_id, member_id),
    )
