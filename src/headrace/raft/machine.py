"""One node of the metadata quorum as a pure machine: events and the time in, effects out.

The machine knows epochs, votes, log ends and the progress of each voter; it holds no entry and does no I/O. Its shell
stores, appends, syncs and sends the effects of `step`, in the order of `Output`, and reports with the next event. A
quorum of one works alike: it elects itself in `start`, and commits what it has synced.

Promises: an epoch has at most one leader; a committed entry is in the log of every later leader; nothing is sent that a
crash could take back (a vote before it is stored, a log end before it is synced). The voters are those of the newest
voter set in the log, committed or not.

A voter whose log was emptied or truncated below what it had acknowledged is incomplete: others count on what it had, so
it neither votes nor campaigns. It fetches, and its new entries count, until it has synced everything that a leader has
committed in its epoch. A voter that lost its votes too does not know in which epochs it took part, and what it syncs
for a deposed leader must not count: it follows no leader until so many voters have reported their epochs that each
majority with it includes one of them. Source: KIP-595, KIP-853, KIP-996.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from headrace.raft import events as ev
from headrace.raft.control import ControlRecord, Voter, kraft_version, leader_change, voters_record
from headrace.raft.leader import Leader
from headrace.raft.log_view import LogView
from headrace.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Entries,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
    SupportRequest,
    SupportResponse,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
    VoterResponse,
)
from headrace.raft.peers import Peers, RaftSettings
from headrace.raft.quorum_state import NO_NODE, QuorumState
from headrace.raft.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached
from headrace.raft.voter_set import NOT_IN_LOG, VoterHistory, VoterSet, key_of
from headrace.wire.errors import ErrorCode

FIRST_BOOTSTRAP: Final = -2
"""The peer id of the first bootstrap server; the others follow below it, as in Kafka."""
_TELLS_EPOCH: Final = (
    ErrorCode.NONE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
"""Errors of a fetch after which the answer's epoch is that of a voter."""


