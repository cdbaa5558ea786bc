"""The trace of a run: its events in order, kept as a digest and printed on demand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

SEPARATOR: Final = b"\x00"


class Trace:
    """Two runs of one seed have the same digest, in whatever process and under whatever PYTHONHASHSEED."""

    def __init__(self, now: Callable[[], float], say: Callable[[str], None] | None = None) -> None:
        self._now = now
        self._say = say
        self._hash = hashlib.blake2b(digest_size=16)
        self.events = 0
        self._closed = False

    def note(self, kind: str, *values: object, data: bytes = b"") -> None:
        """`data` goes into the digest alone; values are printed too."""
        if self._closed:
            return
        self.events += 1
        line = f"{self._now():.9f} {kind} {' '.join(map(str, values))}"
        self._hash.update(line.encode())
        self._hash.update(SEPARATOR)
        if data:
            self._hash.update(data)
            self._hash.update(SEPARATOR)
        if self._say is not None:
            self._say(line)

    def close(self) -> None:
        """Notes nothing more."""
        self._closed = True

    @property
    def digest(self) -> str:
        """Of everything noted so far."""
        return self._hash.hexdigest()
