"""A voter's metadata log on a simulated disk, whose pages survive in any order."""

from __future__ import annotations

import pytest
from peers.tried import tried

from headrace.broker.quorum import metadata_start
from headrace.sim.disk import SimFile
from headrace.sim.sabotage import planted
from headrace.sim.workloads.log_crash import Broken
from headrace.sim.workloads.metadata_crash import MetadataCrashTest


class Anything(int):
    """Equal to every checksum."""

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False

    __hash__ = int.__hash__


STEPS = 200
SEEDS = 60


def test_no_crash_breaks_a_promise() -> None:
    crashes = 0
    seeds = tried(SEEDS)
    for seed in range(seeds):
        test = MetadataCrashTest(seed)
        test.run(STEPS)
        crashes += test.crashes
    assert crashes > 10 * seeds


def broken() -> bool:
    try:
        for seed in range(SEEDS):
            MetadataCrashTest(seed).run(STEPS)
    except Broken:
        return True
    return False


def test_a_hole_that_is_taken_for_damage_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As sound batches follow it."""
    real = metadata_start.refuse_damage
    monkeypatch.setattr(metadata_start, "refuse_damage", lambda env, directory, _: real(env, directory, None))
    assert broken()


def test_memory_that_is_trusted_after_a_sync_has_failed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an earlier life of the node, whose machine goes on."""
    monkeypatch.setattr(SimFile, "forget", lambda *_: None)
    assert broken()


def test_a_later_batch_that_is_trusted_after_a_hole_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody computes checksums."""
    monkeypatch.setattr("headrace.log.scan.crc32c", lambda _: Anything())
    assert broken()


def test_metadata_that_are_not_synced_are_noticed() -> None:
    with planted("never-syncs-metadata"):
        assert broken()


def test_a_lost_sync_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimFile, "sync", lambda _: None)
    assert broken()
