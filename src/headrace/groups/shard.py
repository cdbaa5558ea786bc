"""One shard of groups: a machine for the coordinators' runtime (`machine.runtime.Shard`), independent of the topic.

A request is decided into an `Outcome`; `apply` is the only writer of the log's state, live and at a load alike. Fetch,
describe and list read committed state only. The differences between kinds of groups are in `kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.groups import offsets
from headrace.groups.classic import describe as classic_describe
from headrace.groups.classic import lifecycle as classic_lifecycle
from headrace.groups.classic.group import CONSUMER_PROTOCOL
from headrace.groups.consumer import describe, regexes
from headrace.groups.consumer.heartbeat import heartbeat
from headrace.groups.consumer.kind import restored_on_failure
from headrace.groups.kinds import KIND_OF, KIND_OF_TIMER, KINDS, kind_of
from headrace.groups.records import OffsetRecord, Record, decode, encode
from headrace.groups.shard_state import GroupShardState, Tallies
from headrace.machine.outcome import Outcome, Waiter
from headrace.wire.messages.k16_list_groups import ListedGroup
from headrace.wire.messages.k42_delete_groups import DeletableGroupResult

if TYPE_CHECKING:
    from headrace.groups.consumer.heartbeat import Sender
    from headrace.groups.consumer.regexes import LookUp
    from headrace.groups.consumer.settings import ConsumerSettings
    from headrace.groups.group_client import GroupClient
    from headrace.groups.modern.topics import Topics
    from headrace.groups.settings import GroupSettings
    from headrace.machine.timed_steps import TimedSteps
    from headrace.machine.timers import TimerKey
    from headrace.wire.errors import ErrorCode
    from headrace.wire.messages.k08_offset_commit import OffsetCommitRequest
    from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
    from headrace.wire.messages.k11_join_group import JoinGroupRequest
    from headrace.wire.messages.k13_leave_group import MemberIdentity
    from headrace.wire.messages.k14_sync_group import SyncGroupRequest
    from headrace.wire.messages.k15_describe_groups import DescribedGroup
    from headrace.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
    from headrace.wire.messages.k47_offset_delete import OffsetDeleteRequest
    from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from headrace.wire.messages.k69_consumer_group_describe import DescribedGroup as DescribedConsumerGroup

EXPIRE_KEY: TimerKey = ("expire",)


class GroupShard:
    """The groups of one partition.

    `group_count` returns how many groups all shards have together; None if this is the only one. `settings_of` returns
    the settings of a consumer group, by its id; None if no group has settings of its own.
    """

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        group_count: Callable[[], int] | None = None,
        settings_of: Callable[[str], ConsumerSettings] | None = None,
        tallies: Tallies | None = None,
    ) -> None:
        self.state = GroupShardState(settings, new_id, group_count or (lambda: self.group_count), settings_of, tallies)
        self.timeline = self.state.timeline
        self._expiring: list[list[str]] = []
        """The parts of the groups that the running expiry check has not reached yet."""

    @property
    def group_count(self) -> int:
        """The number of groups of all kinds."""
        return len(self.state.groups) + len(self.state.modern.latest)

    # --- the classic protocol ----------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: GroupClient, waiter: Waiter, now_ms: int) -> Outcome:
        """Decides a JoinGroup: the answer is the reply, or is released to `waiter` later."""
        return kind_of(self.state, request.group_id).join(self.state, request, client, waiter, now_ms)

    def sync(self, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> Outcome:
        """Decides a SyncGroup: the answer is the reply, or is released to `waiter` later."""
        return kind_of(self.state, request.group_id).sync(self.state, request, waiter, now_ms)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Decides a Heartbeat; returns the error of its answer. It never writes a record."""
        kind = kind_of(self.state, group_id)
        return kind.heartbeat(self.state, group_id, member_id, instance_id, generation, now_ms)

    def leave(self, group_id: str, members: list[MemberIdentity], now_ms: int) -> Outcome:
        """Decides a LeaveGroup of all `members`."""
        return kind_of(self.state, group_id).leave(self.state, group_id, members, now_ms)

    # --- consumer groups ---------------------------------------------------------------------------------------------

    def know_topics(self, topics: Topics) -> None:
        """Sets the topics of the cluster: each modern group compares its own with them at its next heartbeat."""
        self.state.topics = topics

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, sender: Sender, now_ms: int) -> Outcome:
        """Decides a ConsumerGroupHeartbeat of a client that may read the group and the topics that it names."""
        return restored_on_failure(self.state, request.group_id, heartbeat(self.state, request, sender, now_ms))

    def regex_found(self, look_up: LookUp, regex: str, means: frozenset[str], now_ms: int) -> Outcome:
        """Takes the topics that one of the regular expressions of a look-up matches."""
        return regexes.found(self.state, look_up, regex, means, now_ms)

    def look_up_finished(self, look_up: LookUp) -> Outcome:
        """Ends a look-up whose results have all been taken."""
        return regexes.finished(self.state, look_up)

    def describing_consumer_group(self, group_id: str) -> Generator[int, None, DescribedConsumerGroup]:
        """Describes a group for ConsumerGroupDescribe; GROUP_ID_NOT_FOUND if there is no consumer group of this id.
        Yields how many members it has looked at since the last time."""
        return describe.describing(self.state, group_id)

    # --- offsets -----------------------------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, api_version: int, now_ms: int, principal: str = "") -> Outcome:
        """Decides an OffsetCommit of topics that exist."""
        return offsets.commit(self.state, request, api_version, now_ms, principal)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, api_version: int, now_ms: int, principal: str = ""
    ) -> Outcome:
        """Decides a TxnOffsetCommit of topics that exist."""
        return offsets.commit_in_transaction(self.state, request, api_version, now_ms, principal)

    def fetching(
        self, request: OffsetFetchRequestGroup, require_stable: bool
    ) -> Generator[int, None, OffsetFetchResponseGroup]:
        """Reads the committed offsets of one group for OffsetFetch. Yields the number of steps since the last time: see
        `offsets.PARTITIONS_PER_STEP`."""
        return offsets.fetching(self.state, request, require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Outcome:
        """Decides an OffsetDelete of topics that exist."""
        return offsets.delete_offsets(self.state, request)

    def delete_groups(self, group_ids: list[str]) -> Outcome:
        """Decides a DeleteGroups: `reply` is a list of results, in order."""
        out = Outcome(reply=[])
        seen: set[str] = set()
        for group_id in group_ids:
            error, records = offsets.delete_group(self.state, group_id)
            if group_id not in seen:
                out.records.extend(records)
            seen.add(group_id)
            out.reply.append(DeletableGroupResult(group_id=group_id, error_code=error))
        return out

    def forget_topics(self, deleted: Mapping[str, bytes], exists: Collection[str], group_ids: Iterable[str]) -> Outcome:
        """Removes the groups' offsets in deleted topics (name -> id)."""
        return offsets.forget_topics(self.state, deleted, exists, group_ids)

    def parts(self) -> list[list[str]]:
        """Returns the ids of all groups in parts for `forget_topics` and `forget_missing`, one turn each."""
        return offsets.parts(self.state)

    def forget_missing(self, topic_ids: Container[bytes], group_ids: Iterable[str]) -> Outcome:
        """Removes the groups' offsets in topics that do not exist, given the ids of those that do; to be called for all
        groups after a load."""
        return offsets.forget_missing(self.state, topic_ids, group_ids)

    # --- groups of all kinds -----------------------------------------------------------------------------------------

    def describe_group(self, group_id: str) -> DescribedGroup:
        """Describes a group for DescribeGroups; Dead, with GROUP_ID_NOT_FOUND, if there is no classic group of this
        id."""
        return classic_describe.describe(self.state, group_id)

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """Lists committed groups by lower-case names of states and types; an empty filter lets everything pass."""
        found = list(classic_describe.listed(self.state))
        for group_id, group in self.state.modern.committed_items():
            protocol_type = CONSUMER_PROTOCOL if group.type == "consumer" else group.type
            found.append(ListedGroup(group_id, protocol_type, group.committed_state, group.type))
        return [
            each
            for each in sorted(found, key=lambda each: each.group_id)
            if (not states or each.group_state.lower() in states) and (not types or each.group_type in types)
        ]

    # --- time --------------------------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Returns the time by which `due` must be called."""
        return self.state.timers.deadline_ms()

    def clock_stepped(self, by_ms: int) -> None:
        """Shifts all deadlines after the wall clock was set, so that no session expires because of it."""
        self.state.timers.shift(by_ms)

    def due(self, now_ms: int) -> Outcome | None:
        """Decides what follows from the first expired timer; returns None if there is none. Call it until None."""
        key = self.state.timers.due(now_ms)
        if key is None:
            return None
        if key == EXPIRE_KEY:
            return self._expire(now_ms)
        return KIND_OF_TIMER[key[0]].due(self.state, key, now_ms)

    def _expire(self, now_ms: int) -> Outcome:
        """Removes the expired offsets of one part of the groups. The next part follows a millisecond later."""
        if not self._expiring:
            self._expiring = self.parts()
        part = self._expiring.pop() if self._expiring else ()
        in_ms = 1 if self._expiring else self.state.settings.retention_check_interval_ms
        self.state.timers.schedule(EXPIRE_KEY, now_ms + in_ms)
        return offsets.expire(self.state, part, now_ms)

    # --- the log -----------------------------------------------------------------------------------------------------

    encode = staticmethod(encode)
    decode = staticmethod(decode)

    def apply(self, record: Record, log_offset: int, producer_id: int = -1) -> None:
        """Applies a record that is in the log (Shard.apply)."""
        if not isinstance(record, OffsetRecord):
            KIND_OF[record.group_type].apply(self.state, record)
            return
        if record.offset is not None:
            record.offset.log_offset = log_offset
            if producer_id >= 0:
                offsets.hold(self.state, producer_id, record)
                return
        offsets.put(self.state, record)

    def apply_marker(self, producer_id: int, committed: bool) -> None:
        """Applies the end of a transaction (Shard.apply_marker)."""
        offsets.end_transaction(self.state, producer_id, committed)

    def revert(self, now_ms: int) -> Outcome:
        """Reverts the tables to the committed state (Shard.revert).

        Groups with lost records are restored from the remaining ones, as after a load.
        """
        out = Outcome()
        lost = [(kind, kind.uncommitted(self.state)) for kind in KINDS]
        for group_id in self.state.classic.uncommitted():
            classic_lifecycle.dissolve(self.state, group_id, now_ms, out)
        self.timeline.revert()
        for kind, group_ids in lost:
            kind.reverted(self.state, group_ids, now_ms)
        return out

    # --- loading and unloading ---------------------------------------------------------------------------------------

    def starting(self, now_ms: int) -> TimedSteps[Outcome]:
        """Restores all groups from their records, about a member a step (Shard.starting). The members' sessions start
        again."""
        out = Outcome()
        for kind in KINDS:
            now_ms = yield from kind.starting(self.state, now_ms, out)
        self.state.is_loading = False
        self.state.timers.schedule(EXPIRE_KEY, now_ms + self.state.settings.retention_check_interval_ms)
        return out

    def unload(self, now_ms: int) -> Outcome:
        """Answers all waiting members with NOT_COORDINATOR: another broker leads the partition now."""
        out = Outcome()
        classic_lifecycle.unload(self.state, now_ms, out)
        self.state.member_bytes.close()
        return out
