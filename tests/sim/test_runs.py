"""Whole brokers under the simulator: seeds that must hold, the same trace in every process, and planted faults."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from headrace.sim.__main__ import main
from headrace.sim.disk import SimDisk, SimDiskLock
from headrace.sim.found_at import seeds_of
from headrace.sim.kinds import EVERY_PLANT
from headrace.sim.run import LIGHT, Run, run_seed
from headrace.sim.sabotage import (
    PLANTED,
    PLANTED_IN_CLUSTERS,
    PLANTED_IN_QUORUMS,
    PLANTED_IN_TRANSACTIONS,
    planted,
)

BLOCKS = [0, 3, *(pytest.param(block, marks=pytest.mark.soak) for block in (1, 2, *range(4, 12)))]
BLOCK_SEEDS = 12

FOUND = {
    10: "a partition.metadata that a crash had torn kept the broker from starting",
    52: "a start that failed on a full disk kept the locks of its directories",
    109: "a log was opened with the default time after which a producer is forgotten, not with the one that was set",
    222: "an append beside the failure of the last directory met an assertion",
    263: "a log whose directory failed during recovery was begun anew in another",
    200020: "the simulator left a broker half stopped when it had faults enough, and nothing started another",
}
"""Seeds that broke a promise once, and why."""


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(1000 + block * BLOCK_SEEDS, 1000 + (block + 1) * BLOCK_SEEDS):
        assert run_seed(seed).objection is None, f"python -m headrace.sim --seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND)
def test_what_broke_once_holds(seed: int) -> None:
    assert run_seed(seed).objection is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_seed(seed).objection is not None for seed in seeds_of(name))


def test_a_light_load_meets_no_objection(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--light", "--seeds", "1-2"]) == 0
    assert "0 faults" in capsys.readouterr().out


def test_a_second_process_on_the_same_directories_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is refused, as in every run, nobody objects."""
    lines: list[str] = []
    short = replace(LIGHT, faults_s=1.0)
    assert Run(1, lines.append, short).run().objection is None
    assert any(" second process broker " in line for line in lines)

    def lock(disk: SimDisk, path: str) -> SimDiskLock:
        return SimDiskLock(disk, path)

    monkeypatch.setattr(SimDisk, "lock", lock)
    found = Run(1, options=short).run().objection
    assert found is not None and "second process" in str(found)


@pytest.mark.slow
def test_a_seed_has_one_trace_whatever_the_process() -> None:
    def digest(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "headrace.sim", "--seed", "1003"],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()[-1]

    first = digest("0")
    assert first.startswith("digest: ")
    assert {digest("1"), digest("123")} == {first}


def test_the_faults_are_listed_by_bare_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sabotage", "list"]) == 0
    names = capsys.readouterr().out.split("\n")[:-1]
    assert names == list(EVERY_PLANT)
    assert {*PLANTED, *PLANTED_IN_QUORUMS, *PLANTED_IN_CLUSTERS, *PLANTED_IN_TRANSACTIONS} < set(names)
    assert all(name.replace("-", "").isalnum() for name in names)


@pytest.mark.parametrize("arguments", [[], ["--seeds", "9-1"], ["--seed", "1", "--seeds", "1-2"], ["--sabotage", "x"]])
def test_arguments_that_make_no_sense(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert "usage" in capsys.readouterr().err
