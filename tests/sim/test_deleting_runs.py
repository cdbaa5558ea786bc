"""Clusters of which records are deleted: seeds that must hold, and planted faults."""

from __future__ import annotations

import pytest

from headrace.sim.deleting_run import DeletingRun, run_deleting_seed
from headrace.sim.found_at import SEEDS_OF_A_PLANT, seeds_of
from headrace.sim.sabotage import PLANTED_IN_DELETIONS, planted

BLOCKS = [0, *(pytest.param(block, marks=pytest.mark.soak) for block in range(1, 12))]
BLOCK_SEEDS = 5


def test_records_that_were_deleted_stay_so() -> None:
    run = DeletingRun(2)
    assert run.run().objection is None, "python -m headrace.sim --deleting --seed 2"
    assert run.deletions.confirmed > 10


@pytest.mark.slow
def test_transactions_end_though_topics_are_deleted_under_them() -> None:
    runs = (DeletingRun(seed) for seed in range(4, 4 + SEEDS_OF_A_PLANT))
    run = next(run for run in runs if run.doomed is not None)
    assert run.run().objection is None
    assert run.doomed is not None and run.doomed.deleted > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(1000 + block * BLOCK_SEEDS, 1000 + (block + 1) * BLOCK_SEEDS):
        assert run_deleting_seed(seed).objection is None, f"python -m headrace.sim --deleting --seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_DELETIONS)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_deleting_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
def test_a_seed_has_one_trace() -> None:
    assert run_deleting_seed(5).digest == run_deleting_seed(5).digest
