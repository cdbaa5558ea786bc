"""Markers that partitions of this broker have, and that are not committed yet: meanwhile none is written twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machine.outcome import Ending

Told: TypeAlias = Callable[[ErrorCode], None]


class MarkersUnderWay:
    """By partition and what they end, with those who wait for each. There are as many as appends that wait for their
    replicas. Who waits is the transaction's coordinator: once, and again for each time that it was answered too early.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[str, int, Ending], list[Told]] = {}

    def __len__(self) -> int:
        return len(self._told)

    def write(self, topic: str, index: int, ending: Ending, append: Callable[[Told], None], told: Told) -> None:
        """Has a marker appended, and calls `told` with what comes of it; one that is under way is waited for."""
        key = (topic, index, ending)
        waiting = self._told.get(key)
        if waiting is not None:
            waiting.append(told)
            return
        self._told[key] = [told]

        def ended(error: ErrorCode) -> None:
            for each in self._told.pop(key):
                each(error)

        append(ended)
