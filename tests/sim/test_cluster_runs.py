"""Clusters of three brokers under the simulator: seeds without an objection, and the same run in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.sim.cluster_run import run_cluster_seed


@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    result = run_cluster_seed(seed)
    assert result.objection is None, result.objection
    assert result.acknowledged > 0


def test_a_seed_is_the_same_run_in_every_process() -> None:
    command = [sys.executable, "-m", "headrace.sim", "--cluster", "--seed", "5"]
    said = {
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONHASHSEED": salt}
        ).stdout
        for salt in ("1", "2")
    }
    assert len(said) == 1 and "digest" in said.pop()
