"""What happens to a node of the quorum, and what it then wants done: the two ends of `Raft.step`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.raft.control import VoterEndpoint
from headrace.raft.messages import Entries, Position, Request, Response
from headrace.raft.quorum_state import QuorumState
from headrace.raft.voter_set import VoterSet


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: `Raft.deadline_ms` is reached."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A peer asks; `token` is how the shell knows again to whom the reply goes."""

    token: object
    message: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """A peer answers the request of that number."""

    peer: int
    number: int
    message: Response


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The request of that number could not be delivered, or its answer will not come.

    `refused`: the peer's machine says that no process listens there.
    """

    peer: int
    number: int
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Propose:
    """The leader's shell has something to append: `count` entries. Only where `Raft.leads`."""

    count: int
    payload: Any


@dataclass(frozen=True, slots=True)
class RaiseVersion:
    """kraft.version is to be raised to a level, from which on the log says who votes. Only where
    `Raft.version_refusal` has nothing against it."""

    level: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The disk had no room for the entries from this offset on, which were the last to be appended: they never were.

    Sent before any other event, and only for an append that was proposed.
    """

    base_offset: int


@dataclass(frozen=True, slots=True)
class Synced:
    """All below this end is on stable storage; `log.last` as it was when the sync began.

    The epoch distinguishes it from another end at the same offset, after a truncation.
    """

    end: Position


@dataclass(frozen=True, slots=True)
class Snapshotted:
    """A snapshot of this node's own ends at `end`, and is on stable storage. The log now begins at `start`, where this
    or an older snapshot ends."""

    end: Position
    start: Position


@dataclass(frozen=True, slots=True)
class PieceStored:
    """What was received of a snapshot is written, up to this position: more of it may come."""

    snapshot: Position
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotLoaded:
    """The snapshot that ends here was received, checked, and is on stable storage under a name of its own.

    `voters` is who votes by it, None where it does not say so.
    """

    end: Position
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class SnapshotUnusable:
    """The snapshot that ends here was received and is no snapshot, or could not be stored."""

    end: Position


@dataclass(frozen=True, slots=True)
class Resign:
    """The node is to stop: a leader lets another one lead."""


Event = (
    Tick
    | Requested
    | Answered
    | Unreachable
    | Propose
    | RaiseVersion
    | Refused
    | Synced
    | Snapshotted
    | PieceStored
    | SnapshotLoaded
    | SnapshotUnusable
    | Resign
)


@dataclass(frozen=True, slots=True)
class Send:
    """A request to another node; the answer comes back with its number.

    `endpoint`: the address that a node claims which is not a voter yet.
    """

    peer: int
    number: int
    message: Request
    endpoint: VoterEndpoint | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to the request of `token`.

    The shell fills `entries` of a fetch's answer with the log's [read_from, read_to), as far as the size of an answer
    allows; and `data` of a snapshot's with that range of the file and its size, or sets the error if there is none.
    """

    token: object
    message: Response
    read_from: int = 0
    read_to: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a snapshot that a leader sent. Position 0 begins the file again; `is_last`: then it is whole."""

    snapshot: Position
    position: int
    data: bytes
    is_last: bool


@dataclass(slots=True)
class Output:
    """What one step wants done, in this order: store, install, truncate, append, then send and reply.

    `store` must be on stable storage before anything leaves. Appended entries need not be: nothing in `send` and
    `reply` depends on entries that are not synced. What does is an output of `Synced`.
    """

    store: QuorumState | None = None
    truncate_to: int | None = None
    append: list[Entries] = field(default_factory=list)
    send: list[Send] = field(default_factory=list)
    reply: list[Reply] = field(default_factory=list)
    committed: int | None = None
    """The new high watermark: what lies below it is committed, and stays so."""
    piece: Piece | None = None
    """To be written: `PieceStored`, `SnapshotLoaded` or `SnapshotUnusable` says what became of it."""
    is_complete: bool = False
    """A voter whose log lacked what it once had has all that is committed: from now on it votes."""
    install: Position | None = None
    """The snapshot that was loaded takes the place of the image and of the whole log, which begins again behind it."""
