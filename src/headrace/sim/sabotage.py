"""Faults that are planted into the broker on purpose: a simulator that does not find them would not find real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

Plant = Callable[[], AbstractContextManager[None]]

PLANTED: Final[dict[str, Plant]] = {}
"""By bare name."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The fault is there inside the block."""
    with PLANTED[name]():
        yield
