"""The leader's role: the log end of every voter, the high watermark that follows, and fetches that wait for new
entries.

A leader hands out and counts only what it has itself synced. Kafka's counts, and serves, what it has written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.raft.messages import (
    NO_DIRECTORY,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    ReplicaKey,
    Response,
    UpdateVoterRequest,
    VoteRequest,
)
from headrace.raft.voter_changes import VoterChanges
from headrace.raft.voter_set import key_of
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.raft.machine import Raft

SNAPSHOT_BYTES_MAX: Final = 1024 * 1024
"""What one answer holds of a snapshot at most."""

PARKED_MAX: Final = 1000
"""Fetches that wait at once; one more is answered at once, with nothing in it."""

OBSERVERS_MAX: Final = 1000
"""Observers that are remembered at once; one more is served all the same."""
OBSERVER_SESSION_MS: Final = 300_000
"""An observer that has not fetched for so long is forgotten, as in Kafka."""


@dataclass(slots=True)
class Progress:
    """A voter or an observer in the leader's eyes. `end_offset` is how far its log goes (a voter: how far it is
    synced), None before it says so in this epoch."""

    contact_ms: int
    begin_ms: int
    end_offset: int | None = None
    fetched_ms: int | None = None
    caught_up_ms: int | None = None
    """When it last had all that the leader had synced then."""
    seen_end: int | None = None
    """How far the leader had synced at its last fetch."""

    def fetched(self, offset: int, leader_end: int, now: int) -> None:
        """It has fetched from the end of its log, which joins the leader's."""
        if offset >= leader_end:
            self.caught_up_ms = now
        elif self.seen_end is not None and offset >= self.seen_end:
            self.caught_up_ms = self.fetched_ms
        self.end_offset, self.seen_end, self.fetched_ms = offset, leader_end, now


class Parked(NamedTuple):
    """A fetch that has nothing to get yet."""

    token: object
    request: FetchRequest
    until_ms: int