class Raft:
    """A node of the quorum. `start` it once, then `step` it; times are milliseconds of a clock that never goes back.

    `key` is the node, with its metadata directory's id. `log` is the shape of its log, all of it synced; `sets` the
    voters by its records, this node among them or not: then it is an observer, which follows and never campaigns. While
    a fresh format's snapshot or the settings alone name them, the first leader at kraft.version 1 writes them into the
    log. `saved` is the content of quorum-state, None for a fresh node. `own` is this node as it registers as a voter,
    None if it does not. `bootstrap` is how many addresses there are beside the voters' through which an observer finds
    the leader: they are peers -2, -3 and so on. `jitter(n)` draws from [0, n). `is_incomplete`: the log lacks entries
    that were synced here.
    """

    def __init__(
        self,
        key: ReplicaKey,
        sets: VoterHistory,
        log: LogView,
        saved: QuorumState | None,
        *,
        jitter: Callable[[int], int],
        own: Voter | None = None,
        settings: RaftSettings | None = None,
        bootstrap: int = 0,
        is_incomplete: bool = False,
    ) -> None:
        self.key = key
        self.own = own
        self.sets = sets
        self.role: Role = Unattached(None)
        self._take_voters()
        self.bootstrap = [ReplicaKey(FIRST_BOOTSTRAP - at) for at in range(bootstrap)]
        self.log = log
        self.jitter = jitter
        self.settings = settings or RaftSettings()
        self._saved = saved
        self._stored = (NO_NODE, 0, NO_NODE) if saved is None else (saved.leader_id, saved.leader_epoch, saved.voted_id)
        self.peers = Peers(self.settings)
        self.now = 0
        self.out = ev.Output()
        # The content of a snapshot is committed; a leader tells how much more is.
        self.high_watermark = log.snapshot.offset if log.snapshot.offset > 0 else -1
        self.heard_high_watermark = -1
        """The highest one received from a leader since the start: this node's own may lag, as its log does; -1 for
        none."""
        self.epoch = 0 if saved is None else saved.leader_epoch
        self.leader_id: int | None = None
        self.voted: ReplicaKey | None = None
        self.is_incomplete = is_incomplete
        self._complete_at: int | None = None
        """The offset up to which a leader of its epoch has committed, once the log reaches it: it remains to be
        synced."""
        self._has_lost_votes = is_incomplete and saved is None and self.is_voter
        self._reported_epochs: set[int] = set()
        """Voters that have reported their epoch since the start."""
        self._hurries_until_ms = 0
        self.lost_leader_id: int | None = None
        """The previous leader, whose process was found gone."""

    def _take_voters(self) -> None:
        """Applies the newest voter set."""
        newest = self.sets.newest
        self.voters, self.kraft_version, self.majority = newest.voters, newest.kraft_version, newest.majority
        self.is_voter = newest.names(self.key)
        # The key of this node: at kraft.version 0 the others know no voter's directory.
        named = newest.of(self.key.id)
        self.me = key_of(named) if named is not None and newest.kraft_version == 0 else self.key
        # A voter with this node's id and another directory is this node before its disk was lost: it cannot answer.
        self.other_voters = [key for key in newest.keys if key.id != self.me.id]
        if isinstance(self.role, Leader):
            self.role.voters_changed(self)

    # --- what a shell asks

    @property
    def leads(self) -> bool:
        """Whether this node may propose."""
        return isinstance(self.role, Leader)

    @property
    def is_active(self) -> bool:
        """Whether it leads and everything of earlier epochs is committed: from here on it may decide upon its state."""
        return isinstance(self.role, Leader) and self.high_watermark > self.role.epoch_start

    @property
    def may_campaign(self) -> bool:
        """Whether this node may become a candidate: it is a voter, or its removal is not known to be committed.

        The removal may be in its log alone, and then the others, whose logs are shorter, cannot elect one of
        themselves. (A Kafka voter in this state does not campaign.)
        """
        return not self.is_incomplete and any(voters.names(self.key) for voters in self.sets.since(self.high_watermark))

    @property
    def to_be_heard(self) -> list[ReplicaKey]:
        """The voters whose epochs this node needs before it follows a leader; none if it knows its votes."""
        return [key for key in self.other_voters if key.id not in self._reported_epochs] if self._has_lost_votes else []

    @property
    def known_leader(self) -> int | None:
        """The leader of this epoch that may be named to others; None after this node has resigned."""
        return None if isinstance(self.role, Resigned) else self.leader_id

    @property
    def listener(self) -> str | None:
        """The name of the listener between voters, None if unknown."""
        return self.own.endpoints[0].name if self.own is not None and self.own.endpoints else None

    def version_refusal(self, level: int) -> str | None:
        """Returns why the active leader cannot raise kraft.version to a level; None if it can."""
        assert isinstance(self.role, Leader)
        return self.role.changes.version_refusal(self, level)

    def deadline_ms(self) -> int | None:
        """Returns when `Tick` is due unless another event comes first; None: never."""
        return self.role.deadline_ms(self)

    # --- steps

    def start(self, now: int) -> ev.Output:
        """Takes up the role that the saved state and the log imply."""
        self.now, self.out = now, ev.Output()
        saved, last_epoch = self._saved, self.log.last.epoch
        assert self.other_voters or not self.is_incomplete or not self.is_voter, "a lone voter has nobody to fetch from"
        if not self.other_voters and self.is_voter:
            self.epoch = max(self.epoch, last_epoch)
            self.role = Unattached(now)
        elif saved is None or saved.leader_epoch < last_epoch:
            self.epoch = last_epoch
            self.role = Unattached(self._election_ms())
        else:
            self._resume(saved)
        return self._finished()

    def _resume(self, saved: QuorumState) -> None:
        if saved.voted_id != NO_NODE:
            self.voted = ReplicaKey(saved.voted_id, saved.voted_directory_id)
        if saved.leader_id != NO_NODE:
            self.leader_id = saved.leader_id
        if not self.is_voter and self.leader_id not in (None, self.me.id, *(key.id for key in self.other_voters)):
            self.leader_id = None  # without a known leader an observer asks the voters
        if self.leader_id == self.me.id:
            self.role = Resigned((), self.now + self._election_wait_ms())
        elif self.leader_id is not None and self._key_of(self.leader_id) is not None:
            self.become_follower(self.epoch, self.leader_id)
        elif self.voted is not None and self.voted.may_be(self.key) and self.may_campaign:
            self.role = Candidate(self.now + self._election_wait_ms())
        else:
            self.role = Unattached(self._election_ms())

    def step(self, event: ev.Event, now: int) -> ev.Output:
        """Handles an event."""
        assert now >= self.now, "the clock never goes back"
        self.now, self.out = now, ev.Output()
        if isinstance(event, ev.Requested):
            self._requested(event.token, event.message)
        elif isinstance(event, ev.Answered):
            self._answered(event)
        elif isinstance(event, ev.Unreachable):
            if self.peers.answered(event.peer, event.number):
                self.peers.rest(event.peer, now)
                if isinstance(self.role, Leader):
                    self.role.changes.supported(self, self.role, event.number, None)
                if event.refused and isinstance(self.role, Follower) and self.role.leader.id == event.peer:
                    self.become_leaderless()
        elif isinstance(event, ev.Propose):
            assert self.leads, "a leader alone proposes"
            self.append(Entries(self.log.end_offset, self.epoch, event.count, event.payload))
        elif isinstance(event, ev.RaiseVersion):
            assert isinstance(self.role, Leader)
            self.role.changes.raise_version(self, event.level)
        elif isinstance(event, ev.Refused):
            assert isinstance(self.role, Leader) and event.base_offset > self.role.epoch_start, "no proposal lies there"
            assert event.base_offset >= self.log.synced_offset
            self.log.truncate(event.base_offset)
            self.sets.truncate(event.base_offset)
        elif isinstance(event, ev.Synced):
            self.log.synced(event.end)
            self._look_whether_complete()
            if isinstance(self.role, Leader):
                self.role.advance(self)
        elif isinstance(event, ev.Snapshotted):
            assert event.end.offset <= self.high_watermark, "a snapshot holds what is committed"
            self.log.snapshotted(event.end)
            self.log.shorten(event.start)
            self.sets.shorten(event.start.offset)
        elif isinstance(event, ev.PieceStored | ev.SnapshotLoaded | ev.SnapshotUnusable):
            # A follower of another leader, or of none, has restarted.
            if isinstance(self.role, Follower):
                self.role.stored(self, event)
        elif isinstance(event, ev.Resign) and self.leads:
            self.become_resigned()
        return self._finished()

    def _finished(self) -> ev.Output:
        role = None
        while role is not self.role:
            role = self.role
            role.tick(self)
        self._save()
        assert self.high_watermark <= self.log.end_offset
        return self.out

    def _save(self) -> None:
        """Stores what must survive a crash before anything of this step is sent. A node that lost its votes stores
        nothing before it has heard enough epochs: after a restart it would trust that state."""
        if self._has_lost_votes:
            return
        voted = self.voted or ReplicaKey(NO_NODE)
        leader = NO_NODE if self.leader_id is None else self.leader_id
        if self._stored == (leader, self.epoch, voted.id):
            return
        self._stored = (leader, self.epoch, voted.id)
        is_dynamic = self.kraft_version > 0
        voters = () if is_dynamic else tuple(voter.id for voter in self.voters)
        self.out.store = QuorumState(
            leader, self.epoch, voted.id, voted.directory_id, voters, data_version=1 if is_dynamic else 0
        )

    # --- roles

    def become_unattached(self, epoch: int) -> None:
        """Waits for a leader of this epoch. In the same epoch the vote stays."""
        assert epoch >= self.epoch
        if epoch > self.epoch:
            self.leader_id = self.voted = None
        self.epoch = epoch
        self._become(Unattached(self._election_ms()))

    def become_prospective(self) -> None:
        """Asks the others whether they would elect this node: no leader seems to exist."""
        assert self.may_campaign
        self._become(Prospective(self.now + self._election_wait_ms()))

    def become_candidate(self) -> None:
        """Votes for itself in a new epoch."""
        assert isinstance(self.role, Prospective)
        self.epoch += 1
        self.leader_id, self.voted = None, self.me
        self._become(Candidate(self.now + self._election_wait_ms()))

    def become_leader(self, granting: Sequence[int]) -> None:
        """Takes up leadership after an election. The first entry of the epoch records it: only with it earlier entries
        may be committed."""
        assert isinstance(self.role, Candidate) and len(granting) >= self.majority
        assert self.leader_id is None and self.voted == self.me, "a candidate has voted for itself"
        self.leader_id, self.voted = self.me.id, None
        self._become(Leader(self.log.end_offset, self.other_voters, self.now))
        records: list[ControlRecord] = [leader_change(self.me.id, [voter.id for voter in self.voters], granting)]
        voters = self._voters_with_own()
        if self.kraft_version > 0 and (self.sets.newest_offset == NOT_IN_LOG or voters != self.sets.newest):
            records += [kraft_version(self.kraft_version), voters_record(voters.voters)]
        self.append(Entries(self.log.end_offset, self.epoch, len(records), tuple(records), tuple(records)))

    def _voters_with_own(self) -> VoterSet:
        """Returns the newest voter set with this node's current registration, if it is a voter."""
        newest, own = self.sets.newest, self.own
        return newest.with_voter(own) if own is not None and self.is_voter else newest

    def become_follower(self, epoch: int, leader_id: int) -> None:
        """Follows another voter, which leads this epoch."""
        leader = self._leader_key(leader_id)
        assert epoch >= self.epoch and leader is not None and leader != self.me
        assert epoch > self.epoch or self.leader_id in (None, leader_id), "an epoch has one leader"
        if epoch > self.epoch:
            self.voted = None
        self.epoch, self.leader_id = epoch, leader_id
        timeout_ms = self.now + self.settings.fetch_timeout_ms
        self._become(Follower(leader, timeout_ms, tells_ms=timeout_ms))

    def lose_leader(self) -> None:
        """Reacts to a silent leader: a voter campaigns, an observer asks the voters for the leader."""
        if self.may_campaign:
            self.become_prospective()
        else:
            self.leader_id = None
            self.become_unattached(self.epoch)

    def become_leaderless(self) -> None:
        """Notes that the leader's process is gone and commits nothing more: a candidate may get the vote, and this node
        campaigns.

        Votes are unchanged, so an epoch still has one leader. If the process was not gone, the leader's next message to
        its voters restores it. An observer asks the others for the leader; they may have to find out first.
        """
        early_ms = self.settings.early_election_ms
        if early_ms > 0 and not self.may_campaign and isinstance(self.role, Follower):
            gone = self.role.leader
            self.lose_leader()
            self.peers.rest(gone.id, self.now, early_ms)
            self.role = Unattached(None, asked=gone)
        elif early_ms > 0:
            self._hurries_until_ms = self.now + self.settings.fetch_timeout_ms
            assert self.leader_id is not None
            wait_ms = self._turn(self.leader_id) * early_ms + self.jitter(early_ms // 4)
            self.lost_leader_id, self.leader_id = self.leader_id, None
            self._become(Unattached(self.now + wait_ms))

    def _turn(self, gone: int) -> int:
        """Returns how many voters campaign before this one, so that voters that notice a death together do not split
        the votes.

        The first is the next one in a ring, so that no node leads more often than others.
        """
        ids = {self.me.id, *(voter.id for voter in self.other_voters)}
        return sorted(ids - {gone}, key=lambda each: (each < gone, each)).index(self.me.id)

    def become_resigned(self) -> None:
        """Stops leading, because the node stops, or because it cannot know whether another one leads."""
        assert isinstance(self.role, Leader)
        self._become(Resigned(self.role.successors(), self.now + self._election_wait_ms()))

    def _become(self, role: Role) -> None:
        before, self.role = self.role, role
        self.peers.forget()
        before.left(self)

    def _election_wait_ms(self) -> int:
        if self.now < self._hurries_until_ms:
            # Others may not have noticed the death yet, or have campaigned at the same moment: retry soon.
            early_ms = self.settings.early_election_ms
            return early_ms + self.jitter(early_ms)
        return self.settings.election_timeout_ms + self.jitter(self.settings.election_timeout_ms)

    def _election_ms(self) -> int | None:
        return self.now + self._election_wait_ms() if self.may_campaign else None

    def _key_of(self, node_id: int) -> ReplicaKey | None:
        return next((key for key in self.other_voters if key.id == node_id), None)

    def _leader_key(self, leader_id: int) -> ReplicaKey | None:
        """Returns the key of the leader to follow. The voter set may not have it: this node may not have read yet that
        it votes, or it leads until its removal is committed."""
        known = self._key_of(leader_id)
        if known is not None or leader_id == self.me.id or (self.is_voter and self.kraft_version == 0):
            return known
        return ReplicaKey(leader_id)

    def _adopt(self, epoch: int, leader_id: int | None) -> None:
        """Moves to a newer epoch that another node reports, or to its leader if that is named."""
        leader = None if leader_id is None or self._has_lost_votes else self._leader_key(leader_id)
        if leader is not None and (epoch > self.epoch or (epoch == self.epoch and self.leader_id is None)):
            self.become_follower(epoch, leader.id)
        elif epoch > self.epoch:
            self.become_unattached(epoch)

    def may_vote_for(self, candidate: ReplicaKey) -> bool:
        """Returns whether this epoch's vote is unused, or was given to this candidate."""
        return self.leader_id is None and (self.voted is None or self.voted.may_be(candidate))

    # --- requests

    def _requested(self, token: object, message: Request) -> None:
        if isinstance(message, VoteRequest):
            self._vote(token, message)
        elif isinstance(message, FetchRequest | FetchSnapshotRequest):
            self._fetch(token, message)
        elif isinstance(message, BeginQuorumEpochRequest | EndQuorumEpochRequest):
            self._epoch_changed(token, message)
        else:
            assert not isinstance(message, SupportRequest), "a shell knows what it runs"
            self._voters_asked(token, message)

    def _vote(self, token: object, request: VoteRequest) -> None:
        error, granted = ErrorCode.NONE, False
        if request.log_end.epoch > request.epoch - (not request.pre_vote):
            error = ErrorCode.INVALID_REQUEST
        elif request.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            self._adopt(request.epoch, None)
            if not request.voter.may_be(self.key):
                error = ErrorCode.INVALID_VOTER_KEY
            else:
                is_good_enough = not self.is_incomplete and request.log_end >= self.log.last
                granted = is_good_enough and self.role.grants(self, request)
        if granted and not request.pre_vote:
            self.voted = request.candidate
        self.reply(token, VoteResponse(self.epoch, self.known_leader, granted, request.pre_vote, error))

    def _epoch_changed(self, token: object, request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> None:
        begins = isinstance(request, BeginQuorumEpochRequest)
        error = ErrorCode.NONE
        if request.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif self._leader_key(request.leader_id) is None:
            error = ErrorCode.INVALID_REQUEST
        elif isinstance(request, BeginQuorumEpochRequest) and not request.voter.may_be(self.key):
            error = ErrorCode.INVALID_VOTER_KEY
        elif request.epoch == self.epoch and self.leader_id not in (None, request.leader_id):
            error = ErrorCode.INVALID_REQUEST
        else:
            self._adopt(request.epoch, request.leader_id if begins else None)
            if isinstance(request, EndQuorumEpochRequest) and isinstance(self.role, Follower):
                self.role.end_epoch(self, request.successors)
        self.reply(token, EpochResponse(self.epoch, self.known_leader, error))

    def _not_leading(self, epoch: int) -> ErrorCode:
        """Returns why this node cannot serve a request to the leader of an epoch; NONE if it leads it."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _voters_asked(self, token: object, request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest) -> None:
        error = self._not_leading(request.epoch if isinstance(request, UpdateVoterRequest) else self.epoch)
        if error or not isinstance(self.role, Leader):
            self.reply(token, VoterResponse(self.epoch, self.known_leader, error))
        elif isinstance(request, AddVoterRequest):
            self.role.changes.add(self, self.role, token, request)
        elif isinstance(request, RemoveVoterRequest):
            self.role.changes.remove(self, self.role, token, request)
        else:
            self.role.update_voter(self, token, request)

    def _fetch(self, token: object, request: FetchRequest | FetchSnapshotRequest) -> None:
        error = self._not_leading(request.epoch)
        if isinstance(self.role, Leader) and not error:
            if isinstance(request, FetchRequest):
                self.role.fetch(self, token, request)
            else:
                self.role.fetch_snapshot(self, token, request)
        elif isinstance(request, FetchRequest):
            self.refuse_fetch(token, error)
        else:
            self.reply(token, FetchSnapshotResponse(self.epoch, self.known_leader, request.snapshot, error=error))

    def _answered(self, event: ev.Answered) -> None:
        if not self.peers.answered(event.peer, event.number):
            return
        message = event.message
        if isinstance(message, SupportResponse):
            if isinstance(self.role, Leader):
                self.role.changes.supported(self, self.role, event.number, message)
            return
        if self._has_lost_votes and isinstance(message, FetchResponse) and message.error in _TELLS_EPOCH:
            self._reported_epochs.add(event.peer)
            self._has_lost_votes = len(self.other_voters) - len(self.to_be_heard) <= len(self.voters) - self.majority
        self._adopt(message.epoch, message.leader_id)
        if message.epoch == self.epoch:
            self.role.answered(self, event.peer, message)
        else:
            self.peers.rest(event.peer, self.now)

    # --- what roles do

    def send_to(self, voters: Iterable[ReplicaKey], request: Callable[[ReplicaKey], Request]) -> None:
        """Sends a request to those voters that may be asked now."""
        for voter in voters:
            if self.now >= self.peers.ready_ms(voter.id):
                self.out.send.append(ev.Send(voter.id, self.peers.ask(voter.id, self.now), request(voter)))

    def fetch_request(self, wait_ms: int | None = None) -> Callable[[ReplicaKey], FetchRequest]:
        """Returns the fetch from the end of this log; the leader may park it."""
        end = self.log.last
        wait_ms = self.settings.fetch_wait_ms if wait_ms is None else wait_ms
        request = FetchRequest(self.epoch, self.key, end.epoch, end.offset, self.high_watermark, wait_ms)
        return lambda _: request

    def reply(self, token: object, message: Response, read_from: int = 0, read_to: int = 0) -> None:
        """Answers a request."""
        self.out.reply.append(ev.Reply(token, message, read_from, read_to))

    def refuse_fetch(self, token: object, error: ErrorCode) -> None:
        """Answers a fetch with an error and the leader."""
        self.reply(token, FetchResponse(self.epoch, self.known_leader, error=error))

    def append(self, entries: Entries) -> None:
        """Appends to the log."""
        self.log.append(entries)
        self.out.append.append(entries)
        if entries.control:
            self.sets.note_all(entries.base_offset, entries.control)
            self._take_voters()

    def may_follow(self, entries: Entries) -> bool:
        """Returns whether a leader's entries continue this log, and are of no epoch above the requested one."""
        is_next = entries.base_offset == self.log.end_offset and entries.count > 0
        return is_next and self.log.last.epoch <= entries.epoch <= self.epoch

    def may_load(self, snapshot: Position) -> bool:
        """Returns whether a leader's snapshot contains more than this log, including everything committed in it."""
        last = self.log.last
        is_newer = snapshot.offset > last.offset or snapshot.epoch > last.epoch
        return is_newer and snapshot.offset >= max(1, self.high_watermark)

    def install(self, end: Position, voters: VoterSet | None) -> None:
        """Replaces the log with a leader's snapshot; `voters` None: the snapshot has no voter set."""
        assert end.offset >= self.high_watermark, "a leader's snapshot goes beyond what is committed here"
        self.log.start_at(end)
        self.sets.start_at(end.offset, voters)
        self._take_voters()
        self.out.install = end
        self.commit(end.offset)

    def truncate(self, offset: int) -> None:
        """Drops what the leader does not have."""
        assert offset >= self.high_watermark, "a truncation leaves committed entries alone"
        self.log.truncate(offset)
        self.sets.truncate(offset)
        self._take_voters()
        self._complete_at = None
        self.out.truncate_to = offset

    def heard(self, mark: int) -> None:
        """Takes the leader's high watermark from an answer that continues this log."""
        self.heard_high_watermark = max(self.heard_high_watermark, mark)
        self.commit(min(self.log.end_offset, mark))
        # A watermark of an earlier epoch may be stale: only with an entry of its own epoch a leader knows what was
        # committed.
        if self.is_incomplete and 0 < mark <= self.log.end_offset and self.log.epoch_below(mark) == self.epoch:
            self._complete_at = mark
            self._look_whether_complete()

    def _look_whether_complete(self) -> None:
        if self._complete_at is not None and self.log.synced_offset >= self._complete_at:
            self.is_incomplete, self._complete_at = False, None
            self.out.is_complete = True

    def commit(self, offset: int) -> None:
        """Advances the high watermark, which never goes back."""
        if offset > self.high_watermark:
            self.high_watermark = self.out.committed = offset
