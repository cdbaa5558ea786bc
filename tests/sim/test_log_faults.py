"""The log on a simulated disk that fails and fills up: a short run of seeds here, thousands with `pytest -m slow`."""

from __future__ import annotations

import pytest
from peers.tried import tried
from sim.test_log_crash import STEPS, settings

from headrace.log.producers import Producers
from headrace.log.segment import Segment
from headrace.sim.disk import SimFile
from headrace.sim.workloads.log_crash import Broken
from headrace.sim.workloads.log_faults import LogFaultTest


def run(seed: int) -> LogFaultTest:
    test = LogFaultTest(seed, settings(compact=seed % 2 == 1))
    test.run(STEPS)
    return test


def test_no_error_and_no_full_disk_breaks_a_promise() -> None:
    seeds = tried(30)
    ran = [run(seed) for seed in range(seeds)]
    assert sum(test.errors for test in ran) > seeds
    assert sum(test.refusals for test in ran) > 3 * seeds
    assert sum(test.failed_starts for test in ran) > seeds / 3


@pytest.mark.slow
@pytest.mark.parametrize("block", [*range(2), *(pytest.param(block, marks=pytest.mark.soak) for block in range(2, 10))])
def test_no_fault_breaks_a_promise_in_thousands_of_seeds(block: int) -> None:
    for seed in range(10_000 + block * 100, 10_100 + block * 100):
        run(seed)


def test_a_seed_does_the_same_twice() -> None:
    def files(seed: int) -> list[tuple[str, bytes]]:
        disk = run(seed).disk
        return [(name, disk.read_file(f"/data/t-0/{name}")) for name in disk.list("/data/t-0")]

    assert files(5) == files(5)


def broken(seeds: range) -> bool:
    try:
        for seed in seeds:
            run(seed)
    except Broken:
        return True
    return False


def test_the_checker_notices_a_refused_batch_that_its_producer_is_thought_to_have_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Producers, "drop", Producers.commit)
    assert broken(range(60))


def test_the_checker_notices_a_failed_write_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    append = SimFile.append

    def half(file: SimFile, parts: list[bytes]) -> int:
        try:
            return append(file, parts)
        except OSError:
            file._node.write(len(file._node.data), b"".join(parts)[:40])
            raise

    monkeypatch.setattr(SimFile, "append", half)
    assert broken(range(0, 120, 2))


def test_the_checker_notices_an_answer_that_the_disk_did_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.log.writer.is_passing", lambda _: True)  # any error is taken for a full disk
    assert broken(range(60))


@pytest.mark.slow
def test_the_checker_notices_memory_that_is_trusted_after_a_sync_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an earlier process, whose machine goes on: what it appended is there, and no sync will write it."""
    monkeypatch.setattr(SimFile, "forget", lambda *_: None)
    assert broken(range(60))


def test_the_checker_notices_a_sync_that_is_retried_after_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has taken the pages for written: that the second one succeeds proves nothing."""
    sync = Segment.sync

    def retry(segment: Segment) -> None:
        try:
            sync(segment)
        except OSError:
            sync(segment)

    monkeypatch.setattr(Segment, "sync", retry)
    assert broken(range(60))
