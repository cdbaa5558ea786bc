"""The memory of frames that are too large for the shared buffer: spare buffers, and pages of the system."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.broker.net.budget import Budget

SPARE_BUFFER_BYTES: Final = 8 * 1024 * 1024
"""Bound on the bytes of spare buffers that are kept for later large frames."""


class FrameMemory:
    """Provides the memory of large frames, one per server; `budget` bounds the total."""

    def __init__(self, budget: Budget, pages: Callable[[int], memoryview]) -> None:
        """`pages` reserves a number of bytes whose memory is used only as they are written. Raises OSError."""
        self.budget = budget
        self.pages = pages
        self._spares: list[bytearray] = []
        self._spare_bytes = 0

    def take_buffer(self, least: int, wanted: int) -> bytearray:
        """Returns a buffer of at least `least` bytes: a spare one, or a new one of `wanted` bytes."""
        spares = self._spares
        for i, spare in enumerate(spares):
            if least <= len(spare) <= 4 * wanted:
                self._spare_bytes -= len(spare)
                return spares.pop(i)
        return bytearray(max(least, wanted))

    def return_buffer(self, buffer: bytearray) -> None:
        """Keeps a buffer for the next large frame, or frees it."""
        size = len(buffer)
        if 4 * size <= SPARE_BUFFER_BYTES:
            while self._spare_bytes + size > SPARE_BUFFER_BYTES:
                self._spare_bytes -= len(self._spares.pop(0))
            self._spares.append(buffer)
            self._spare_bytes += size
