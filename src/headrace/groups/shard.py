"""One shard of groups: a machine for the coordinators' runtime (`machine.runtime.Shard`), which knows no topic.

A request is decided into an `Outcome`; `apply` is the only writer of what the log holds, live and at a load alike.
Fetch, describe and list tell only of what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Mapping

from headrace.groups import membership, offsets, rebalance
from headrace.groups.consumer import classic_members, describe, fencing, regexes
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.heartbeat import Sender, heartbeat
from headrace.groups.consumer.member_timers import stand_up
from headrace.groups.consumer.records import ConsumerRecord
from headrace.groups.consumer.regexes import LookUp
from headrace.groups.consumer.settings import ConsumerSettings
from headrace.groups.consumer.topics import Topics
from headrace.groups.group import CONSUMER_PROTOCOL, Group, restored, session_key
from headrace.groups.join import Asker, join
from headrace.groups.outcome import NEVER_JOINED, GroupSettings, ModernGroup, ShardState, Tallies, modern_type
from headrace.groups.records import GroupRecord, ModernRecord, OffsetRecord, Record, StoredGroup, decode, encode
from headrace.groups.states import GroupState
from headrace.groups.sync import sync
from headrace.machine.outcome import Outcome, Waiter
from headrace.machine.timeline import add_to
from headrace.machine.timers import TimerKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.group_records import MemberMetadata
from headrace.wire.messages.k08_offset_commit import OffsetCommitRequest
from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from headrace.wire.messages.k11_join_group import JoinGroupRequest
from headrace.wire.messages.k13_leave_group import MemberIdentity
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.wire.messages.k15_describe_groups import DescribedGroup, DescribedGroupMember
from headrace.wire.messages.k16_list_groups import ListedGroup
from headrace.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from headrace.wire.messages.k42_delete_groups import DeletableGroupResult
from headrace.wire.messages.k47_offset_delete import OffsetDeleteRequest
from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.k69_consumer_group_describe import DescribedGroup as DescribedConsumerGroup

EXPIRE_KEY: TimerKey = ("expire",)


class GroupShard:
    """The groups of one partition.

    `group_count` says how many groups there are with those of the other shards; None where this is the only one.
    `settings_of` says what a consumer group obeys, by its id; None where no group has settings of its own.
    """

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        group_count: Callable[[], int] | None = None,
        settings_of: Callable[[str], ConsumerSettings] | None = None,
        tallies: Tallies | None = None,
    ) -> None:
        self.state = ShardState(settings, new_id, group_count or (lambda: self.group_count), settings_of, tallies)
        self.timeline = self.state.timeline

    @property
    def group_count(self) -> int:
        """Groups of all kinds."""
        return len(self.state.groups) + len(self.state.modern.latest)

    # --- requests ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, asker: Asker, waiter: Waiter, now_ms: int) -> Outcome:
        """JoinGroup; the answer is `reply`, or is released to `waiter` later."""
        out = join(self.state, request, asker, waiter, now_ms)
        return out if self._with_classic_members(request.group_id) is None else self._upheld(request.group_id, out)

    def sync(self, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> Outcome:
        """SyncGroup; the answer is `reply`, or is released to `waiter` later."""
        modern = self._with_classic_members(request.group_id)
        if modern is not None:
            return classic_members.sync(self.state, modern, request, now_ms)
        return sync(self.state, request, waiter, now_ms)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Heartbeat: the error to answer, never a record."""
        modern = self._with_classic_members(group_id)
        if modern is not None:
            return classic_members.heartbeat(self.state, modern, member_id, instance_id, generation, now_ms)
        return membership.heartbeat(self.state, group_id, member_id, instance_id, generation, now_ms)

    def leave(self, group_id: str, members: list[MemberIdentity], now_ms: int) -> Outcome:
        """LeaveGroup, for all of `members`."""
        modern = self._with_classic_members(group_id)
        if modern is not None:
            return self._upheld(group_id, classic_members.leave(self.state, modern, members, now_ms))
        return membership.leave(self.state, group_id, members, now_ms)

    def _with_classic_members(self, group_id: str) -> ConsumerGroup | None:
        """The consumer group of this id: where it is one, members of the classic protocol speak to it."""
        modern = self.state.modern.latest.get(group_id)
        return modern if isinstance(modern, ConsumerGroup) else None

    def know_topics(self, topics: Topics) -> None:
        """What consumer groups know of the cluster from here on: each looks at its next heartbeat what that changes."""
        self.state.topics = topics

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, sender: Sender, now_ms: int) -> Outcome:
        """ConsumerGroupHeartbeat of somebody who may read the group and the topics that it names."""
        return self._upheld(request.group_id, heartbeat(self.state, request, sender, now_ms))

    def regex_found(self, look_up: LookUp, regex: str, means: frozenset[str], now_ms: int) -> Outcome:
        """A part of the answer to a question of a heartbeat's: the topics of one of its regular expressions."""
        return regexes.found(self.state, look_up, regex, means, now_ms)

    def look_up_finished(self, look_up: LookUp) -> Outcome:
        """The answer to a question of a heartbeat's is complete, or will never be."""
        return regexes.finished(self.state, look_up)

    def _upheld(self, group_id: str, out: Outcome) -> Outcome:
        """Where the log does not take what would end members of a consumer group, their time goes on; a classic group
        that was to take the place of an empty one is none."""
        if not out.records:
            return out
        then = out.then

        def stored(error: ErrorCode, now_ms: int) -> Outcome:
            follows = Outcome() if then is None else then(error, now_ms)
            group = self.state.modern.latest.get(group_id)
            if error is not ErrorCode.NONE and isinstance(group, ConsumerGroup):
                stand_up(self.state, group, now_ms)
                self._dissolve(group_id, now_ms, follows)
            return follows

        out.then = stored
        return out

    def commit(self, request: OffsetCommitRequest, api_version: int, now_ms: int, principal: str = "") -> Outcome:
        """OffsetCommit of topics that exist."""
        return offsets.commit(self.state, request, api_version, now_ms, principal)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, api_version: int, now_ms: int, principal: str = ""
    ) -> Outcome:
        """TxnOffsetCommit of topics that exist."""
        return offsets.commit_in_transaction(self.state, request, api_version, now_ms, principal)

    def fetching(
        self, request: OffsetFetchRequestGroup, require_stable: bool
    ) -> Generator[int, None, OffsetFetchResponseGroup]:
        """OffsetFetch of one group; reads what is committed. It yields how many steps it has made: see
        `offsets.PARTITIONS_PER_STEP`."""
        return offsets.fetching(self.state, request, require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Outcome:
        """OffsetDelete of topics that exist."""
        return offsets.delete_offsets(self.state, request)

    def delete_groups(self, group_ids: list[str]) -> Outcome:
        """DeleteGroups: `reply` is a list of results, in order."""
        out = Outcome(reply=[])
        seen: set[str] = set()
        for group_id in group_ids:
            error, records = offsets.delete_group(self.state, group_id)
            if group_id not in seen:
                out.records.extend(records)
            seen.add(group_id)
            out.reply.append(DeletableGroupResult(group_id=group_id, error_code=error))
        return out

    def forget_topics(self, deleted: Mapping[str, bytes], exists: Collection[str]) -> Outcome:
        """Topics (name -> id) were deleted: so are their offsets."""
        return offsets.forget_topics(self.state, deleted, exists)

    def forget_missing(self, topic_ids: Container[bytes]) -> Outcome:
        """Offsets of topics whose id is none of these are removed; to be called once, after `loaded`."""
        return offsets.forget_missing(self.state, topic_ids)

    def describe_group(self, group_id: str) -> DescribedGroup:
        """DescribeGroups for one group; a group that is not there is Dead with GROUP_ID_NOT_FOUND and a sentence."""
        stored = self.state.classic.committed(group_id)
        if stored is None:
            modern = self.state.modern.committed(group_id) is not None
            return DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is not a classic group." if modern else f"Group {group_id} not found.",
                group_id=group_id,
                group_state=GroupState.DEAD.value,
            )
        group = self._as_told(group_id, stored)
        stable = group.state is GroupState.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(stored.protocol or "") if stable else "",
            members=_stored_members(stored.members) if stable else _living_members(group),
        )

    def describing_consumer_group(self, group_id: str) -> Generator[int, None, DescribedConsumerGroup]:
        """ConsumerGroupDescribe for one group; GROUP_ID_NOT_FOUND where there is none, or one of another type. It
        yields how many members it has looked at since the last time."""
        group = self.state.modern.committed(group_id)
        if not isinstance(group, ConsumerGroup):
            exists = group is not None or self.state.classic.committed(group_id) is not None
            return DescribedConsumerGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is not a consumer group."
                if exists
                else f"Group {group_id} not found.",
                group_id=group_id,
            )
        return (yield from describe.describing(group, self.state.topics, self.state.settings_of(group_id).assignors))

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """ListGroups, filtered by lower-case state and type names; an empty filter lets everything pass."""
        found = []
        for group_id, stored in self.state.classic.committed_items():
            group = self._as_told(group_id, stored)
            found.append(ListedGroup(group_id, group.protocol_type or "", group.state.value, "classic"))
        for group_id, modern in self.state.modern.committed_items():
            protocol = CONSUMER_PROTOCOL if modern.type == "consumer" else modern.type
            found.append(ListedGroup(group_id, protocol, modern.committed_state, modern.type))
        return [
            each
            for each in sorted(found, key=lambda each: each.group_id)
            if (not states or each.group_state.lower() in states) and (not types or each.group_type in types)
        ]

    def _as_told(self, group_id: str, stored: StoredGroup) -> Group:
        """A committed group: as it lives; where it is to be removed, or came up from more than is committed, as it is
        stored."""
        group = self.state.groups.get(group_id)
        if group is None or (group.state is GroupState.STABLE and not stored.members):
            return restored(group_id, stored)
        return group

    # --- time --------------------------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Call `due` no later than this."""
        return self.state.timers.deadline_ms()

    def clock_stepped(self, by_ms: int) -> None:
        """Somebody set the wall clock: no time passed, so that no session ends for it."""
        self.state.timers.shift(by_ms)

    def due(self, now_ms: int) -> Outcome | None:
        """What the first timer whose time has come decides; None when there is none left. Call until None."""
        key = self.state.timers.due(now_ms)
        if key is None:
            return None
        out = Outcome()
        if key == EXPIRE_KEY:
            self.state.timers.schedule(EXPIRE_KEY, now_ms + self.state.settings.retention_check_interval_ms)
            return offsets.expire(self.state, now_ms)
        if key[0].startswith("consumer-"):
            consumer_group = self.state.modern.latest.get(key[1])
            if isinstance(consumer_group, ConsumerGroup):
                fencing.expired(self.state, consumer_group, key[0], key[2], now_ms, out)
            return self._upheld(key[1], out)
        group = self.state.groups.get(key[1])
        if group is None:
            return out
        if key[0] == "session":
            rebalance.session_expired(self.state, group, key[2], now_ms, out)
        elif key[0] == "join":
            rebalance.join_phase_expired(self.state, group, now_ms, out)
        else:
            rebalance.sync_phase_expired(self.state, group, now_ms, out)
        return out

    # --- the log -----------------------------------------------------------------------------------------------------

    encode = staticmethod(encode)
    decode = staticmethod(decode)

    def apply(self, record: Record, log_offset: int, producer_id: int = -1) -> None:
        """See Shard.apply."""
        if isinstance(record, OffsetRecord):
            if record.offset is not None:
                record.offset.log_offset = log_offset
                if producer_id >= 0:
                    offsets.hold(self.state, producer_id, record)
                    return
            offsets.put(self.state, record)
        elif isinstance(record, GroupRecord):
            self._apply_group(record)
        else:
            self._apply_newer(record)

    def apply_marker(self, producer_id: int, committed: bool) -> None:
        """See Shard.apply_marker."""
        offsets.end_transaction(self.state, producer_id, committed)

    def _apply_group(self, record: GroupRecord) -> None:
        state, group_id = self.state, record.group_id
        if record.stored is None:
            state.classic.remove(group_id)
            group = state.groups.pop(group_id, None)
            if group is not None:
                self._retire(group)
            return
        state.classic.put(group_id, record.stored)
        group = state.groups.get(group_id)
        if group is None or (group.protocol_type is None and record.stored.members):
            # A consumer group became a classic one: from here on it lives as it is stored.
            state.groups[group_id] = restored(group_id, record.stored)

    def _dissolve(self, group_id: str, now_ms: int, out: Outcome) -> None:
        """What lives of a classic group is not in the log, or not any more: whoever waits in it hears of that."""
        group = self.state.groups.pop(group_id, None)
        if group is not None:
            self._retire(group)
            _send_away(group, now_ms, out)

    def _retire(self, group: Group) -> None:
        for member_id in group.pending_joins:
            self.state.timers.cancel(session_key(group.id, member_id))
        for member in group.members.values():
            self.state.timers.cancel(member.session_key)
        self.state.timers.cancel(rebalance.join_key(group.id))
        self.state.timers.cancel(rebalance.sync_key(group.id))
        group.state = GroupState.DEAD

    def _apply_newer(self, record: ConsumerRecord | ModernRecord) -> None:
        state, group_id = self.state, record.group_id
        group_type = ConsumerGroup.type if isinstance(record, ConsumerRecord) else modern_type(record.kind)
        modern = state.modern.latest.get(group_id)
        if modern is None or modern.type != group_type:
            # A tombstone of a group of another type is what compaction left of an earlier one of that name.
            if record.value is None:
                return
            if isinstance(record, ConsumerRecord):
                modern = ConsumerGroup(group_id, state.timeline)
            else:
                modern = ModernGroup(group_id, group_type, state.timeline)
            add_to(state.assignment_bytes, None, -_made_bytes(state.modern.latest.get(group_id)))
            state.modern.put(group_id, modern)
            if state.classic.latest.get(group_id) is NEVER_JOINED and state.groups[group_id].protocol_type is None:
                # It only held offsets that came before: they belong to the group of the newer kind.
                state.classic.remove(group_id)
                del state.groups[group_id]
        if isinstance(modern, ConsumerGroup):
            assert isinstance(record, ConsumerRecord)
            before = modern.made_bytes
            modern.apply(record)
            add_to(state.assignment_bytes, None, modern.made_bytes - before)
        else:
            assert isinstance(record, ModernRecord)
            modern.apply(record)
        if modern.is_gone:
            state.modern.remove(group_id)
            if group_id in state.offsets.latest and group_id not in state.classic.latest:
                state.classic.put(group_id, NEVER_JOINED)
                state.groups.setdefault(group_id, Group(group_id))

    def revert(self, now_ms: int) -> Outcome:
        """See Shard.revert: groups of which a record was lost stand up from what is stored, as after a load."""
        state, out = self.state, Outcome()
        touched = state.classic.uncommitted()
        self.timeline.revert()
        for group_id in touched:
            self._dissolve(group_id, now_ms, out)
            if group_id in state.classic.latest:
                self._stand_up(group_id, now_ms)
        self._stand_up_consumer_groups(now_ms)
        return out

    def _stand_up_consumer_groups(self, now_ms: int) -> None:
        for modern in self.state.modern.latest.values():
            if isinstance(modern, ConsumerGroup):
                stand_up(self.state, modern, now_ms)

    def _stand_up(self, group_id: str, now_ms: int) -> Group:
        """A group as it is stored; its members' sessions start again."""
        group = self.state.groups[group_id] = restored(group_id, self.state.classic.latest[group_id])
        for member in group.members.values():
            rebalance.touch(self.state, member, now_ms)
        return group

    # --- loading and unloading ---------------------------------------------------------------------------------------

    def loaded(self, now_ms: int) -> Outcome:
        """Groups stand up from what was stored, their members' sessions start again."""
        out = Outcome()
        for group_id in self.state.classic.latest:
            group = self._stand_up(group_id, now_ms)
            if len(group.members) > self.state.settings.max_size:
                rebalance.prepare(self.state, group, "group.max.size is lower than its size now", now_ms, out)
        self._stand_up_consumer_groups(now_ms)
        self.state.timers.schedule(EXPIRE_KEY, now_ms + self.state.settings.retention_check_interval_ms)
        return out

    def unload(self, now_ms: int) -> Outcome:
        """The partition is led elsewhere now: whoever waits hears NOT_COORDINATOR."""
        out = Outcome()
        for group in self.state.groups.values():
            _send_away(group, now_ms, out)
        return out


def _made_bytes(group: object) -> int:
    """What is made for a group, in bytes: for consumer groups alone."""
    return group.made_bytes if isinstance(group, ConsumerGroup) else 0


def _send_away(group: Group, now_ms: int, out: Outcome) -> None:
    """The group is not coordinated any more: whoever waits in it looks for its coordinator again."""
    error = ErrorCode.NOT_COORDINATOR
    group.move(GroupState.DEAD, now_ms)
    for member in group.members.values():
        rebalance.answer_join(group, member, rebalance.join_error(member.id, error), out)
        rebalance.answer_sync(member, SyncGroupResponse(error_code=error), out)


def _stored_members(members: list[MemberMetadata]) -> list[DescribedGroupMember]:
    """The members of a stable group, as its generation is stored."""
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.subscription,
            member_assignment=member.assignment,
        )
        for member in members
    ]


def _living_members(group: Group) -> list[DescribedGroupMember]:
    """The members of a group between two generations: they live in memory alone, and there is no protocol yet."""
    return [
        DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
