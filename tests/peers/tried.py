"""How many examples or seeds a test tries that says itself how many it needs: a third of them in `make check`."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

ALL: Final = 100
"""What a test tries that does not say how many; the profile of `make check` has a third."""
LEAST: Final = 8


def tried(number: int) -> int:
    """So many, or in `make check` a third of them and a few at least."""
    return number if settings().max_examples >= ALL else max(min(number, LEAST), number // 3)
