"""What a shard of a coordinator decides: records, and what leaves once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from headrace.wire.errors import ErrorCode
from headrace.wire.markers import EndMarker


class Waiter(Protocol):
    """A request that waits for its reply, which is sent once."""

    def complete(self, value: Any) -> None:
        """Gives the answer."""
        ...


Refuse: TypeAlias = Callable[[ErrorCode], Any]
"""Makes the reply that says an error, in the shape that the request asks for."""

Then: TypeAlias = "Callable[[ErrorCode, int], Outcome]"
"""What to decide once an outcome's records are committed, or could not be: (error, now_ms)."""


class Ending(NamedTuple):
    """The end of a transaction, to be written into the log of a shard."""

    marker: EndMarker
    raises_epoch: bool
    """Whether the marker carries an epoch above that of the transaction (transaction.version 2: KIP-890)."""

    @property
    def origin(self) -> Literal["marker", "raising marker"]:
        """How a log is to look at the batch."""
        return "raising marker" if self.raises_epoch else "marker"


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log, as `env.node.LogSink` takes it."""

    event: str
    fields: Mapping[str, object]


@dataclass(slots=True, eq=False)
class Outcome:
    """What a shard's decision asks the runtime to do, in this order.

    1. append `records`, all or none, and apply them; 2. once they are committed, send `reply` to the requester; 3.
    send `released` to waiting requests; 4. call `then`, and carry out its outcome. Without records all of it happens
    at once, but a reply that depends on an earlier decision that is not committed yet waits for that one. If the
    records cannot be appended, or are not committed in time, an error replaces `reply`; `released` is sent all the
    same, and `then` gets the error.
    """

    reply: Any = None
    """The response to the request; None when the machine kept its waiter."""
    records: list[Any] = field(default_factory=list)
    released: list[tuple[Waiter, Any]] = field(default_factory=list)
    """Answers to requests that waited, this one among them perhaps."""
    then: Then | None = None
    question: Any = None
    """Work that would hold the event loop up, upon values that do not change: the shell has it done elsewhere, and
    tells the shard what came of it by another decision. It is asked like a reply, once `records` are committed."""
    notes: list[Note] = field(default_factory=list)
    """For the log: the machine writes no line itself."""
    producer: tuple[int, int] | None = None
    """(producer id, epoch) in whose open transaction `records` are written; None: they count at once."""
    ending: Ending | None = None
    """The end of a transaction, in the place of `records`."""
    is_whole: bool = False
    """Whether `records` go into one batch, which no crash, follower or other coordinator sees a part of. Where it would
    be larger than the topic allows, MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE takes the place of `reply`."""
    encoded: Sequence[tuple[bytes, bytes | None] | None] = ()
    """Of each record its key and value, as `Shard.encode` gives them, where they are known already; None of those of
    which they are not."""
    is_atomic: bool = True
    """False for tidying up, whose records may be appended in parts: what could not be is decided again another time."""

    def note(self, event: str, /, **fields: object) -> None:
        """Has a line written: `event` is a constant sentence, and whatever a client has named is one of the fields."""
        self.notes.append(Note(event, fields))

    def at_once(self, waiter: Waiter) -> Outcome:
        """The same, but the reply leaves like an answer to somebody who waited: whatever is not committed yet."""
        if self.reply is not None:
            self.released.insert(0, (waiter, self.reply))
            self.reply = None
        return self
