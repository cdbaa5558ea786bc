"""A table of hundreds of thousands of entries that grows in small steps.

Python moves all entries of a dictionary when it grows, at once: 350,000 of them block the event loop for 16 ms. A table
in PARTS parts moves a sixty-fourth of that at a time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

PARTS: Final = 64


class SplitTable(Generic[K, V]):
    """A dictionary without an order."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[dict[K, V]] = [{} for _ in range(PARTS)]
        """The entries; a key's hash selects its part."""

    def get(self, key: K) -> V | None:
        """Returns the value of a key, or None."""
        return self.parts[hash(key) % PARTS].get(key)

    def __contains__(self, key: object) -> bool:
        return key in self.parts[hash(key) % PARTS]

    def __getitem__(self, key: K) -> V:
        return self.parts[hash(key) % PARTS][key]

    def __setitem__(self, key: K, value: V) -> None:
        self.parts[hash(key) % PARTS][key] = value

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __bool__(self) -> bool:
        return any(self.parts)

    def discard(self, key: K) -> None:
        """Removes a key if it is there."""
        self.parts[hash(key) % PARTS].pop(key, None)
