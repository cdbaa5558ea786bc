"""A classic group: its members, their votes, and the counts that decide when a rebalance can proceed.

This is the in-memory half of a group: a join in progress is lost with its coordinator, as in Kafka, and the clients
join again. The last completed generation, which must survive a restart, is in `GroupShardState.classic`, which only
`GroupShard.apply` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.groups.classic.states import MAY_FOLLOW, GroupState
from headrace.groups.records import StoredGroup
from headrace.groups.subscription import subscribed_topics
from headrace.groups.usage import MemberUsage
from headrace.machine.outcome import Waiter
from headrace.wire.errors import ErrorCode

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers: the only one whose metadata the coordinator reads."""
SIMPLE_GROUP: Final = StoredGroup(protocol=None, leader=None)
"""The stored state of a simple group, which holds offsets and never had a member: empty."""


def size_of(protocols: Mapping[str, bytes]) -> int:
    """Returns the bytes of protocols and their metadata."""
    return sum(len(name) + len(metadata) for name, metadata in protocols.items())


@dataclass(slots=True, eq=False)
class Member:
    """One member. A static member (KIP-345) has an `instance_id` and keeps its place over restarts."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    """The member's protocols, preferred first, each with its metadata."""
    session_key: tuple[str, str, str]
    """The key of its timer, kept so that a heartbeat allocates nothing."""
    assignment: bytes = b""
    join_waiter: Waiter | None = None
    """Set while its JoinGroup is unanswered; `Group.joined_count` counts these."""
    sync_waiter: Waiter | None = None
    """Set while its SyncGroup is unanswered."""
    principal: str = ""
    """The principal that joined as this member here; empty for a member stored by another coordinator."""
    is_new: bool = False
    """True until its first JoinGroup is answered: it may expire while it waits, because nothing else would notice its
    death."""

    @property
    def size(self) -> int:
        """The bytes that it keeps in memory of its client's requests."""
        return size_of(self.protocols) + len(self.assignment)

    def vote(self, candidates: set[str]) -> str:
        """Returns the first of its protocols that every member supports."""
        return next(name for name in self.protocols if name in candidates)

    def survives_silence(self) -> bool:
        """Returns whether an expired session is forgiven: the member waits for an answer, so it cannot send
        heartbeats."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)


@dataclass(slots=True, eq=False)
class Group:
    """One classic group."""

    id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.EMPTY
    state_since_ms: int = -1
    """When it entered its state; -1 if unknown. Offsets of an empty group expire from here (KIP-211)."""
    generation: int = 0
    protocol_type: str | None = None
    """None for a group that was never joined and only holds offsets (a "simple" group)."""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """instance id -> member id"""
    usage: MemberUsage | None = None
    """The usage that counts the bytes of its members; None if the group belongs to no shard."""
    pending_joins: set[str] = field(default_factory=set)
    """Member ids given out with MEMBER_ID_REQUIRED (KIP-394) that have not joined yet."""
    pending_syncs: set[str] = field(default_factory=set)
    """Members of this generation that have not sent SyncGroup yet."""
    joined_count: int = 0
    support: dict[str, int] = field(default_factory=dict)
    """protocol name -> how many members speak it"""
    subscribed: frozenset[str] | None = None
    """Topics of a consumer group's generation; None if unknown."""
    member_joined_lately: bool = False
    """Whether a member joined during the initial delay, which is then extended."""
    initial_remaining_ms: int = 0
    """How far the initial delay may still be extended: in total at most the rebalance timeout."""

    # --- state -------------------------------------------------------------------------------------------------------

    def move(self, to: GroupState, now_ms: int) -> None:
        """Changes the state, after checking the transition."""
        assert self.state in MAY_FOLLOW[to], f"{self.id}: {self.state.name} -> {to.name}"
        self.previous_state = self.state
        self.state = to
        self.state_since_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may start in this state."""
        return self.state in MAY_FOLLOW[GroupState.PREPARING_REBALANCE]

    @property
    def is_consumer(self) -> bool:
        """Whether its members are consumers, whose subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def everyone_joined(self) -> bool:
        """Whether every member, and every client with a pending member id, has (re)joined."""
        return len(self.members) == self.joined_count and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether members read `topic`; unknown subscriptions of consumers count as all topics."""
        return topic in self.subscribed if self.subscribed is not None else self.is_consumer

    # --- members -----------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Returns UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID unless this is a member, under this instance id if one is
        given."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Returns whether a member with these protocols may join: same type, and one protocol that all support."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if self.protocol_type != protocol_type:
            return False
        everyone = len(self.members)
        return any(self.support.get(name, 0) == everyone for name in names)

    def add(self, member: Member, protocol_type: str, waiter: Waiter | None) -> None:
        """Adds a member; the first one sets the protocol type and leads."""
        assert member.id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self._count_support(member, 1)
        self.await_join(member, waiter)
        self.pending_joins.discard(member.id)
        self._count_bytes(member)

    def update(self, member: Member, protocols: dict[str, bytes], rebalance_ms: int, session_ms: int) -> None:
        """Sets a member's new protocols and timeouts."""
        assert self.members.get(member.id) is member
        self._count_support(member, -1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms
        self._count_support(member, 1)
        self._count_bytes(member)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Sets a member's assignment."""
        assert self.members.get(member.id) is member
        member.assignment = assignment
        self._count_bytes(member)

    def expect(self, member_id: str, principal: str) -> None:
        """Notes a member id given to a client, which has to join with it."""
        assert member_id not in self.members, "a member has its id already"
        self.pending_joins.add(member_id)
        if self.usage is not None:
            self.usage.hold(self.id, member_id, len(member_id), principal)

    def remove(self, member_id: str) -> Member | None:
        """Removes a member, or a pending member id; another member leads if it led. Its waiters must have been
        answered."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert member.join_waiter is None and member.sync_waiter is None
            self._count_support(member, -1)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        if self.usage is not None:
            self.usage.release(self.id, member_id)
        return member

    def join_usage(self, usage: MemberUsage) -> None:
        """Starts to count the bytes of its members."""
        self.usage = usage
        for member in self.members.values():
            self._count_bytes(member)

    def leave_usage(self) -> None:
        """Releases the bytes of its members."""
        if self.usage is not None:
            for member_id in (*self.members, *self.pending_joins):
                self.usage.release(self.id, member_id)
            self.usage = None

    def rename(self, member: Member, new_id: str) -> None:
        """Gives a returning static member its new member id and its old place (KIP-345); clears its waiters."""
        assert member.instance_id is not None and member.join_waiter is None and member.sync_waiter is None
        assert new_id not in self.members and self.static_members[member.instance_id] == member.id
        del self.members[member.id]
        if self.usage is not None:
            self.usage.release(self.id, member.id)
        if self.leader == member.id:
            self.leader = new_id
        self.pending_syncs.discard(member.id)
        member.id = new_id
        member.session_key = session_key(self.id, new_id)
        self.members[new_id] = member
        self.static_members[member.instance_id] = new_id
        self._count_bytes(member)

    def await_join(self, member: Member, waiter: Waiter | None) -> None:
        """Sets or clears (None) the waiter of a member's JoinGroup."""
        self.joined_count += (waiter is not None) - (member.join_waiter is not None)
        member.join_waiter = waiter
        assert 0 <= self.joined_count <= len(self.members), "members alone join"

    def _count_bytes(self, member: Member) -> None:
        if self.usage is not None:
            self.usage.hold(self.id, member.id, member.size, member.principal)

    def _count_support(self, member: Member, by: int) -> None:
        for name in member.protocols:
            count = self.support.get(name, 0) + by
            assert 0 <= count <= len(self.members) + 1, "each member supports a protocol once"
            if count:
                self.support[name] = count
            else:
                del self.support[name]

    # --- generations -------------------------------------------------------------------------------------------------

    def elect_joined_leader(self) -> bool:
        """Makes a member that joined the leader; returns False if none joined."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is not None and leader.join_waiter is not None:
            return True
        for member in self.members.values():
            if member.join_waiter is not None:
                self.leader = member.id
                return True
        return False

    def elect_protocol(self) -> str:
        """Returns the protocol with the most votes among those that every member supports; the first by name of
        equals."""
        everyone = len(self.members)
        candidates = {name for name, count in self.support.items() if count == everyone}
        assert candidates, "nobody is let in who shares no protocol with the others"
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name))

    def start_generation(self, now_ms: int) -> None:
        """Fixes the members and the protocol of the next generation."""
        assert not self.members or self.leader in self.members, "a member leads"
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol = self.elect_protocol() if self.members else None
        self.subscribed = self.read_subscriptions()
        self.move(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    def read_subscriptions(self) -> frozenset[str] | None:
        """Returns the topics of a consumer group's subscriptions; None for other groups and for unreadable metadata."""
        if not self.is_consumer:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        return subscribed_topics(member.protocols[self.protocol] for member in self.members.values())


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Returns the key of the timer that expires a member, or a pending member id."""
    return ("session", group_id, member_id)


def restored(group_id: str, stored: StoredGroup) -> Group:
    """Returns a group as its last stored generation left it: stable with those members, or empty."""
    group = Group(group_id)
    for _ in restoring(group, stored):
        pass
    return group


def restoring(group: Group, stored: StoredGroup) -> Iterator[Member]:
    """Restores a new group to its last stored generation; yields each member once it is added. Use the group only when
    the iterator has ended."""
    group.generation = stored.generation
    group.protocol_type = stored.protocol_type or None
    group.protocol = stored.protocol
    group.state = group.previous_state = GroupState.STABLE if stored.members else GroupState.EMPTY
    group.state_since_ms = stored.current_state_timestamp
    for stored_member in stored.members:
        member = Member(
            id=stored_member.member_id,
            instance_id=stored_member.group_instance_id,
            client_id=stored_member.client_id,
            client_host=stored_member.client_host,
            session_timeout_ms=stored_member.session_timeout,
            rebalance_timeout_ms=stored_member.rebalance_timeout
            if stored_member.rebalance_timeout >= 0
            else stored_member.session_timeout,
            protocols={stored.protocol or "": stored_member.subscription},
            session_key=session_key(group.id, stored_member.member_id),
            assignment=stored_member.assignment,
        )
        group.add(member, stored.protocol_type, None)
        yield member
    group.leader = stored.leader if stored.leader in group.members else next(iter(group.members), None)
    group.subscribed = group.read_subscriptions()
