"""The events that the quorum's driver takes, and the effects that it carries out, as values.

The machine's `Output` says what one step wants. `effects_of` lists that as effects in the order in which they must
happen: store the election, step down, install, truncate, append, sync, send, reply, store a piece of a snapshot,
commit. What a commit makes visible follows as `Publish` and `Answer` (see `uncommitted`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.raft.events import Event, Output, Piece, Reply, Send
from headrace.raft.messages import Entries, Position
from headrace.raft.quorum_state import QuorumState

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.quorum.uncommitted import Decide


# --- events


@dataclass(frozen=True, slots=True)
class Submitted:
    """A request for a decision on the newest image; `asked` gets its reply."""

    decide: Decide
    asked: Future[Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """The next turn of the event loop, for work that is done in parts: committed records are applied, committed
    decisions are published, and a decision of many pieces continues."""


DriverEvent = Event | Submitted | Turn
"""What the driver takes: the machine's events, and its own."""


# --- effects


@dataclass(frozen=True, slots=True)
class Store:
    """Store an election on stable storage, on a worker. Nothing that follows is done before."""

    state: QuorumState


@dataclass(frozen=True, slots=True)
class StepDown:
    """Revert what was decided and is not committed: this node has lost the lead."""


@dataclass(frozen=True, slots=True)
class Install:
    """Replace the image and the log by the leader's snapshot that ends here."""

    end: Position


@dataclass(frozen=True, slots=True)
class Truncate:
    """Remove everything from this offset on."""

    offset: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append entries at the end of the log."""

    entries: Entries


@dataclass(frozen=True, slots=True)
class Sync:
    """Sync the log, which ends here, by the end of this turn of the event loop."""

    end: Position


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything below this offset is committed."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Complete:
    """A log that lacked records has all that is committed: this node votes from now on."""


Effect = Store | StepDown | Install | Truncate | Append | Sync | Send | Reply | Piece | Commit | Complete


def effects_of(out: Output, end: Position, *, steps_down: bool = False) -> list[Effect]:
    """Returns what one step of the machine wants done, in order.

    `end` is the end of the machine's log after the step; `steps_down` says that the step cost an active controller its
    lead. Nothing in `send` and `reply` depends on the sync: what has to wait for it is an output of `Synced`.
    """
    effects: list[Effect] = []
    if out.store is not None:
        effects.append(Store(out.store))
    if steps_down:
        effects.append(StepDown())
    if out.install is not None:
        effects.append(Install(out.install))
    if out.truncate_to is not None:
        effects.append(Truncate(out.truncate_to))
    effects += map(Append, out.append)
    if out.append or out.truncate_to is not None:
        effects.append(Sync(end))
    effects += out.send
    effects += out.reply
    if out.piece is not None:
        effects.append(out.piece)
    if out.committed is not None:
        effects.append(Commit(out.committed))
    if out.is_complete:
        effects.append(Complete())
    return effects
