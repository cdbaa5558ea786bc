"""One log of a follower under the simulator: seeds that must hold, one trace a seed, and planted faults."""

from __future__ import annotations

import pytest
from peers.tried import tried

from headrace.sim.found_at import seeds_of
from headrace.sim.sabotage import PLANTED_IN_LOGS, planted
from headrace.sim.workloads.log_reading import run_log_seed

BLOCKS = [0, *(pytest.param(block, marks=pytest.mark.soak) for block in range(1, 40))]
BLOCK_SEEDS = tried(40)


@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(1 + block * BLOCK_SEEDS, 1 + (block + 1) * BLOCK_SEEDS):
        assert run_log_seed(seed).objection is None, f"python -m headrace.sim --log --seed {seed}"


@pytest.mark.parametrize("name", PLANTED_IN_LOGS)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_log_seed(seed).objection is not None for seed in seeds_of(name))


def test_a_seed_has_one_trace() -> None:
    assert run_log_seed(3).digest == run_log_seed(3).digest
    assert run_log_seed(3).acknowledged > 0