class Leader:
    """Leads `raft.epoch`, whose entries begin at `epoch_start`."""

    name = "leader"

    def __init__(self, epoch_start: int, others: list[ReplicaKey], now: int) -> None:
        assert epoch_start >= 0
        self.epoch_start = epoch_start
        self.progress = {voter: Progress(contact_ms=now, begin_ms=now) for voter in others}
        self.observers: dict[ReplicaKey, Progress] = {}
        """Who fetches and does not vote. It counts for nothing."""
        self.parked: dict[ReplicaKey, Parked] = {}
        self.changes = VoterChanges()

    # --- voters

    def voters_changed(self, raft: Raft) -> None:
        """Applies a new voter set: new voters keep their progress as observers, removed voters become observers."""
        voted = self.progress
        if raft.kraft_version > 0:  # whom it knew by the node alone, it does not know by the directory
            voted = {voter: each for voter, each in voted.items() if voter.directory_id != NO_DIRECTORY}
        known = self.observers | voted
        fresh = {voter: Progress(contact_ms=raft.now, begin_ms=raft.now) for voter in raft.other_voters}
        self.progress = {voter: known.pop(voter, fresh[voter]) for voter in fresh}
        self.observers = known
        assert self.progress.keys().isdisjoint(known), "a replica votes or observes"

    def update_voter(self, raft: Raft, token: object, request: UpdateVoterRequest) -> None:
        """A voter of this epoch says where it is reached, and what it runs."""
        self._heard_of(raft, key_of(request.voter))
        self.changes.update(raft, self, token, request)

    def is_established(self, raft: Raft) -> bool:
        """Whether something of this epoch is committed, and with it all before."""
        return raft.high_watermark > self.epoch_start

    def has_caught_up(self, raft: Raft, replica: ReplicaKey, within_ms: int) -> bool:
        """Whether a replica once had all that the leader had then, and has fetched within that time."""
        known = self.progress.get(replica) or self.observers.get(replica)
        if known is None or known.fetched_ms is None or known.caught_up_ms is None:
            return False
        return raft.now - known.fetched_ms < within_ms

    # --- time

    def _gives_up_ms(self, raft: Raft) -> int | None:
        """When no majority has been heard of for one and a half fetch timeouts: then another leader may be elected."""
        needed = raft.majority - raft.is_voter
        if needed == 0:
            return None
        contacts = sorted((each.contact_ms for each in self.progress.values()), reverse=True)
        return contacts[needed - 1] + raft.settings.fetch_timeout_ms * 3 // 2

    def _begins_ms(self, raft: Raft, voter: ReplicaKey) -> int:
        return max(self.progress[voter].begin_ms, raft.peers.ready_ms(voter.id))

    def deadline_ms(self, raft: Raft) -> int | None:
        """See Role."""
        times = [self._begins_ms(raft, voter) for voter in self.progress]
        times += [parked.until_ms for parked in self.parked.values()]
        times += [at_ms for at_ms in (self._gives_up_ms(raft), self.changes.deadline_ms()) if at_ms is not None]
        return min(times, default=None)

    def tick(self, raft: Raft) -> None:
        """See Role."""
        gives_up_ms = self._gives_up_ms(raft)
        if gives_up_ms is not None and raft.now >= gives_up_ms:
            raft.become_resigned()
            return
        if not raft.is_voter and raft.sets.newest_offset < raft.high_watermark:
            raft.become_resigned()  # that it does not vote any more is committed
            return
        self.changes.tick(raft)
        for replica in [replica for replica, parked in self.parked.items() if raft.now >= parked.until_ms]:
            self._serve(raft, self.parked.pop(replica))
        silent = [voter for voter in self.progress if raft.now >= self._begins_ms(raft, voter)]
        raft.send_to(silent, lambda voter: BeginQuorumEpochRequest(raft.epoch, raft.me.id, voter))
        for voter in silent:
            self.progress[voter].begin_ms = raft.now + raft.settings.fetch_timeout_ms // 2

    # --- others

    def grants(self, raft: Raft, request: VoteRequest) -> bool:
        """See Role."""
        return False

    def answered(self, raft: Raft, peer: int, response: Response) -> None:
        """Ignores the answer: a voter that accepts this leader fetches."""
        if response.error:
            raft.peers.rest(peer, raft.now)

    def left(self, raft: Raft) -> None:
        """See Role."""
        for parked in self.parked.values():
            raft.refuse_fetch(parked.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.parked.clear()
        self.changes.left(raft)

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, most caught up first."""
        return tuple(sorted(self.progress, key=lambda voter: (-(self.progress[voter].end_offset or 0), voter)))

    # --- fetches

    def _heard_of(self, raft: Raft, replica: ReplicaKey) -> Progress | None:
        """Returns the state of a replica that fetches from this leader; None for a client that is no node."""
        # At kraft.version 0 no directory is known: a replica with a voter's id is that voter.
        voter = replica if raft.kraft_version > 0 else ReplicaKey(replica.id)
        progress = self.progress.get(voter) or self._observer(raft, replica)
        if progress is not None:
            progress.contact_ms = raft.now
            progress.begin_ms = raft.now + raft.settings.fetch_timeout_ms // 2
        return progress

    def _observer(self, raft: Raft, replica: ReplicaKey) -> Progress | None:
        known = self.observers.get(replica)
        if known is None and replica.id >= 0:
            self.forget_silent_observers(raft.now)
            if len(self.observers) < OBSERVERS_MAX:
                known = self.observers[replica] = Progress(raft.now, raft.now)
        return known

    def forget_silent_observers(self, now: int) -> None:
        """Those that have not fetched for five minutes are gone."""
        for key in [key for key, each in self.observers.items() if now - each.contact_ms >= OBSERVER_SESSION_MS]:
            del self.observers[key]

    def fetch_snapshot(self, raft: Raft, token: object, request: FetchSnapshotRequest) -> None:
        """A replica of this epoch wants a piece of a snapshot. An older one than the newest will do, if it is there."""
        error = ErrorCode.NONE
        if request.max_bytes <= 0:
            error = ErrorCode.INVALID_REQUEST
        elif request.snapshot.offset <= 0:
            error = ErrorCode.SNAPSHOT_NOT_FOUND  # what a fresh format leaves is nobody's snapshot
        elif request.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            self._heard_of(raft, request.replica)
        response = FetchSnapshotResponse(raft.epoch, raft.me.id, request.snapshot, request.position, error=error)
        size = 0 if error else min(request.max_bytes, SNAPSHOT_BYTES_MAX)
        raft.reply(token, response, request.position, request.position + size)

    def fetch(self, raft: Raft, token: object, request: FetchRequest) -> None:
        """A replica of this epoch wants what lies behind its end, which it says by epoch and offset."""
        if request.offset < 0 or not 0 <= request.last_fetched_epoch <= request.epoch:
            raft.refuse_fetch(token, ErrorCode.INVALID_REQUEST)
            return
        log = raft.log
        progress = self._heard_of(raft, request.replica)
        is_empty = request.offset == 0 and log.snapshot.offset > 0
        if is_empty or request.offset < log.start_offset or request.last_fetched_epoch < log.start_epoch:
            self._has_lost(progress)
            self._answer(raft, token, snapshot=log.snapshot)
            return
        end = log.end_of(request.last_fetched_epoch)
        if end.epoch != request.last_fetched_epoch or end.offset < request.offset:
            self._has_lost(progress)
            self._answer(raft, token, diverging=end)
            return
        if progress is not None:
            progress.fetched(request.offset, log.synced_offset, raft.now)
            self.advance(raft)
        before = self.parked.pop(request.replica, None)
        if before is not None:
            self._serve(raft, before)
        parked = Parked(token, request, raft.now + request.wait_ms)
        if self._has_news(raft, request) or request.wait_ms <= 0 or len(self.parked) >= PARKED_MAX:
            self._serve(raft, parked)
        else:
            self.parked[request.replica] = parked
            assert len(self.parked) <= PARKED_MAX

    @staticmethod
    def _has_lost(progress: Progress | None) -> None:
        """Handles a fetch position that diverges from this log: the replica no longer has what it had acknowledged, if
        anything.
        """
        if progress is not None:
            progress.end_offset = progress.seen_end = None

    def advance(self, raft: Raft) -> None:
        """Commits what a majority has synced, once something of this epoch is among it."""
        ends = [-1 if each.end_offset is None else each.end_offset for each in self.progress.values()]
        if raft.is_voter:
            ends.append(raft.log.synced_offset)
        assert len(ends) == len(raft.voters), "each voter counts once"
        reached = sorted(ends, reverse=True)[raft.majority - 1]
        if reached > self.epoch_start:
            raft.commit(reached)
            self.changes.committed(raft)
        for replica in [replica for replica, each in self.parked.items() if self._has_news(raft, each.request)]:
            self._serve(raft, self.parked.pop(replica))

    def _has_news(self, raft: Raft, request: FetchRequest) -> bool:
        return request.offset < raft.log.synced_offset or raft.high_watermark > request.high_watermark

    def _serve(self, raft: Raft, parked: Parked) -> None:
        offset = parked.request.offset
        self._answer(raft, parked.token, read_from=offset, read_to=max(offset, raft.log.synced_offset))

    def _answer(
        self,
        raft: Raft,
        token: object,
        *,
        diverging: Position | None = None,
        snapshot: Position | None = None,
        read_from: int = 0,
        read_to: int = 0,
    ) -> None:
        response = FetchResponse(raft.epoch, raft.me.id, raft.high_watermark, diverging=diverging, snapshot=snapshot)
        raft.reply(token, response, read_from, read_to)
