"""JoinGroup: a member joins, rejoins, or takes part in the next generation.

Sources: KIP-394 (MEMBER_ID_REQUIRED), KIP-345 (static members), KIP-559 (protocol type and name), KIP-814 (a returning
static leader skips the assignment), KIP-800 (reasons).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.groups.classic.group import Group, Member, session_key, size_of
from headrace.groups.classic.rebalance import (
    answer_join,
    answer_sync,
    complete_if_joined,
    drop_member,
    join_error,
    joined,
    members_for_leader,
    prepare,
    rebalance_or_complete,
    snapshot,
    touch,
)
from headrace.groups.classic.states import GroupState
from headrace.groups.records import GroupRecord
from headrace.groups.shard_state import NEW_MEMBER_JOIN_TIMEOUT_MS, PENDING_MEMBERS_MAX, GroupShardState
from headrace.machine.outcome import Outcome, Waiter
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k11_join_group import JoinGroupRequest
from headrace.wire.messages.k14_sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from headrace.groups.group_client import GroupClient
    from headrace.groups.modern.group import ModernGroup

PROTOCOLS_MAX: Final = 100
"""The limit of protocols of one member: they are scanned several times in one turn."""
_MEMBER_ID_REQUIRED_FROM: Final = 4
"""The JoinGroup version from which a member must come back with the id that it was given (KIP-394)."""
_SKIP_ASSIGNMENT_FROM: Final = 9


def join(
    shard: GroupShardState, request: JoinGroupRequest, client: GroupClient, waiter: Waiter, now_ms: int
) -> Outcome:
    """Decides a JoinGroup. `waiter` is answered now, or when the rebalance is over.

    An answer without a record describes in-memory state, and does not wait for the log: it is not a `reply`.
    """
    refused = refusal(shard, request, client)
    return decide(shard, request, client, waiter, now_ms) if refused is None else refused.at_once(waiter)


def refusal(shard: GroupShardState, request: JoinGroupRequest, client: GroupClient) -> Outcome | None:
    """Returns the answer to a JoinGroup that is refused in every group; None if it is not."""
    error = _check(shard, request)
    if error is not ErrorCode.NONE:
        return refuse(request.member_id, error)
    protocols = {each.name: each.metadata for each in request.protocols}
    if not shard.has_room_for(client.principal, _growth(shard, request, protocols)):
        return refuse(request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return None


def _growth(shard: GroupShardState, request: JoinGroupRequest, protocols: dict[str, bytes]) -> int:
    """Returns how many more bytes a member would keep in memory; 0 if not more than now."""
    group = shard.groups.get(request.group_id)
    known = None if group is None else group.members.get(request.member_id)
    return size_of(protocols) if known is None else max(0, size_of(protocols) - size_of(known.protocols))


def _check(shard: GroupShardState, request: JoinGroupRequest) -> ErrorCode:
    settings = shard.settings
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if len(request.protocols) > PROTOCOLS_MAX:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def decide(
    shard: GroupShardState,
    request: JoinGroupRequest,
    client: GroupClient,
    waiter: Waiter,
    now_ms: int,
    replaced: ModernGroup | None = None,
) -> Outcome:
    """Decides a JoinGroup into a classic group, which may be new.

    `replaced` is a modern group without members that becomes the classic one; its offsets stay.
    """
    out = _decide(shard, request, client, waiter, now_ms, replaced)
    return out if out.records else out.at_once(waiter)


def _decide(
    shard: GroupShardState,
    request: JoinGroupRequest,
    client: GroupClient,
    waiter: Waiter,
    now_ms: int,
    replaced: ModernGroup | None,
) -> Outcome:
    group = shard.groups.get(request.group_id)
    is_new = group is None
    if group is None:
        if request.member_id:
            return refuse(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if not shard.has_room_for_group(client.principal, now_ms):
            return refuse("", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group = Group(request.group_id)
    joining = _Joining(shard, group, request, client, waiter, now_ms)
    if not joining.has_room():
        return joining.turned_away()
    if not group.supports(request.protocol_type, joining.protocols):
        return refuse(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if replaced is not None:
        joining.out.records.extend(replaced.tombstones())
    if is_new:
        shard.add_group(group)
        shard.group_made(group.id, client.principal)
        joining.out.records.append(GroupRecord(group.id, snapshot(group, {})))
    if request.member_id:
        joining.known()
    else:
        joining.unknown()
    return joining.out


def refuse(member_id: str, error: ErrorCode) -> Outcome:
    """Returns the outcome that answers an error."""
    return Outcome(join_error(member_id, error))


class _Joining:
    """One JoinGroup under decision; `out` collects the outcome."""

    def __init__(
        self,
        shard: GroupShardState,
        group: Group,
        request: JoinGroupRequest,
        client: GroupClient,
        waiter: Waiter,
        now_ms: int,
    ) -> None:
        self.shard = shard
        self.group = group
        self.request = request
        self.client = client
        self.waiter = waiter
        self.now_ms = now_ms
        self.out = Outcome()
        self.protocols: dict[str, bytes] = {}
        for protocol in request.protocols:
            self.protocols.setdefault(protocol.name, protocol.metadata)
        self.why = request.reason or "no reason given"

    def has_room(self) -> bool:
        """Returns whether group.max.size allows this member; current members stay."""
        group, room = self.group, self.shard.settings.max_size
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            return True
        member = group.members.get(self.request.member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            # Counting the joined, not the members, lets a group shrink after the limit was lowered.
            return (member is not None and member.join_waiter is not None) or group.joined_count < room
        return member is not None or len(group.members) < room

    def turned_away(self) -> Outcome:
        """Refuses a member of a full group; removes one that was a member and rejoined too late."""
        member_id = self.request.member_id
        member = self.group.members.get(member_id)
        if member is not None:
            drop_member(self.shard, self.group, member, ErrorCode.GROUP_MAX_SIZE_REACHED, self.out)
            complete_if_joined(self.shard, self.group, self.now_ms, self.out)
        self.group.remove(member_id)
        self.out.reply = join_error("", ErrorCode.GROUP_MAX_SIZE_REACHED)
        return self.out

    def unknown(self) -> None:
        """Handles a JoinGroup without a member id: of a new member, or a returning static one."""
        group, instance_id = self.group, self.request.group_instance_id
        member_id = f"{self.client.client_id if instance_id is None else instance_id}-{self.shard.new_id()}"
        if instance_id is not None:
            holder = group.static_members.get(instance_id)
            if holder is not None:
                self._replace_static(group.members[holder], member_id)
                return
        elif self.client.api_version >= _MEMBER_ID_REQUIRED_FROM:
            if len(group.pending_joins) >= PENDING_MEMBERS_MAX:
                self.out.reply = join_error("", ErrorCode.GROUP_MAX_SIZE_REACHED)
                return
            if not self.shard.has_room_for(self.client.principal, len(member_id)):
                self.out.reply = join_error("", ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            group.expect(member_id, self.client.principal)
            deadline_ms = self.now_ms + self.request.session_timeout_ms
            self.shard.timers.schedule(session_key(group.id, member_id), deadline_ms)
            self.out.reply = join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED)
            return
        self._add(member_id)

    def known(self) -> None:
        """Handles a JoinGroup with a member id: a pending one, or that of a member."""
        group, member_id = self.group, self.request.member_id
        if member_id in group.pending_joins:
            if self.request.group_instance_id is None:
                self._add(member_id)
            else:
                # An id given to a dynamic member: a static one must not use it.
                self.out.reply = join_error(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        error = group.check_member(member_id, self.request.group_instance_id)
        if error is not ErrorCode.NONE:
            self.out.reply = join_error(member_id, error)
            return
        member = group.members[member_id]
        same = list(member.protocols.items()) == list(self.protocols.items())
        follows = group.state is GroupState.STABLE and group.leader != member_id
        if same and (group.state is GroupState.COMPLETING_REBALANCE or follows):
            # It may have missed the answer, so it gets the current generation. A leader of a stable group that rejoins
            # requests a rebalance, for changes that its metadata does not show.
            self.out.reply = joined(group, member)
            return
        # A member that joins twice waits once: the older request is answered REBALANCE_IN_PROGRESS.
        answer_join(group, member, join_error(member_id, ErrorCode.REBALANCE_IN_PROGRESS), self.out)
        self._update(member)
        self._rebalance(f"{member_id} joins again ({self.why})")

    def _add(self, member_id: str) -> None:
        group, request = self.group, self.request
        member = Member(
            id=member_id,
            instance_id=request.group_instance_id,
            client_id=self.client.client_id,
            client_host=self.client.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=self.protocols,
            session_key=session_key(group.id, member_id),
            principal=self.client.principal,
            is_new=True,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.member_joined_lately = True
        group.add(member, request.protocol_type, self.waiter)
        # It does not know its id yet and cannot send heartbeats: its session is the time that its JoinGroup may wait.
        self.shard.timers.schedule(member.session_key, self.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance(f"{member_id} joins ({self.why})")

    def _update(self, member: Member) -> None:
        request = self.request
        self.group.update(member, self.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self.group.await_join(member, self.waiter)

    def _rebalance(self, reason: str) -> None:
        rebalance_or_complete(self.shard, self.group, reason, self.now_ms, self.out)

    def _replace_static(self, member: Member, new_id: str) -> None:
        """Gives a static member that returned without its member id its old place under a new id (KIP-345)."""
        group, out, instance_id = self.group, self.out, self.request.group_instance_id
        old = _Former(member.id, group.leader or "", member)
        answer_join(group, member, join_error(old.id, ErrorCode.FENCED_INSTANCE_ID), out)
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID), out)
        self.shard.timers.cancel(member.session_key)
        group.rename(member, new_id)
        member.is_new = False
        self._update(member)
        touch(self.shard, member, self.now_ms)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may already assign to the old member id: rebalance.
            prepare(self.shard, group, f"static member {instance_id} is now {new_id}", self.now_ms, out)
        elif group.state is not GroupState.STABLE:
            complete_if_joined(self.shard, group, self.now_ms, out)
        elif group.elect_protocol() != group.protocol:
            self._rebalance(f"static member {instance_id} came back as {new_id} and changes the protocol")
        else:
            out.note("static member has a new id", group=group.id, instance=instance_id, was=old.id, now=new_id)
            self._store_replaced(member, old)

    def _store_replaced(self, member: Member, old: _Former) -> None:
        """Stores the new member id without a rebalance, then answers with the old assignment."""
        shard, group, new_id = self.shard, self.group, member.id
        generation = group.generation
        skips = self.client.api_version >= _SKIP_ASSIGNMENT_FROM
        assignments = {each.id: each.assignment for each in group.members.values()}
        self.out.records.append(GroupRecord(group.id, snapshot(group, assignments)))

        def stored(error: ErrorCode, now_ms: int) -> Outcome:
            done = Outcome()
            if group.state is GroupState.DEAD:
                return done
            if group.members.get(new_id) is not member or group.generation != generation:
                return done
            if error is not ErrorCode.NONE:
                answer_join(group, member, join_error("", error), done)
                shard.timers.cancel(member.session_key)
                old.restore(group, member)
                touch(shard, member, now_ms)
                return done
            response = joined(group, member)
            if skips:
                response.skip_assignment = group.leader == new_id
                response.members = members_for_leader(group) if response.skip_assignment else []
            else:
                # Before v9 the answer does not name it leader, or it would compute an assignment that nobody waits for.
                response.leader, response.members = old.leader, []
            answer_join(group, member, response, done)
            touch(shard, member, now_ms)  # its session may have ended, and been forgiven, while it waited
            return done

        self.out.then = stored


class _Former:
    """The former state of a returning static member, in case its new member id is not stored."""

    __slots__ = ("id", "leader", "protocols", "rebalance_timeout_ms", "session_timeout_ms")

    def __init__(self, member_id: str, leader: str, member: Member) -> None:
        self.id = member_id
        self.leader = leader
        self.protocols = member.protocols
        self.rebalance_timeout_ms = member.rebalance_timeout_ms
        self.session_timeout_ms = member.session_timeout_ms

    def restore(self, group: Group, member: Member) -> None:
        """Restores the former state; clears the member's waiters."""
        group.update(member, self.protocols, self.rebalance_timeout_ms, self.session_timeout_ms)
        group.rename(member, self.id)
