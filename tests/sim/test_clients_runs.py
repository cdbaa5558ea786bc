"""Clusters that our asyncio client writes to and reads from: seeds that must hold, and planted faults of the client."""

from __future__ import annotations

import pytest

from headrace.sim.clients_run import run_clients_seed
from headrace.sim.found_at import seeds_of
from headrace.sim.sabotage import PLANTED_IN_CLIENTS, planted

BLOCKS = [0, *(pytest.param(block, marks=pytest.mark.soak) for block in range(1, 12))]
BLOCK_SEEDS = 4


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(1000 + block * BLOCK_SEEDS, 1000 + (block + 1) * BLOCK_SEEDS):
        result = run_clients_seed(seed)
        assert result.objection is None, f"python -m headrace.sim --clients --seed {seed}"
        assert result.acknowledged


PROVED_BY_LESS = "asks-one-broker-who-leads"
"""Found after two minutes; tests/client/test_routing.py proves the same without a cluster."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.soak] * (name == PROVED_BY_LESS)) for name in PLANTED_IN_CLIENTS],
)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_clients_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
def test_a_seed_has_one_trace() -> None:
    assert run_clients_seed(4).digest == run_clients_seed(4).digest
