"""Randomness, injected so that a simulation can replay it."""

from __future__ import annotations

import random
from typing import Protocol


class Entropy(Protocol):
    """Where identifiers and jitter come from."""

    def uuid(self) -> bytes:
        """Sixteen random bytes that are neither Kafka's reserved ids nor start with a dash in base64."""
        ...

    def secret(self, size: int) -> bytes:
        """So many random bytes that nobody can guess: salts, nonces, keys."""
        ...

    def random(self) -> random.Random:
        """A generator of its own for one user, seeded by this source."""
        ...
