"""The open files of segments, at most a fixed number at once.

A segment asks for its file each time it needs it. A file that leaves the cache is closed by its last reference, so only
a slice that waits in a slow consumer's queue keeps it open.
"""

from __future__ import annotations

from typing import Protocol

from headrace.env import File, Lock

OPEN_FILES_MAX = 4096
"""The default limit of open segment files."""


class HoldsFile(Protocol):
    """The interface of a segment for the cache."""

    open_file: File | None
    recently_used: bool


class OpenFiles:
    """Second-chance eviction: a segment used since the hand last passed stays for another round. Thread-safe."""

    __slots__ = ("_hand", "_holders", "_lock", "files_max")

    def __init__(self, lock: Lock, files_max: int = OPEN_FILES_MAX) -> None:
        assert files_max >= 1
        self.files_max = files_max
        self._holders: dict[int, HoldsFile] = {}
        self._hand: list[int] = []
        self._lock = lock

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: HoldsFile) -> None:
        """Notes that `holder.open_file` has just been set, and makes room for it."""
        holder.recently_used = True
        with self._lock:
            while len(self._holders) >= self.files_max:
                self._evict()
            self._holders[id(holder)] = holder

    def forget(self, holder: HoldsFile) -> None:
        """Notes that a holder closed its file by itself."""
        with self._lock:
            self._holders.pop(id(holder), None)

    def _evict(self) -> None:
        while True:
            if not self._hand:
                self._hand = list(self._holders)
                self._hand.reverse()
            key = self._hand.pop()
            holder = self._holders.get(key)
            if holder is None:
                continue
            if holder.recently_used:
                holder.recently_used = False
                continue
            del self._holders[key]
            holder.open_file = None
            return
