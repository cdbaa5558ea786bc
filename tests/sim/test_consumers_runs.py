"""Consumer groups under the simulator: seeds that must hold, and planted faults that each must be found."""

from __future__ import annotations

import pytest

from headrace.sim.consumers_run import ConsumersRun, run_consumers_seed
from headrace.sim.sabotage import PLANTED_IN_CONSUMERS, planted

SEEDS = (4, 9, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(10, 30)))
SEEDS_OF_A_PLANT = 60


@pytest.mark.parametrize("seed", SEEDS)
def test_consumers_share_partitions_as_they_are_promised(seed: int) -> None:
    result = run_consumers_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --consumers --seed {seed}"
    assert result.commits > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_CONSUMERS)
def test_a_fault_planted_into_consumer_groups_is_found(name: str) -> None:
    with planted(name):
        assert any(run_consumers_seed(seed).objection is not None for seed in range(1, 1 + SEEDS_OF_A_PLANT))


def test_a_seed_does_the_same_twice() -> None:
    assert run_consumers_seed(9).digest == run_consumers_seed(9).digest


@pytest.mark.slow
def test_members_that_were_expired_go_on_as_owners_for_a_while() -> None:
    """Otherwise the checker would never have to tell them from those that have to be waited for."""
    runs = (ConsumersRun(seed) for seed in range(7, 7 + SEEDS_OF_A_PLANT))
    assert any(run.run().objection is None and run.shares.expired > 0 for run in runs)


@pytest.mark.slow
def test_groups_with_members_are_converted_both_ways() -> None:
    runs = (ConsumersRun(seed) for seed in range(8, 8 + SEEDS_OF_A_PLANT))
    assert any(run.run().objection is None and run.shares.upgrades > 0 < run.shares.downgrades for run in runs)
