"""Markers that partitions of this broker have, and that are not committed yet: meanwhile none is written twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machine.outcome import Ending
    from headrace.transactions.asks import TopicPartition

Told: TypeAlias = Callable[[ErrorCode], None]
Ended: TypeAlias = Callable[[ErrorCode, int], None]
"""As an internal append is told of: with an error and a base offset."""


class MarkersUnderWay:
    """By partition and what they end, with those who wait for each. There are as many as appends that wait for their
    replicas. Who waits is the transaction's coordinator: once, and again for each time that it was answered too early.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[TopicPartition, Ending], list[Told]] = {}

    def __len__(self) -> int:
        return len(self._told)

    def begin(self, partition: TopicPartition, ending: Ending, told: Told) -> Ended | None:
        """`told` hears what comes of a marker: what is returned is to be called then. None: it is under way already."""
        key = (partition, ending)
        waiting = self._told.get(key)
        if waiting is not None:
            waiting.append(told)
            return None
        self._told[key] = [told]
        return partial(self._ended, key)

    def _ended(self, key: tuple[TopicPartition, Ending], error: ErrorCode, _base_offset: int) -> None:
        for each in self._told.pop(key):
            each(error)
