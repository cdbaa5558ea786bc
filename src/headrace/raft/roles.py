"""The roles of a node that does not lead: unattached, prospective, candidate, follower, resigned.

Each is a type with the state of that role. `tick` is called at the end of every step: a role whose time is up changes
to another one, otherwise it sends what can be sent. Source: KIP-595, KIP-996.

- unattached -> prospective -> candidate -> leader -> resigned -> unattached, one epoch later
- follower -> prospective, when the leader is silent; any role -> unattached or follower, by a higher epoch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.raft.events import Piece, PieceStored, SnapshotLoaded, SnapshotUnusable
from headrace.raft.messages import (
    EndQuorumEpochRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    ReplicaKey,
    Response,
    VoteRequest,
    VoteResponse,
    VoterResponse,
)
from headrace.raft.voter_changes import own_request
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.raft.machine import Raft


class Role(Protocol):
    """The interface of every role."""

    name: str

    def deadline_ms(self, raft: Raft) -> int | None:
        """Returns when `tick` has something to do, unless an event comes first."""
        ...

    def tick(self, raft: Raft) -> None:
        """Changes the role if its time is up, or sends what can be sent now."""
        ...

    def grants(self, raft: Raft, request: VoteRequest) -> bool:
        """Returns whether a candidate with an up-to-date log gets this node's vote."""
        ...

    def answered(self, raft: Raft, peer: int, response: Response) -> None:
        """Handles a voter's answer in this epoch."""
        ...

    def left(self, raft: Raft) -> None:
        """Ends the role."""
        ...


class _Waiting:
    """The common part of roles that wait for a time."""

    def __init__(self, until_ms: int | None) -> None:
        self.until_ms = until_ms

    def deadline_ms(self, raft: Raft) -> int | None:
        return self.until_ms

    def is_over(self, raft: Raft) -> bool:
        return self.until_ms is not None and raft.now >= self.until_ms

    def grants(self, raft: Raft, request: VoteRequest) -> bool:
        return request.pre_vote

    def answered(self, raft: Raft, peer: int, response: Response) -> None:
        """Ignores the answer: this role sends no requests."""

    def left(self, raft: Raft) -> None:
        """Does nothing: no requests wait."""


class Unattached(_Waiting):
    """The role of a node that knows an epoch, and no leader to follow.

    A voter waits for the leader of an epoch, or becomes a candidate. `until_ms` None: it does not vote, never
    campaigns, and sends fetches to one voter or bootstrap server after the other; the answer names the leader.
    """

    name = "unattached"

    def __init__(self, until_ms: int | None, asked: ReplicaKey | None = None) -> None:
        super().__init__(until_ms)
        self.asked = asked

    def deadline_ms(self, raft: Raft) -> int | None:
        """Returns when the wait ends, or the next fetch may be sent."""
        if self.until_ms is not None or not raft.log.is_synced:
            return self.until_ms
        return 0 if self.asked is None else raft.peers.ready_ms(self.asked.id)

    def tick(self, raft: Raft) -> None:
        """Campaigns when its time is up, or looks for the leader."""
        if self.is_over(raft):
            raft.become_prospective()
        elif (
            self.until_ms is None
            and raft.log.is_synced  # it may vote without knowing it yet: what it says of its log counts
            and (self.asked is None or raft.now >= raft.peers.ready_ms(self.asked.id))
        ):
            known = raft.to_be_heard or [*raft.other_voters, *raft.bootstrap]
            assert known, "a node that only listens knows whom to ask"
            self.asked = known[raft.jitter(len(known))]
            raft.send_to([self.asked], raft.fetch_request())

    def answered(self, raft: Raft, peer: int, response: Response) -> None:
        """Ignores an answer without a leader: `Raft` has followed a named leader before this."""
        raft.peers.rest(peer, raft.now)

    def grants(self, raft: Raft, request: VoteRequest) -> bool:
        """Grants the vote to an up-to-date candidate; a vote already given is repeated for the same candidate only."""
        return request.pre_vote or raft.may_vote_for(request.candidate)


class _Asking(_Waiting):
    """A round of votes: a majority is needed, including this node's own vote if it is a voter by its own log."""

    pre_vote: bool

    def __init__(self, until_ms: int) -> None:
        super().__init__(until_ms)
        self.granted: set[int] = set()
        self.refused: set[int] = set()

    def has_won(self, raft: Raft) -> bool:
        return len(self.granted) + raft.is_voter >= raft.majority

    def has_lost(self, raft: Raft) -> bool:
        return len(raft.voters) - len(self.refused) < raft.majority

    def unheard(self, raft: Raft) -> list[ReplicaKey]:
        return [voter for voter in raft.other_voters if voter.id not in self.granted | self.refused]

    def ask(self, raft: Raft) -> None:
        def request(voter: ReplicaKey) -> VoteRequest:
            return VoteRequest(raft.epoch, raft.me, voter, raft.log.last_synced, self.pre_vote)

        raft.send_to(self.unheard(raft), request)

    def next_ms(self, raft: Raft) -> int:
        assert self.until_ms is not None
        return min([self.until_ms, *(raft.peers.ready_ms(voter.id) for voter in self.unheard(raft))])

    def answered(self, raft: Raft, peer: int, response: Response) -> None:
        """Handles a voter's answer in this epoch."""
        if isinstance(response, VoteResponse) and response.pre_vote == self.pre_vote:
            assert peer not in self.granted and peer not in self.refused, "a voter answers a round once"
            (self.granted if response.granted and not response.error else self.refused).add(peer)


