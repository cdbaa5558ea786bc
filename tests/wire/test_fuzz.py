"""A short run of the fuzzer; the long one is tests/wire/fuzz.py by itself."""

from __future__ import annotations

import pytest
from wire.fuzz import fuzz


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_frames(seed: int) -> None:
    decoded, refused = fuzz(10_000, seed)
    assert decoded > 1000
    assert refused > 1000


@pytest.mark.slow
def test_many_mutated_frames() -> None:
    fuzz(200_000, 3)
