"""What the nodes of the quorum say to each other, as values: votes, the beginning and end of an epoch, fetches.

Every message carries the cluster id on the wire; its decoder checks it.
Source: KIP-595, KIP-650 (pre-vote: KIP-996), KIP-853.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headrace.raft.control import ControlRecord, Voter, VoterEndpoint
from headrace.wire.errors import ErrorCode

NO_DIRECTORY: Final = bytes(16)
"""An unknown directory: at kraft.version 0 voters are known by their node id alone."""


class ReplicaKey(NamedTuple):
    """Who votes or fetches: a node, and the id of its metadata directory, or `NO_DIRECTORY`."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    def may_be(self, other: ReplicaKey) -> bool:
        """Whether both name the same replica, as far as is known."""
        is_known = NO_DIRECTORY not in (self.directory_id, other.directory_id)
        return self.id == other.id and (self.directory_id == other.directory_id or not is_known)


class Position(NamedTuple):
    """An end of a log: the epoch of the last entry below `offset`. Of two logs the greater is the more up to date."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entries:
    """Consecutive entries of one epoch, as one or several batches; `payload` is the shell's business.

    `control`: where they are control records, those, one an entry, and None for one of no known type.
    """

    base_offset: int
    epoch: int
    count: int
    payload: Any
    control: tuple[ControlRecord | None, ...] = ()

    @property
    def end_offset(self) -> int:
        """The offset behind the last of them."""
        return self.base_offset + self.count


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Asks `voter` for its vote in `epoch`, or (pre-vote) whether it would vote if the epoch after it began.

    `log_end` is what the candidate has on stable storage: it must be able to keep its word after a crash.
    """

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    log_end: Position
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """Whether the vote is given. `epoch` and `leader_id` (None: unknown) are what the voter knows, as in every answer.

    `pre_vote` is that of the request.
    """

    epoch: int
    leader_id: int | None
    granted: bool
    pre_vote: bool
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """A new leader tells a voter that it leads."""

    epoch: int
    leader_id: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """A leader steps down; the successors it would prefer, most caught up first."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class EpochResponse:
    """The answer to the beginning and to the end of an epoch."""

    epoch: int
    leader_id: int | None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica asks the leader of `epoch` for what lies behind the end of its own log.

    (`last_fetched_epoch`, `offset`) is the end of the log, all of it on the replica's stable storage: the leader counts
    it. `high_watermark` is the one that the replica knows, -1 for none.
    """

    epoch: int
    replica: ReplicaKey
    last_fetched_epoch: int
    offset: int
    high_watermark: int = -1
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Entries, or why there are none: `diverging` is where the replica's log ends in the leader's eyes, `snapshot` the
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
    """A replica asks the leader of `epoch` for the bytes of a snapshot from `position` on, `max_bytes` at most.

    `snapshot` is the end of what it holds, which names it.
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
    """Asks the leader for a node to become a voter; its range of kraft.version is asked of the node itself.

    `acks_when_committed`: the answer comes when the change is committed, else when it is appended.
    """

    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...]
    acks_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """Asks the leader for a voter to be removed."""

    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """A voter tells the leader of `epoch` where it is reached, and which levels of kraft.version it runs."""

    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True)
class SupportRequest:
    """A leader asks a node that is to vote which levels of kraft.version it runs."""


@dataclass(frozen=True, slots=True)
class VoterResponse:
    """The answer to a change of the voters."""

    epoch: int
    leader_id: int | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class SupportResponse:
    """The levels of kraft.version that a node runs: (lowest, highest)."""

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