class Prospective(_Asking):
    """The role of a node that asks whether it would be elected, before it starts a new epoch. Its vote of this epoch
    stays."""

    name = "prospective"
    pre_vote = True

    def deadline_ms(self, raft: Raft) -> int | None:
        """Returns when `tick` has something to do, unless an event comes first."""
        return self.next_ms(raft)

    def tick(self, raft: Raft) -> None:
        """Changes the role if its time is up, or sends what can be sent now."""
        if self.has_won(raft):
            raft.become_candidate()
        elif self.has_lost(raft) or self.is_over(raft):
            if raft.leader_id is not None:
                raft.become_follower(raft.epoch, raft.leader_id)
            else:
                raft.become_unattached(raft.epoch)
        else:
            self.ask(raft)

    def grants(self, raft: Raft, request: VoteRequest) -> bool:
        """Returns whether a candidate with an up-to-date log gets this node's vote."""
        return request.pre_vote or raft.may_vote_for(request.candidate)

    def answered(self, raft: Raft, peer: int, response: Response) -> None:
        """Handles a voter's answer. A voter that does not support pre-votes cannot be asked: the election starts
        without."""
        if response.error is ErrorCode.UNSUPPORTED_VERSION:
            raft.become_candidate()
        else:
            super().answered(raft, peer, response)


class Candidate(_Asking):
    """The role of a node that has voted for itself in a new epoch and asks the others. After a lost election it waits
    until its time is up."""

    name = "candidate"
    pre_vote = False

    def deadline_ms(self, raft: Raft) -> int | None:
        """Returns when `tick` has something to do, unless an event comes first."""
        return self.until_ms if self.has_lost(raft) else self.next_ms(raft)

    def tick(self, raft: Raft) -> None:
        """Changes the role if its time is up, or sends what can be sent now."""
        if self.has_won(raft):
            raft.become_leader(sorted(self.granted | {raft.me.id} if raft.is_voter else self.granted))
        elif self.is_over(raft):
            raft.become_prospective()
        elif not self.has_lost(raft):
            self.ask(raft)


@dataclass(slots=True)
class Loading:
    """A snapshot under transfer: the received part, and how much of it the shell has stored."""

    snapshot: Position
    received: int = 0
    stored: int = 0
    is_whole: bool = False


