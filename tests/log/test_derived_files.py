"""Whatever derived files are missing or damaged when a log is opened, it says what it said before it stopped."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from log.derived_files import Writer, damage, described, unproven
from peers.tried import tried

from headrace.config.topic import TopicConfig
from headrace.log.derived import DERIVED
from headrace.sim.disk import SimDisk

CASES, SOAK_CASES, BLOCKS = 200, 5_000, 8


def check(seed: int, defaults: TopicConfig) -> None:
    rng = random.Random(seed)
    config = replace(defaults, index_interval_bytes=rng.choice((1, 150, 4096)))
    config = replace(config, segment_bytes=rng.choice((700, 1500, 1 << 20)))
    disk = SimDisk(rng)
    disk.make_dirs("/t-0")
    writer = Writer(disk, config, rng)
    is_blind = False
    for round_ in range(rng.randint(1, 3)):
        for _ in range(rng.randint(5, 50)):
            writer.step()
        before = described(writer.log)
        how = rng.choice(("stop", "kill", "power"))
        stopped = writer.stop(how)
        done = damage(disk, rng)
        is_blind = is_blind or unproven(disk, done, how)
        if is_blind:
            del before["times"], before["newest"]
        if rng.random() < 0.1:
            stopped = stopped._replace(clean=False)  # .kafka_cleanshutdown is gone
        if rng.random() < 0.1:
            stopped = stopped._replace(clean=False, recovery_point=0)  # and the recovery points
        for time in ("first", "second"):
            writer.start(stopped)
            after = described(writer.log)
            for name, said in before.items():
                assert after[name] == said, (seed, round_, how, time, name, done)
            if time == "first":
                stopped = writer.stop(how)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_log_says_what_it_said_before(defaults: TopicConfig, block: int) -> None:
    for seed in range(block, tried(CASES), BLOCKS):
        check(seed, defaults)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_log_says_what_it_said_before_many_times(defaults: TopicConfig, block: int) -> None:
    for seed in range(CASES + block, CASES + SOAK_CASES, BLOCKS):
        check(seed, defaults)


def test_the_page_has_the_table_that_recovery_goes_by() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats" / "log.md").read_text(encoding="utf-8")
    for kind, (made_from, vouches_for) in DERIVED.items():
        cells = [", ".join(f"`{each}`" for each in kinds) for kinds in (made_from, vouches_for)]
        assert f"| `{kind}` | {cells[0]} | {cells[1] + ' ' if cells[1] else ''}|" in page, kind


def test_no_file_is_left_but_the_batches(defaults: TopicConfig) -> None:
    """A committed, an aborted and an open transaction, and a sequenced batch: all of that is in the batches."""
    disk = SimDisk(random.Random(1))
    disk.make_dirs("/t-0")
    writer = Writer(disk, defaults, random.Random(1))
    for committed in (True, False):
        writer.append(3, transactional=True)
        writer.end(3, committed=committed)
    writer.append(1)
    writer.append(4, transactional=True)
    before = described(writer.log)
    assert before["stable"] < before["end"]
    stopped = writer.stop("stop")
    for name in disk.list("/t-0"):
        if not name.endswith(".log"):
            disk.remove(f"/t-0/{name}")
    writer.start(stopped)
    assert described(writer.log) == before


def test_after_a_crash_a_sealed_index_is_believed_no_more_than_its_seal(defaults: TopicConfig) -> None:
    """The segment ends at the recovery point: none of its batches is read again but those behind its last entry."""
    disk = SimDisk(random.Random(1))
    disk.make_dirs("/t-0")
    writer = Writer(disk, replace(defaults, index_interval_bytes=1), random.Random(1))
    for _ in range(3):
        writer.append()
        writer.now_ms -= 10  # so the first batch has the only time entry
    writer.log.writer.roll(now_ms=writer.now_ms)
    writer.log.flush()
    writer.checkpoint()
    writer.now_ms += 1000
    writer.append()  # the newest of all
    before = described(writer.log)
    path = "/t-0/00000000000000000000.timeindex"
    assert disk.size(path) == 12
    disk.damage(path, 2, 0x7F)  # a time far ahead, as no batch has it
    writer.start(writer.stop("kill"))
    assert described(writer.log) == before
