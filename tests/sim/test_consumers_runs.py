"""Consumer groups under the simulator: seeds that must hold, and planted faults that each must be found."""

from __future__ import annotations

import pytest

from headrace.sim import consumers_run
from headrace.sim.consumers_run import ConsumersRun, run_consumers_seed
from headrace.sim.found_at import SEEDS_OF_A_PLANT, seeds_of
from headrace.sim.sabotage import PLANTED_IN_CONSUMERS, planted

SEEDS = (4, 9, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(10, 30)))
KINDS: dict[str, dict[str, object]] = {
    "no upgrades": {"POLICIES": ("downgrade",)},
    "no downgrades": {"POLICIES": ("upgrade",)},
    "no conversions": {"POLICIES": ("disabled",)},
    "cooperative members": {"COOPERATES": 1.0, "CONVERTS": 1.0},
    "regular expressions": {"BY_REGEX": (1.0,)},
    "other topics than before": {"RESTLESS": 1.0, "BY_REGEX": (0.5,)},
}
"""What a seed may draw, by what it is about."""


@pytest.mark.parametrize("seed", SEEDS)
def test_consumers_share_partitions_as_they_are_promised(seed: int) -> None:
    result = run_consumers_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --consumers --seed {seed}"
    assert result.commits > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_CONSUMERS)
def test_a_fault_planted_into_consumer_groups_is_found(name: str) -> None:
    with planted(name):
        assert any(run_consumers_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_each_kind_keep_their_promises(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, drawn in KINDS[kind].items():
        monkeypatch.setattr(consumers_run, name, drawn)
    result = run_consumers_seed(9)
    assert result.objection is None and result.commits > 0


@pytest.mark.slow
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