class Follower(_Waiting):
    """The role of a node that fetches from a leader. Fetched entries are synced before the next fetch, by which the
    leader counts them.

    `until_ms` is when the leader has been silent for too long, `tells_ms` when this node may next send it an
    UpdateRaftVoter. `has_fetched`: the leader has answered in this epoch, so no other is wanted; `is_known`: at
    kraft.version 0 it has noted this node's update, or does not support it. A snapshot comes piece by piece, each after
    the one before is stored. While the shell stores or checks, which may take long, the follower sends fetches without
    result, so leader and follower stay in contact and no election starts.
    """

    name = "follower"

    def __init__(self, leader: ReplicaKey, until_ms: int, tells_ms: int) -> None:
        super().__init__(until_ms)
        self.leader = leader
        self.tells_ms = tells_ms
        self.has_fetched = self.is_known = False
        self.loading: Loading | None = None

    def deadline_ms(self, raft: Raft) -> int | None:
        """Returns when `tick` has something to do, unless an event comes first."""
        if not raft.log.is_synced:
            return self.until_ms
        assert self.until_ms is not None
        return min(self.until_ms, raft.peers.ready_ms(self.leader.id))

    def tick(self, raft: Raft) -> None:
        """Changes the role if its time is up, or sends what can be sent now."""
        if self.is_over(raft):
            raft.lose_leader()
        elif raft.log.is_synced:
            loading = self.loading
            if raft.now >= max(self.tells_ms, raft.peers.ready_ms(self.leader.id)):
                self.tells_ms = raft.now + raft.settings.fetch_timeout_ms
                if (asked := own_request(raft, self.is_known)) is not None:
                    raft.send_to([self.leader], lambda _: asked)
            if loading is None:
                raft.send_to([self.leader], raft.fetch_request())
            elif loading.is_whole or loading.stored < loading.received:
                raft.send_to([self.leader], raft.fetch_request(wait_ms=0))
            else:
                request = FetchSnapshotRequest(
                    raft.epoch, raft.key, loading.snapshot, loading.received, raft.settings.fetch_snapshot_bytes
                )
                raft.send_to([self.leader], lambda _: request)

    def grants(self, raft: Raft, request: VoteRequest) -> bool:
        """Returns whether a candidate with an up-to-date log gets this node's vote."""
        return request.pre_vote and not self.has_fetched

    def answered(self, raft: Raft, peer: int, response: Response) -> None:
        """Handles a voter's answer in this epoch."""
        if isinstance(response, VoterResponse):
            self.is_known |= response.error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
        if not isinstance(response, FetchResponse | FetchSnapshotResponse):
            return
        if response.error:
            if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
                self.loading = None  # the leader has a newer one: the next fetch names it
            raft.peers.rest(peer, raft.now)
            return
        self.has_fetched = True
        self.until_ms = raft.now + raft.settings.fetch_timeout_ms
        if isinstance(response, FetchSnapshotResponse):
            self._received(raft, response)
        elif self.loading is not None:
            raft.peers.rest(peer, raft.now, raft.settings.fetch_wait_ms)
        elif response.snapshot is not None:
            if raft.may_load(response.snapshot):
                self.loading = Loading(response.snapshot)
            else:
                raft.peers.rest(peer, raft.now, raft.settings.fetch_wait_ms)
        elif response.diverging is not None:
            mine = raft.log.end_of(response.diverging.epoch)
            theirs = response.diverging
            raft.truncate(min(mine.offset, theirs.offset) if mine.epoch == theirs.epoch else mine.offset)
        else:
            for entries in response.entries:
                if not raft.may_follow(entries):
                    break
                raft.append(entries)
            raft.heard(response.high_watermark)

    def _received(self, raft: Raft, response: FetchSnapshotResponse) -> None:
        loading, end = self.loading, response.position + len(response.data)
        is_next = loading is not None and (response.snapshot, response.position) == (loading.snapshot, loading.received)
        if loading is None or not is_next or not response.position < end <= response.size:
            raft.peers.rest(self.leader.id, raft.now)
            return
        assert loading.stored == loading.received, "a piece is asked for once the one before is stored"
        loading.received = end
        loading.is_whole = end == response.size
        raft.out.piece = Piece(loading.snapshot, response.position, response.data, loading.is_whole)
        raft.peers.rest(self.leader.id, raft.now, raft.settings.fetch_wait_ms)

    def stored(self, raft: Raft, event: PieceStored | SnapshotLoaded | SnapshotUnusable) -> None:
        """Takes the result of storing a piece. A result for another or an earlier snapshot is stale."""
        loading = self.loading
        if loading is None:
            return
        if isinstance(event, PieceStored):
            if (event.snapshot, event.position) == (loading.snapshot, loading.received):
                assert event.position >= loading.stored, "pieces are stored in order"
                loading.stored = event.position
                raft.peers.wake(self.leader.id)
        elif event.end == loading.snapshot and (loading.is_whole or isinstance(event, SnapshotUnusable)):
            self.loading = None
            raft.peers.forget()  # a request in flight belongs to the follower's former role
            if isinstance(event, SnapshotLoaded):
                raft.install(event.end, event.voters)
            else:
                raft.peers.rest(self.leader.id, raft.now, raft.settings.fetch_wait_ms)

    def end_epoch(self, raft: Raft, successors: tuple[ReplicaKey, ...]) -> None:
        """Handles the leader's resignation: its first successor campaigns at once, the others give it time."""
        if raft.may_campaign:
            first = bool(successors) and successors[0] == raft.me
            self.until_ms = raft.now + (0 if first else raft.jitter(raft.settings.election_backoff_max_ms))


class Resigned(_Waiting):
    """The role of a node that led this epoch and resigned: it neither votes in it nor names itself leader.

    It announces its resignation to the voters, and moves to the next epoch if no other voter does.
    """

    name = "resigned"

    def __init__(self, successors: tuple[ReplicaKey, ...], until_ms: int) -> None:
        super().__init__(until_ms)
        self.successors = successors
        self.notified: set[int] = set()

    def _unnotified(self, raft: Raft) -> list[ReplicaKey]:
        return [voter for voter in raft.other_voters if voter.id not in self.notified]

    def deadline_ms(self, raft: Raft) -> int | None:
        """Returns when `tick` has something to do, unless an event comes first."""
        assert self.until_ms is not None
        return min([self.until_ms, *(raft.peers.ready_ms(voter.id) for voter in self._unnotified(raft))])

    def tick(self, raft: Raft) -> None:
        """Changes the role if its time is up, or sends what can be sent now."""
        if self.is_over(raft):
            raft.become_unattached(raft.epoch + 1)
        else:
            request = EndQuorumEpochRequest(raft.epoch, raft.me.id, self.successors)
            raft.send_to(self._unnotified(raft), lambda _: request)

    def answered(self, raft: Raft, peer: int, response: Response) -> None:
        """Handles a voter's answer in this epoch."""
        self.notified.add(peer)
