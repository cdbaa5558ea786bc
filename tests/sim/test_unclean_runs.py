"""Clusters with a topic of which leaders may lack what was acknowledged: seeds that must hold, and planted faults."""

from __future__ import annotations

import pytest

from headrace.sim.found_at import seeds_of
from headrace.sim.sabotage import PLANTED_IN_UNCLEAN_ELECTIONS, planted
from headrace.sim.unclean_run import UncleanRun, run_unclean_seed

BLOCKS = [0, *(pytest.param(block, marks=pytest.mark.soak) for block in range(1, 12))]
BLOCK_SEEDS = 5
FOUND_SOON = ("keeps-the-epochs-of-what-it-cut", "elects-uncleanly-everywhere")
"""The others are found in the same way, after two minutes in which not all replicas come to be in sync."""


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    lost = given_up = 0
    for seed in range(1000 + block * BLOCK_SEEDS, 1000 + (block + 1) * BLOCK_SEEDS):
        run = UncleanRun(seed)
        assert run.run().objection is None, f"python -m headrace.sim --unclean --seed {seed}"
        lost += run.loose.lost
        given_up += sum(reader.given_up for reader in run.readers)
    assert lost + given_up > 0, "leaders are elected that lack something"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[] if each in FOUND_SOON else pytest.mark.soak) for each in PLANTED_IN_UNCLEAN_ELECTIONS],
)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_unclean_seed(seed).objection is not None for seed in seeds_of(name))
