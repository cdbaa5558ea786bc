"""The messages between the nodes of the quorum, as values: votes, the start and end of an epoch, fetches.

Every message carries the cluster id on the wire; its decoder checks it. Source: KIP-595, KIP-650 (pre-vote: KIP-996),
KIP-853.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headrace.raft.control import ControlRecord, Voter, VoterEndpoint
from headrace.wire.errors import ErrorCode

NO_DIRECTORY: Final = bytes(16)
"""An unknown directory: at kraft.version 0 voters are known by their node id alone."""


class ReplicaKey(NamedTuple):
    """A voter or fetching replica: a node, and the id of its metadata directory, or `NO_DIRECTORY`."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    def may_be(self, other: ReplicaKey) -> bool:
        """Returns whether both keys may name the same replica."""
        is_known = NO_DIRECTORY not in (self.directory_id, other.directory_id)
        return self.id == other.id and (self.directory_id == other.directory_id or not is_known)


class Position(NamedTuple):
    """An end of a log: the epoch of the last entry below `offset`. Of two logs the greater is more up to date."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entries:
    """Consecutive entries of one epoch, as one or several batches; only the shell reads `payload`.

    `control`: the entries if they are control records, with None for unknown types.
    """

    base_offset: int
    epoch: int
    count: int
    payload: Any
    control: tuple[ControlRecord | None, ...] = ()

    @property
    def end_offset(self) -> int:
        """The offset after the last entry."""
        return self.base_offset + self.count


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A request for the vote of `voter` in `epoch`, or (pre-vote) whether it would vote in the next epoch.

    `log_end` is what the candidate has on stable storage: it must keep its promise after a crash.
    """

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    log_end: Position
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The answer whether the vote is given. `epoch` and `leader_id` (None: unknown) are the voter's, as in every
    answer.

    `pre_vote` is that of the request.
    """

    epoch: int
    leader_id: int | None
    granted: bool
    pre_vote: bool
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """A new leader's announcement to a voter."""

    epoch: int
    leader_id: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """A leader's resignation, with its preferred successors, most caught up first."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class EpochResponse:
    """The answer to the start and to the end of an epoch."""

    epoch: int
    leader_id: int | None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica's request to the leader of `epoch` for the entries after its own log end.

    (`last_fetched_epoch`, `offset`) is the end of the log, all of it on the replica's stable storage: the leader counts
    it. `high_watermark` is the replica's, -1 for none.
    """

    epoch: int
    replica: ReplicaKey
    last_fetched_epoch: int
    offset: int
    high_watermark: int = -1
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Entries, or why there are none: `diverging` is where the replica's log diverges from the leader's, `snapshot` the
    end of the snapshot that it must load first."""

    epoch: int
    leader_id: int | None
    high_watermark: int = -1
    entries: tuple[Entries, ...] = ()
    diverging: Position | None = None
    snapshot: Position | None = None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """A replica's request to the leader of `epoch` for at most `max_bytes` of a snapshot from `position` on.

    `snapshot` is the end of its content, which identifies it.
    """

    epoch: int
    replica: ReplicaKey
    snapshot: Position
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """A piece of a snapshot of `size` bytes, from `position` on."""

    epoch: int
    leader_id: int | None
    snapshot: Position
    position: int = 0
    size: int = 0
    data: bytes = b""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """A request to the leader to add a voter; the range of kraft.version is asked of the node itself.

    `acks_when_committed`: the answer comes when the change is committed, otherwise when it is appended.
    """

    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...]
    acks_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """A request to the leader to remove a voter."""

    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """A voter's report to the leader of `epoch`: its endpoints and supported range of kraft.version."""

    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True)
class SupportRequest:
    """A leader's request for the range of kraft.version that a new voter supports."""


@dataclass(frozen=True, slots=True)
class VoterResponse:
    """The answer to a change of the voters."""

    epoch: int
    leader_id: int | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class SupportResponse:
    """The range of kraft.version that a node supports: (lowest, highest)."""

    levels: tuple[int, int] = (0, 0)
    error: ErrorCode = ErrorCode.NONE


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | SupportRequest
)
Response = VoteResponse | EpochResponse | FetchResponse | FetchSnapshotResponse | VoterResponse | SupportResponse
