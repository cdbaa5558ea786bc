"""The inputs and outputs of `Raft.step`: events, and the effects that the shell carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.raft.control import VoterEndpoint
from headrace.raft.messages import Entries, Position, Request, Response
from headrace.raft.quorum_state import QuorumState
from headrace.raft.voter_set import VoterSet


@dataclass(frozen=True, slots=True)
class Tick:
    """The passage of time: `Raft.deadline_ms` is reached."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A peer's request; `token` identifies the requester to the shell."""

    token: object
    message: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """A peer's answer to the request of that number."""

    peer: int
    number: int
    message: Response


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The failure of the request of that number, which was not delivered or will not be answered.

    `refused`: no process listens on the peer's machine.
    """

    peer: int
    number: int
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Propose:
    """The leader's shell proposes `count` entries. Only if `Raft.leads`."""

    count: int
    payload: Any


@dataclass(frozen=True, slots=True)
class RaiseVersion:
    """The rise of kraft.version to a level from which the log holds the voters. Only if `Raft.version_refusal` allows
    it."""

    level: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The disk had no room for the entries from this offset on, the last ones appended: they do not exist.

    Sent before any other event, and only for an append that was proposed.
    """

    base_offset: int


@dataclass(frozen=True, slots=True)
class Synced:
    """The end of a sync: everything below this end is on stable storage; `log.last` as of the start of the sync.

    The epoch distinguishes it from another end at the same offset, after a truncation.
    """

    end: Position


@dataclass(frozen=True, slots=True)
class Snapshotted:
    """A snapshot of this node that ends at `end` is on stable storage. The log now starts at `start`, the end of this
    or an older snapshot."""

    end: Position
    start: Position


@dataclass(frozen=True, slots=True)
class PieceStored:
    """A received piece of a snapshot is written, up to this position: the next one may come."""

    snapshot: Position
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotLoaded:
    """The received snapshot that ends here was checked, and is on stable storage under its own name.

    `voters` is its voter set, None if it has none.
    """

    end: Position
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class SnapshotUnusable:
    """The received snapshot that ends here is invalid, or could not be stored."""

    end: Position


@dataclass(frozen=True, slots=True)
class Resign:
    """The node is about to stop: a leader resigns in favour of another."""


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

    `endpoint`: the address claimed by a node that is not a voter yet.
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
    """A received piece of a leader's snapshot. Position 0 starts the file again; `is_last` completes it."""

    snapshot: Position
    position: int
    data: bytes
    is_last: bool


@dataclass(slots=True)
class Output:
    """The effects of one step, in this order: store, install, truncate, append, then send and reply.

    `store` must be on stable storage before anything is sent. Appended entries need not be: nothing in `send` and
    `reply` depends on unsynced entries. Messages that do are outputs of `Synced`.
    """

    store: QuorumState | None = None
    truncate_to: int | None = None
    append: list[Entries] = field(default_factory=list)
    send: list[Send] = field(default_factory=list)
    reply: list[Reply] = field(default_factory=list)
    committed: int | None = None
    """The new high watermark: everything below it is committed for good."""
    piece: Piece | None = None
    """A piece to write, answered with `PieceStored`, `SnapshotLoaded` or `SnapshotUnusable`."""
    is_complete: bool = False
    """Whether a voter whose log had lost entries has everything committed again: from now on it votes."""
    install: Position | None = None
    """The end of the loaded snapshot that replaces the image and the whole log, which continues after it."""
