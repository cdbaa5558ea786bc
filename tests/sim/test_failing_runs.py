"""Clusters of which log directories fail: seeds that must hold, and planted faults."""

from __future__ import annotations

import pytest

from headrace.sim.failing_run import FailingRun, run_failing_seed
from headrace.sim.found_at import seeds_of
from headrace.sim.sabotage import PLANTED_IN_FAILURES, planted

BLOCKS = [0, *(pytest.param(block, marks=pytest.mark.soak) for block in range(1, 12))]
BLOCK_SEEDS = 5


@pytest.mark.slow
def test_others_lead_what_lay_in_a_directory_that_failed() -> None:
    run = FailingRun(1)
    assert run.run().objection is None, "python -m headrace.sim --failing --seed 1"
    assert run.checker.failures > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(1000 + block * BLOCK_SEEDS, 1000 + (block + 1) * BLOCK_SEEDS):
        assert run_failing_seed(seed).objection is None, f"python -m headrace.sim --failing --seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_FAILURES)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_failing_seed(seed).objection is not None for seed in seeds_of(name))
