"""A leader's changes of the voter set: one change at a time, each after the previous one is committed.

A voter is added (it must have caught up, and support the finalized kraft.version), removed, or gets other endpoints.
The new set applies once it is appended; the request is answered when a majority of it has committed it.

At kraft.version 0 the voters are those of the settings, and register with each leader. Once all have, the version can
be raised, and their registrations become the first set in the log. Source: KIP-853.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.raft.control import Voter, VoterEndpoint, kraft_version, voters_record
from headrace.raft.events import Send
from headrace.raft.messages import (
    AddVoterRequest,
    Entries,
    RemoveVoterRequest,
    SupportRequest,
    SupportResponse,
    UpdateVoterRequest,
    VoterResponse,
)
from headrace.raft.voter_set import VoterSet, key_of
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.raft.leader import Leader
    from headrace.raft.machine import Raft

CAUGHT_UP_MS: Final = 3_600_000
"""A new voter must have caught up within this time, as in Kafka."""


@dataclass(slots=True)
class Pending:
    """A change with a waiting request. `adding`: the node that is asked for its versions; `end_offset`: where the
    appended change is committed."""

    token: object
    until_ms: int
    adding: AddVoterRequest | None = None
    number: int = -1
    end_offset: int | None = None


class VoterChanges:
    """The voter changes of one leader's epoch."""

    def __init__(self) -> None:
        self.pending: Pending | None = None
        self._registered: dict[int, Voter] = {}
        """The registrations of the other voters, at kraft.version 0."""

    # --- requests

    def add(self, raft: Raft, leader: Leader, token: object, request: AddVoterRequest) -> None:
        """Starts to add a voter: first asks the node for its versions."""
        key = request.key
        if key.id < 0 or key.directory_id == bytes(16):
            self._answer(raft, token, ErrorCode.INVALID_REQUEST, "The new voter's id or directory id is missing.")
        elif (endpoint := _endpoint(raft, request.endpoints)) is None:
            self._answer(raft, token, ErrorCode.INVALID_REQUEST, _no_listener(raft))
        elif (refusal := self._refusal(raft, leader)) is not None:
            self._answer(raft, token, *refusal)
        elif raft.sets.newest.of(key.id) is not None:
            self._answer(raft, token, ErrorCode.DUPLICATE_VOTER, f"Node {key.id} is a voter already.")
        elif raft.now < raft.peers.ready_ms(key.id):
            why = f"Node {key.id} cannot be asked now."
            self._answer(raft, token, ErrorCode.REQUEST_TIMED_OUT, why)
        else:
            number = raft.peers.ask(key.id, raft.now)
            self.pending = Pending(token, raft.now + raft.settings.request_timeout_ms, request, number)
            raft.out.send.append(Send(key.id, number, SupportRequest(), endpoint))

    def supported(self, raft: Raft, leader: Leader, number: int, response: SupportResponse | None) -> None:
        """Takes the versions that a node supports (None: no answer), and appends the voter set with it if it may
        vote."""
        pending = self.pending
        if pending is None or pending.adding is None or pending.number != number:
            return
        adding, newest = pending.adding, raft.sets.newest
        if response is None or response.error:
            why = "no answer" if response is None else response.error.name
            self._finish(raft, ErrorCode.REQUEST_TIMED_OUT, f"Node {adding.key.id} does not say what it runs: {why}.")
        elif not _covers(response.levels, newest):
            lowest, highest = response.levels
            why = f"Node {adding.key.id} runs kraft.version {lowest} to {highest}, not {newest.kraft_version}."
            self._finish(raft, ErrorCode.INVALID_REQUEST, why)
        elif not leader.has_caught_up(raft, adding.key, CAUGHT_UP_MS):
            why = f"Node {adding.key.id} does not have all that the leader has yet."
            self._finish(raft, ErrorCode.REQUEST_TIMED_OUT, why)
        else:
            voter = Voter(adding.key.id, adding.key.directory_id, adding.endpoints, *response.levels)
            pending.end_offset = self._append(raft, newest.with_voter(voter))
            if not adding.acks_when_committed:
                self._finish(raft, ErrorCode.NONE)

    def remove(self, raft: Raft, leader: Leader, token: object, request: RemoveVoterRequest) -> None:
        """Removes a voter from the set."""
        newest = raft.sets.newest
        if request.key.id < 0 or request.key.directory_id == bytes(16):
            self._answer(raft, token, ErrorCode.INVALID_REQUEST, "The voter's id or directory id is missing.")
        elif (refusal := self._refusal(raft, leader)) is not None:
            self._answer(raft, token, *refusal)
        elif request.key not in newest.keys:
            why = f"Node {request.key.id} is no voter with this directory id."
            self._answer(raft, token, ErrorCode.VOTER_NOT_FOUND, why)
        elif len(newest.voters) == 1:
            self._answer(raft, token, ErrorCode.INVALID_REQUEST, "The last voter cannot be removed.")
        else:
            until_ms = raft.now + raft.settings.request_timeout_ms
            end_offset = self._append(raft, newest.without(request.key))
            self.pending = Pending(token, until_ms, end_offset=end_offset)

    def update(self, raft: Raft, leader: Leader, token: object, request: UpdateVoterRequest) -> None:
        """Updates a voter's endpoints or versions; at kraft.version 0 only in memory. It is answered at once, as in
        Kafka."""
        voter, newest = request.voter, raft.sets.newest
        if (refusal := self._refusal(raft, leader, needs_version=False)) is not None:
            self._answer(raft, token, *refusal)
        elif not _covers((voter.min_kraft_version, voter.max_kraft_version), newest):
            why = f"Node {voter.id} does not run kraft.version {newest.kraft_version}."
            self._answer(raft, token, ErrorCode.INVALID_REQUEST, why)
        elif _endpoint(raft, voter.endpoints) is None:
            self._answer(raft, token, ErrorCode.INVALID_REQUEST, _no_listener(raft))
        elif not newest.names(key_of(voter)):
            why = f"Node {voter.id} is no voter with this directory id."
            self._answer(raft, token, ErrorCode.VOTER_NOT_FOUND, why)
        else:
            if newest.kraft_version > 0:
                self._append(raft, newest.with_voter(voter))
            else:
                self._registered[voter.id] = voter
            self._answer(raft, token, ErrorCode.NONE)

    def version_refusal(self, raft: Raft, level: int) -> str | None:
        """Returns why kraft.version cannot be raised to a level, in Kafka's words; None if it can."""
        voters = self._registered_voters(raft)
        if voters is None or not all(each.min_kraft_version <= level <= each.max_kraft_version for each in voters):
            name = f"KRAFT_VERSION_{level}"
            return f"Invalid upgrade of kraft.version to {name} because not all of the voters support it"
        return None

    def raise_version(self, raft: Raft, level: int) -> None:
        """Writes the first voter set into the log: the voters of the settings, as they registered."""
        voters = self._registered_voters(raft)
        assert raft.kraft_version < level and voters is not None and self.version_refusal(raft, level) is None
        records = (kraft_version(level), voters_record(voters))
        raft.append(Entries(raft.log.end_offset, raft.epoch, len(records), records, records))

    def _registered_voters(self, raft: Raft) -> list[Voter] | None:
        """Returns the voters as they registered, this node among them; None if one of them has not."""
        registered = self._registered if raft.own is None else self._registered | {raft.own.id: raft.own}
        ids = sorted(voter.id for voter in raft.voters)
        return [registered[node_id] for node_id in ids] if all(node_id in registered for node_id in ids) else None

    def _refusal(self, raft: Raft, leader: Leader, *, needs_version: bool = True) -> tuple[ErrorCode, str] | None:
        """Returns why no voter can change now. The error is retriable, except at kraft.version 0."""
        if self.pending is not None:
            return ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is under way."
        if not leader.is_established(raft):
            return ErrorCode.REQUEST_TIMED_OUT, "The leader does not know yet what is committed."
        level = raft.sets.newest.kraft_version
        if level < 1 and needs_version:
            return ErrorCode.UNSUPPORTED_VERSION, f"The voters cannot change, because kraft.version is {level}."
        if raft.sets.newest_offset >= raft.high_watermark:
            return ErrorCode.REQUEST_TIMED_OUT, "The last change of the voters is not committed yet."
        return None

    def _append(self, raft: Raft, voters: VoterSet) -> int:
        changed = set(voters.keys) ^ set(raft.sets.newest.keys)
        assert len(changed) <= 1, "one voter comes or goes at a time: any two majorities meet"
        record = voters_record(voters.voters)
        raft.append(Entries(raft.log.end_offset, raft.epoch, 1, (record,), (record,)))
        return raft.log.end_offset

    # --- how it ends

    def committed(self, raft: Raft) -> None:
        """Answers the waiting request if its change is committed."""
        pending = self.pending
        if pending is not None and pending.end_offset is not None and raft.high_watermark >= pending.end_offset:
            self._finish(raft, ErrorCode.NONE)

    def deadline_ms(self) -> int | None:
        """Returns when the waiting request is answered with REQUEST_TIMED_OUT."""
        return None if self.pending is None else self.pending.until_ms

    def tick(self, raft: Raft) -> None:
        """Answers a waiting request that timed out. An appended change stays, and may still be committed."""
        if self.pending is not None and raft.now >= self.pending.until_ms:
            self._finish(raft, ErrorCode.REQUEST_TIMED_OUT, "The change of the voters takes too long.")

    def left(self, raft: Raft) -> None:
        """Answers the waiting request when leadership ends: the next leader knows the outcome."""
        if self.pending is not None:
            self._finish(raft, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _finish(self, raft: Raft, error: ErrorCode, message: str | None = None) -> None:
        pending, self.pending = self.pending, None
        assert pending is not None
        self._answer(raft, pending.token, error, message)

    @staticmethod
    def _answer(raft: Raft, token: object, error: ErrorCode, message: str | None = None) -> None:
        raft.reply(token, VoterResponse(raft.epoch, raft.known_leader, error, message))


def own_request(raft: Raft, is_known: bool) -> AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | None:
    """Returns the request that brings the leader's registration of this node up to date; None if it is.

    A node that joins by itself first removes its registration from before it lost its disk. `is_known`: this leader has
    the voter's registration already, at kraft.version 0.
    """
    own, newest = raft.own, raft.sets.newest
    if own is None:
        return None
    if newest.kraft_version < 1:
        return UpdateVoterRequest(raft.epoch, own) if raft.is_voter and not is_known else None
    named = newest.of(own.id)
    if raft.is_voter:
        assert named is not None
        return None if _is_same(named, own) else UpdateVoterRequest(raft.epoch, own)
    if not raft.settings.auto_join:
        return None
    if named is not None:
        return RemoveVoterRequest(key_of(named))
    return AddVoterRequest(raft.me, own.endpoints, acks_when_committed=False)


def _is_same(one: Voter, other: Voter) -> bool:
    """Compares voters; endpoints have no order."""
    return one._replace(endpoints=()) == other._replace(endpoints=()) and set(one.endpoints) == set(other.endpoints)


def _covers(levels: tuple[int, int], voters: VoterSet) -> bool:
    return levels[0] <= voters.kraft_version <= levels[1]


def _endpoint(raft: Raft, endpoints: tuple[VoterEndpoint, ...]) -> VoterEndpoint | None:
    """Returns the endpoint of the listener between voters, or None."""
    name = raft.listener
    return next((each for each in endpoints if name in (None, each.name)), None)


def _no_listener(raft: Raft) -> str:
    return f"No endpoint of the listener {raft.listener} is named, by which voters reach one another."
