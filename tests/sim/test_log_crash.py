"""The log on a simulated disk: a short run of seeds here, thousands with `pytest -m slow`, and more with `--soak`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from headrace.config import BrokerConfig, topic_config
from headrace.config.topic import TopicConfig
from headrace.sim.disk import SimFile
from headrace.sim.workloads.log_crash import Broken, LogCrashTest

STEPS = 150


def settings(*, compact: bool) -> TopicConfig:
    return replace(
        topic_config(BrokerConfig.load({}, lambda _: None), {}),
        segment_bytes=4000,
        index_interval_bytes=300,
        segment_index_bytes=400,
        cleanup_policy=frozenset({"compact" if compact else "delete"}),
        delete_retention_ms=200,
        retention_ms=-1,
    )


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 30))])
def test_no_crash_breaks_a_promise(seed: int) -> None:
    LogCrashTest(seed, settings(compact=seed % 2 == 1)).run(STEPS)


FOUND = {
    1025: "compaction dropped the batch that a crash made a producer's last one",
    1040: "the index of a segment that had been rolled was not synced with the recovery point",
    20000: "the name of a segment was not synced after a process that had made it died",
    20227: "a producer snapshot told of batches in a segment that a crash had cut",
    20592: "an index that a dead process had written was taken for synced",
    30871: "recovery wrote the safe part of an index again, and a second crash tore it",
}
"""Seeds that broke a promise once, and why."""


@pytest.mark.parametrize("seed", FOUND)
def test_what_broke_once_holds(seed: int) -> None:
    LogCrashTest(seed, settings(compact=seed % 2 == 1)).run(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("block", [*range(4), *(pytest.param(block, marks=pytest.mark.soak) for block in range(4, 20))])
def test_no_crash_breaks_a_promise_in_thousands_of_seeds(block: int) -> None:
    for seed in range(10_000 + block * 100, 10_100 + block * 100):
        LogCrashTest(seed, settings(compact=seed % 2 == 1)).run(STEPS)


def test_a_lost_flush_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker can fail: a disk that syncs nothing breaks the promise of a flush within a few seeds."""
    monkeypatch.setattr(SimFile, "sync", lambda _: None)
    with pytest.raises(Broken, match="promised|was safe"):
        for seed in range(0, 40, 2):
            LogCrashTest(seed, settings(compact=False)).run(STEPS)


def test_a_seed_does_the_same_in_every_process() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_log_crash import fingerprint; print(fingerprint(7))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, os.path.dirname(__file__)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert outputs == {fingerprint(7) + "\n"}


def fingerprint(seed: int) -> str:
    """A digest of every file after a run."""
    test = LogCrashTest(seed, settings(compact=True))
    test.run(STEPS)
    digest = hashlib.sha256()
    for name in test.disk.list("/data/t-0"):
        digest.update(name.encode() + test.disk.read_file(f"/data/t-0/{name}"))
    return digest.hexdigest()
