"""An owner whose turns a test makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from headrace.env.completion import CompletionQueue
from headrace.env.owner import Owner


class TurnsByHand:
    """Collects what is to be called in the next turn."""

    def __init__(self) -> None:
        self.due: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.due.append((callback, args))

    def run(self) -> int:
        """Makes turns until nothing is due; returns how many."""
        turns = 0
        while self.due:
            due, self.due = self.due, []
            turns += 1
            for callback, args in due:
                callback(*args)
        return turns

    def completions(self) -> CompletionQueue:
        """Returns a queue that delivers in these turns."""
        return CompletionQueue(cast(Owner, self), asyncio.Future)
