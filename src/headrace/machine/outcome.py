"""The decision of a coordinator's shard: records, and the answers to send once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from headrace.wire.errors import ErrorCode
from headrace.wire.markers import EndMarker


class Waiter(Protocol):
    """A request that waits for its one reply."""

    def complete(self, value: Any) -> None:
        """Sends the reply."""
        ...


Refuse: TypeAlias = Callable[[ErrorCode], Any]
"""Builds the reply with an error, in the format of the request."""

Then: TypeAlias = "Callable[[ErrorCode, int], Outcome]"
"""Decides what follows once an outcome's records are committed, or failed: (error, now_ms)."""


class Ending(NamedTuple):
    """The end of a transaction, to be written into the log of a shard."""

    marker: EndMarker
    raises_epoch: bool
    """Whether the marker carries an epoch above that of the transaction (transaction.version 2: KIP-890)."""

    @property
    def origin(self) -> Literal["marker", "raising marker"]:
        """The origin of the batch for the log."""
        return "raising marker" if self.raises_epoch else "marker"


@dataclass(frozen=True, slots=True)
class Note:
    """A log line, as `env.node.LogSink` takes it."""

    event: str
    fields: Mapping[str, object]


@dataclass(slots=True, eq=False)
class Outcome:
    """The effects of a shard's decision, in this order.

    1. Append `records`, all or none, and apply them; 2. once they are committed, send `reply` to the requester; 3. send
    `released` to waiting requests; 4. call `then`, and carry out its outcome. Without records all of it happens at
    once, but a reply that depends on an earlier uncommitted decision waits for that one. If the records cannot be
    appended, or are not committed in time, an error replaces `reply`; `released` is sent all the same, and `then` gets
    the error.
    """

    reply: Any = None
    """The response to the request; None if the machine kept its waiter."""
    records: list[Any] = field(default_factory=list)
    released: list[tuple[Waiter, Any]] = field(default_factory=list)
    """Answers to waiting requests, perhaps including this one."""
    then: Then | None = None
    question: Any = None
    """Work that would block the event loop, on immutable values: the shell runs it elsewhere, and reports the result
    with another decision. It is sent like a reply, once `records` are committed."""
    notes: list[Note] = field(default_factory=list)
    """Log lines: the machine writes none itself."""
    producer: tuple[int, int] | None = None
    """(producer id, epoch) of the open transaction in which `records` are written; None: outside of transactions."""
    ending: Ending | None = None
    """The end of a transaction, instead of `records`."""
    is_whole: bool = False
    """Whether `records` go into one batch, of which no crash, follower or other coordinator sees a part. If it is
    larger than the topic allows, MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE replaces `reply`."""
    encoded: Sequence[tuple[bytes, bytes | None] | None] = ()
    """For each record its key and value from `Shard.encode`, if already known; otherwise None."""
    is_atomic: bool = True
    """False for cleanup whose records may be appended in parts: the rest is decided again later."""

    def note(self, event: str, /, **fields: object) -> None:
        """Adds a log line: `event` is a constant sentence, and client input goes into the fields only."""
        self.notes.append(Note(event, fields))

    def at_once(self, waiter: Waiter) -> Outcome:
        """Returns the outcome with the reply sent like a released answer, whatever is uncommitted."""
        if self.reply is not None:
            self.released.insert(0, (waiter, self.reply))
            self.reply = None
        return self
