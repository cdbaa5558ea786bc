"""What deciding yields: a reply, and the records that make it true once they are committed and applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """The outcome of one decide step, which itself changed nothing.

    `reply` may leave only after every one of `records` is committed and applied; with no records it may leave at once.

    What would take long is decided in pieces, and others have their turn between them: `then` decides the next piece,
    on the newest image once `records` are committed. The reply of the last piece is the one that leaves. A piece leaves
    metadata that make sense without the next one: it may never come.

    `kraft_version` is the level that the metadata quorum is to be raised to with it, None: it stays what it is.
    """

    reply: R
    records: Sequence[Any] = ()
    then: Callable[[Any], Decision[R]] | None = None
    kraft_version: int | None = None
