"""A broker whose replicas move between its log directories, while the work of its workers is interrupted."""

from __future__ import annotations

import pytest

from headrace.sim.found_at import seeds_of
from headrace.sim.run import run_moving_seed
from headrace.sim.sabotage import PLANTED_IN_MOVES, planted

BLOCKS = [0, *(pytest.param(block, marks=pytest.mark.soak) for block in range(1, 12))]
BLOCK_SEEDS = 12

FOUND = {
    11: "a group was written to while its log had moved, and waited for the start of its epoch to be written there",
}
"""Seeds that broke a promise once, and why."""


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(1000 + block * BLOCK_SEEDS, 1000 + (block + 1) * BLOCK_SEEDS):
        assert run_moving_seed(seed).objection is None, f"python -m headrace.sim --moving --seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND)
def test_what_broke_once_holds(seed: int) -> None:
    assert run_moving_seed(seed).objection is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_MOVES)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_moving_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
def test_a_seed_has_one_trace() -> None:
    assert run_moving_seed(2).digest == run_moving_seed(2).digest
