"""What deciding yields: a reply, and the records that make it true once they are committed and applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """The outcome of one decide step, which itself changed nothing.

    `reply` may leave only after every one of `records` is committed and applied; with no records it may leave at once.
    """

    reply: R
    records: Sequence[Any] = ()
