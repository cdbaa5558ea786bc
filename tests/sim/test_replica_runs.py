"""Clusters whose leaders and in-sync sets change all the time: seeds that must hold, and planted faults."""

from __future__ import annotations

import pytest

from headrace.sim.found_at import seeds_of
from headrace.sim.replica_run import run_replica_seed
from headrace.sim.sabotage import PLANTED_IN_REPLICAS, planted
from headrace.sim.world import World

STEERED = {
    1: "leader unheard",
    2: "shrink unheard",
    3: "leaders in turn",
    4: "lost answer",
    6: "stale alteration",
}
"""A seed of each kind, and the fault that it is steered to."""
SEEDS = (2, 3, 6, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 4, 5, *range(7, 60))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_whose_leaders_change_keeps_its_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: set[str] = set()
    strikes = World.strikes

    def noted(world: World, kind: str, *what: str) -> bool:
        kinds.add(kind)
        return strikes(world, kind, *what)

    monkeypatch.setattr(World, "strikes", noted)
    result = run_replica_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --replicas --seed {seed}"
    assert result.acknowledged > 0
    assert STEERED.get(seed) in {None, *kinds}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_REPLICAS)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_replica_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alters-old-partition-epochs", "cuts-in-one-round"])
def test_a_seed_has_one_trace(name: str) -> None:
    """A fault makes its run a short one."""
    seed = seeds_of(name).start
    with planted(name):
        first, second = run_replica_seed(seed), run_replica_seed(seed)
    assert first.digest == second.digest
