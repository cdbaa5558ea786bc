"""Deadlines by key: the machine's timers, which the shell wakes."""

from __future__ import annotations

import heapq
from typing import TypeAlias

TimerKey: TypeAlias = tuple[str, ...]
"""A kind of timer and its owner: ("session", group, member), ("join", group), ("sync", group), ("expire",)."""


class Timers:
    """Keyed deadlines in milliseconds.

    Moving a deadline later, which every heartbeat does, is one dict store: the heap keeps the old entry, which is put
    back at the true deadline when it comes up.
    """

    __slots__ = ("_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._queued: dict[TimerKey, int] = {}
        """The earliest valid heap entry of each key; its other entries are stale."""
        self._heap: list[tuple[int, TimerKey]] = []

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        """Sets the key's deadline, replacing any other."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queued[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: TimerKey) -> None:
        """Removes the key's deadline, if it has one."""
        if self._deadlines.pop(key, None) is not None and len(self._heap) > 64 + 2 * len(self._deadlines):
            self._rebuild()

    def deadline_ms(self) -> int | None:
        """Returns a time before which nothing is due, at most the next deadline; None if there are no timers."""
        while self._heap:
            queued_ms, key = self._heap[0]
            if self._queued.get(key) == queued_ms and key in self._deadlines:
                return queued_ms
            self._drop_first()
        return None

    def due(self, now_ms: int) -> TimerKey | None:
        """Removes and returns one expired key, in order of deadlines; None if there is none."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, key = self._heap[0]
            is_current = self._queued.get(key) == queued_ms
            self._drop_first()
            deadline_ms = self._deadlines.get(key)
            if not is_current or deadline_ms is None:
                continue
            if deadline_ms == queued_ms:
                del self._deadlines[key]
                return key
            assert deadline_ms > queued_ms, "an earlier deadline has an entry of its own"
            self._queued[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, key))
        return None

    def shift(self, by_ms: int) -> None:
        """Shifts every deadline after the clock was set."""
        self._deadlines = {key: deadline_ms + by_ms for key, deadline_ms in self._deadlines.items()}
        self._rebuild()

    def _drop_first(self) -> None:
        queued_ms, key = heapq.heappop(self._heap)
        if self._queued.get(key) == queued_ms:
            del self._queued[key]

    def _rebuild(self) -> None:
        """Drops stale entries once they outnumber the live ones, so that memory follows the live timers."""
        self._queued = dict(self._deadlines)
        self._heap = [(deadline_ms, key) for key, deadline_ms in self._deadlines.items()]
        heapq.heapify(self._heap)
