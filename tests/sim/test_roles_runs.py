"""Clusters whose partitions change their role under workers: seeds that must hold, and planted faults."""

from __future__ import annotations

import pytest

from headrace.sim.found_at import seeds_of
from headrace.sim.roles_run import RolesRun, run_roles_seed
from headrace.sim.sabotage import PLANTED_IN_ROLES, planted

BLOCKS = [0, *(pytest.param(block, marks=pytest.mark.soak) for block in range(1, 12))]
BLOCK_SEEDS = 5


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    met: dict[str, int] = {}
    for seed in range(1000 + block * BLOCK_SEEDS, 1000 + (block + 1) * BLOCK_SEEDS):
        run = RolesRun(seed)
        assert run.run().objection is None, f"python -m headrace.sim --roles --seed {seed}"
        for work, count in run.roles.met.items():
            met[work] = met.get(work, 0) + count
    assert met["syncs"] > 0 < met["cuts"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_ROLES)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_roles_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
def test_a_seed_has_one_trace() -> None:
    assert run_roles_seed(4).digest == run_roles_seed(4).digest
