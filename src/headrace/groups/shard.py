"""One coordinator shard: the groups of one `__consumer_offsets` partition, as one machine.

A request is decided into an `Outcome`; `apply` is the only writer of what the log holds, live and at a reload alike.
A shard that is loaded is filled by `replay`, record by record, and opened by `loaded`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Mapping

from headrace.groups import membership, offsets, rebalance
from headrace.groups.group import CONSUMER_PROTOCOL, Group, Member, Waiter, session_key
from headrace.groups.join import Asker, join
from headrace.groups.offsets_table import OffsetTable, PartitionKey
from headrace.groups.outcome import GroupSettings, ModernGroup, Outcome, ShardState, modern_type
from headrace.groups.records import GroupRecord, ModernRecord, Offset, OffsetRecord, Record, StoredGroup
from headrace.groups.states import GroupState
from headrace.groups.sync import sync
from headrace.groups.timers import TimerKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k08_offset_commit import OffsetCommitRequest
from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from headrace.wire.messages.k11_join_group import JoinGroupRequest
from headrace.wire.messages.k13_leave_group import MemberIdentity
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.wire.messages.k15_describe_groups import DescribedGroup, DescribedGroupMember
from headrace.wire.messages.k16_list_groups import ListedGroup
from headrace.wire.messages.k42_delete_groups import DeletableGroupResult
from headrace.wire.messages.k47_offset_delete import OffsetDeleteRequest

EXPIRE_KEY: TimerKey = ("expire",)


class GroupShard:
    """The machine of one coordinator partition.

    `group_count` says how many groups there are with those of the other shards; None where this is the only one.
    """

    def __init__(
        self, settings: GroupSettings, new_id: Callable[[], str], group_count: Callable[[], int] | None = None
    ) -> None:
        self.state = ShardState(settings, new_id, group_count or (lambda: self.group_count))
        self._uncommitted: deque[tuple[int, str, PartitionKey, Offset | None]] = deque()
        """Appended offset changes in order, each with the sequence number of its append."""
        self._committed_sequence = -1

    @property
    def group_count(self) -> int:
        """Groups of all kinds."""
        return len(self.state.groups) + len(self.state.modern)

    # --- requests ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, asker: Asker, waiter: Waiter, now_ms: int) -> Outcome:
        """JoinGroup; the answer is `reply`, or is released to `waiter` later."""
        return join(self.state, request, asker, waiter, now_ms)

    def sync(self, request: SyncGroupRequest, waiter: Waiter) -> Outcome:
        """SyncGroup; the answer is `reply`, or is released to `waiter` later."""
        return sync(self.state, request, waiter)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Heartbeat: the error to answer, never a record."""
        return membership.heartbeat(self.state, group_id, member_id, instance_id, generation, now_ms)

    def leave(self, group_id: str, members: list[MemberIdentity], now_ms: int) -> Outcome:
        """LeaveGroup, for all of `members`."""
        return membership.leave(self.state, group_id, members, now_ms)

    def commit(self, request: OffsetCommitRequest, api_version: int, now_ms: int) -> Outcome:
        """OffsetCommit of topics that exist."""
        return offsets.commit(self.state, request, api_version, now_ms)

    def fetch(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """OffsetFetch of one group; reads what is committed."""
        return offsets.fetch(self.state, request, require_stable)

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
        group = self.state.groups.get(group_id)
        if group is None:
            modern = group_id in self.state.modern
            return DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is not a classic group." if modern else f"Group {group_id} not found.",
                group_id=group_id,
                group_state=GroupState.DEAD.value,
            )
        protocol = group.protocol if group.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.protocols[protocol] if protocol is not None else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """ListGroups, filtered by lower-case state and type names; an empty filter lets everything pass."""
        found = [
            ListedGroup(group.id, group.protocol_type or "", group.state.value, "classic")
            for group in self.state.groups.values()
        ]
        for modern in self.state.modern.values():
            found.append(ListedGroup(modern.id, _modern_protocol(modern), modern.state, modern.type))
        return [
            each
            for each in sorted(found, key=lambda each: each.group_id)
            if (not states or each.group_state.lower() in states) and (not types or each.group_type in types)
        ]

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

    def apply(self, record: Record, sequence: int = -1) -> None:
        """Takes in a record that is in the log: the only writer of what the log holds.

        `sequence` numbers the live appends; the change is seen by fetches once `committed` has reached it.
        """
        if isinstance(record, OffsetRecord):
            self._apply_offset(record, sequence)
        elif isinstance(record, GroupRecord):
            self._apply_group(record)
        else:
            self._apply_modern(record)

    def committed(self, sequence: int) -> None:
        """Everything appended up to `sequence` is committed."""
        self._committed_sequence = sequence
        while self._uncommitted and self._uncommitted[0][0] <= sequence:
            _, group_id, key, offset = self._uncommitted.popleft()
            table = self.state.offsets[group_id]
            table.commit(key, offset)
            if not table:
                del self.state.offsets[group_id]

    def _apply_offset(self, record: OffsetRecord, sequence: int) -> None:
        state = self.state
        group_id, key, offset = record.group_id, (record.topic, record.partition), record.offset
        table = state.offsets.get(group_id)
        if offset is not None:
            if group_id not in state.groups and group_id not in state.modern:
                state.groups[group_id] = Group(group_id)
            if table is None:
                table = state.offsets[group_id] = OffsetTable()
        elif table is None:
            return
        else:
            for pending in table.pending.values():
                pending.pop(key, None)
        if sequence > self._committed_sequence:
            table.put_uncommitted(key, offset)
            self._uncommitted.append((sequence, group_id, key, offset))
        else:
            table.put(key, offset)
            if not table:
                del state.offsets[group_id]

    def _apply_group(self, record: GroupRecord) -> None:
        if record.stored is None:
            group = self.state.groups.pop(record.group_id, None)
            if group is not None:
                self._retire(group)
            return
        if record.group_id not in self.state.groups:
            self.state.groups[record.group_id] = Group(record.group_id)
        self.state.groups[record.group_id].stored = record.stored

    def _retire(self, group: Group) -> None:
        for member_id in group.pending_joins:
            self.state.timers.cancel(session_key(group.id, member_id))
        for member in group.members.values():
            self.state.timers.cancel(member.session_key)
        self.state.timers.cancel(rebalance.join_key(group.id))
        self.state.timers.cancel(rebalance.sync_key(group.id))

    def _apply_modern(self, record: ModernRecord) -> None:
        state = self.state
        modern = state.modern.get(record.group_id)
        if modern is None:
            if record.value is None:
                return
            modern = state.modern[record.group_id] = ModernGroup(record.group_id, modern_type(record.kind))
            group = state.groups.get(record.group_id)
            if group is not None and group.stored is None and group.protocol_type is None:
                # It only held offsets that came before: they belong to the group of the newer kind.
                del state.groups[record.group_id]
        modern.apply(record)
        if not modern.keys:
            del state.modern[record.group_id]
            if record.group_id in state.offsets and record.group_id not in state.groups:
                state.groups[record.group_id] = Group(record.group_id)

    # --- loading and unloading ---------------------------------------------------------------------------------------

    def replay(self, record: Record, producer_id: int = -1) -> None:
        """A record read back from the log; `producer_id` is that of its batch if it is transactional, else -1."""
        if producer_id >= 0 and isinstance(record, OffsetRecord) and record.offset is not None:
            if record.group_id not in self.state.groups and record.group_id not in self.state.modern:
                self.state.groups[record.group_id] = Group(record.group_id)
            offsets.hold(self.state, producer_id, record)
            return
        self.apply(record)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """A transaction marker read back from the log."""
        offsets.end_transaction(self.state, producer_id, committed)

    def loaded(self, now_ms: int) -> Outcome:
        """Everything is replayed: groups stand up from what was stored, their members' sessions start anew."""
        out = Outcome()
        for group in list(self.state.groups.values()):
            if group.stored is not None:
                restore(group, group.stored)
            for member in group.members.values():
                rebalance.touch(self.state, member, now_ms)
            if len(group.members) > self.state.settings.max_size:
                rebalance.prepare(self.state, group, "group.max.size is lower than its size now", now_ms, out)
        self.state.timers.schedule(EXPIRE_KEY, now_ms + self.state.settings.retention_check_interval_ms)
        return out

    def unload(self, now_ms: int) -> Outcome:
        """The partition is led elsewhere now: whoever waits hears NOT_COORDINATOR."""
        out = Outcome()
        error = ErrorCode.NOT_COORDINATOR
        for group in self.state.groups.values():
            group.move(GroupState.DEAD, now_ms)
            for member in group.members.values():
                rebalance.answer_join(group, member, rebalance.join_error(member.id, error), out)
                rebalance.answer_sync(member, SyncGroupResponse(error_code=error), out)
        return out


def _modern_protocol(modern: ModernGroup) -> str:
    return CONSUMER_PROTOCOL if modern.type == "consumer" else modern.type


def restore(group: Group, stored: StoredGroup) -> None:
    """A group as its last stored generation left it: stable with those members, or empty."""
    assert not group.members
    group.generation = stored.generation
    group.protocol_type = stored.protocol_type or None
    group.protocol = stored.protocol
    group.state = group.previous_state = GroupState.STABLE if stored.members else GroupState.EMPTY
    group.state_since_ms = stored.current_state_timestamp
    for said in stored.members:
        member = Member(
            id=said.member_id,
            instance_id=said.group_instance_id,
            client_id=said.client_id,
            client_host=said.client_host,
            session_timeout_ms=said.session_timeout,
            rebalance_timeout_ms=said.rebalance_timeout if said.rebalance_timeout >= 0 else said.session_timeout,
            protocols={stored.protocol or "": said.subscription},
            session_key=session_key(group.id, said.member_id),
            assignment=said.assignment,
        )
        group.add(member, stored.protocol_type, None)
    group.leader = stored.leader if stored.leader in group.members else next(iter(group.members), None)
    group.subscribed = group.read_subscriptions()
