"""The result of deciding: a reply, and the records to commit and apply before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """The outcome of one decide step, which itself changed nothing.

    `reply` is sent only after every one of `records` is committed and applied; without records it may be sent at once.

    Long work is decided in pieces, with other requests in between: `then` decides the next piece, upon the newest image
    once `records` are committed. The reply of the last piece is sent. A piece leaves metadata that are valid without
    the next one, which may never come.

    `kraft_version` is the level that the metadata quorum is to be raised to with it, None: unchanged.
    """

    reply: R
    records: Sequence[Any] = ()
    then: Callable[[Any], Decision[R]] | None = None
    kraft_version: int | None = None
