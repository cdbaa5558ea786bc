"""Three controllers under the simulator: seeds that must hold, one trace a seed, and planted faults."""

from __future__ import annotations

import pytest

from headrace.sim.__main__ import main
from headrace.sim.found_at import seeds_of
from headrace.sim.quorum_run import run_quorum_seed
from headrace.sim.sabotage import PLANTED_IN_QUORUMS, planted

FOUND = {
    179: "a disk that failed while its directory was locked kept the lock",
    1250: "a clean stop was cut short by the end of the faults, and nobody ended it",
}
"""Seeds that broke something once, and why."""
BLOCKS = [3, *(pytest.param(block, marks=pytest.mark.soak) for block in (0, 1, 2))]
BLOCK_SEEDS = 12


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(1000 + block * BLOCK_SEEDS, 1000 + (block + 1) * BLOCK_SEEDS):
        assert run_quorum_seed(seed).objection is None, f"python -m headrace.sim --quorum --seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND)
def test_what_broke_once_holds(seed: int) -> None:
    assert run_quorum_seed(seed).objection is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_QUORUMS)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_quorum_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
def test_a_seed_has_one_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """And settings are confirmed in it."""
    said = []
    for _ in range(2):
        assert main(["--quorum", "--seed", "2"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and said[0].splitlines()[-1].startswith("digest: ")
    assert run_quorum_seed(2).acknowledged > 0
