"""Queries that write exactly once from Spark, under the simulator: seeds that must hold in every delivery, one trace a
seed, and faults that are planted into the sink."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headrace.client.transacting import TransactionalMachine
from headrace.sim.found_at import seeds_of
from headrace.sim.sabotage import PLANTED_IN_SINKS, planted
from headrace.sim.sink_run import SinkRun, drawn_shapes, run_sink_seed
from headrace.sim.sink_sabotage import EXPIRING, ONE, SHAPES, TWO, sink_plants
from headrace.sim.world import World
from headrace.spark.delivery_options import EXACTLY_ONCE, PER_TASK

SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40)))
DELIVERIES = {
    "the driver writes": TWO,
    "the tasks write": replace(TWO, grouped=True),
    "the tasks commit": replace(TWO, mode=PER_TASK),
    "two drivers": replace(ONE, grouped=True),
    "a checkpoint out of reach": replace(ONE, plain=True),
    "another program": replace(TWO, changes=True),
    "two drivers and plans of tasks": replace(ONE, mode=PER_TASK, changes=True),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_are_written_exactly_once(seed: int) -> None:
    result = run_sink_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --sink --seed {seed}"
    assert result.transactions > 0


@pytest.mark.parametrize("name", DELIVERIES)
def test_every_delivery_keeps_its_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is the one that is meant which does it."""
    ended: Counter[tuple[str, str]] = Counter()
    for each in ("_ask_for_one", "_ask_for_all"):
        real = vars(TransactionalMachine)[each]

        def noted(self: TransactionalMachine, *given: Any, each: str = each, real: Any = real) -> Any:
            ended[each, "task" if "-task-" in self.transactional_id else "driver"] += 1
            return real(self, *given)

        monkeypatch.setattr(TransactionalMachine, each, noted)
    shape = DELIVERIES[name]
    run = SinkRun(5, shapes=[shape])
    assert run.run().objection is None
    assert run.queries[0].committed >= 2
    assert bool(ended["_ask_for_all", "driver"]) is shape.grouped
    assert bool(ended["_ask_for_one", "task"]) is (shape.mode == PER_TASK)
    assert shape.grouped or ended["_ask_for_one", "driver"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", [EXACTLY_ONCE, PER_TASK])
@pytest.mark.parametrize("commit_topic", ["", "commits"])
def test_a_query_whose_mark_has_expired_writes_nothing_twice(mode: str, commit_topic: str) -> None:
    """It is refused and repaired, or a commit topic has the mark of a whole batch."""
    expired = repaired = 0
    wanted = 4 if mode == EXACTLY_ONCE else 1
    is_repaired = mode == PER_TASK or not commit_topic
    for seed in range(1, 61):
        if seed > 8 and expired >= wanted and (repaired > 0 or not is_repaired):
            break
        run = SinkRun(seed, shapes=[replace(EXPIRING, mode=mode, commit_topic=commit_topic)])
        assert run.run().objection is None
        marks = run.queries[0].marks
        expired, repaired = expired + marks.expired, repaired + marks.repaired
    assert expired >= wanted
    assert (repaired > 0) is is_repaired


def test_a_query_whose_marks_expire_is_alone() -> None:
    """The clocks are those of all queries, and nobody repairs the others."""
    drawn = [drawn_shapes(World(seed)) for seed in range(1, 60)]
    expiring = [shapes for shapes in drawn if any(shape.expires for shape in shapes)]
    assert expiring and all(len(shapes) == 1 for shapes in expiring)
    assert any(len(shapes) > 1 for shapes in drawn)


@pytest.mark.parametrize(("topics", "order"), [(("one", "other"), (1, 0)), (("one", "one"), (0, 1))])
def test_another_program_keeps_the_order_of_writes_to_one_topic(
    topics: tuple[str, ...], order: tuple[int, ...]
) -> None:
    run = SinkRun(1, shapes=[replace(TWO, topics=topics, changes=True)])
    assert run.run().objection is None
    assert [program.order for program in run.queries[0].programs] == [(0, 1), order]


def test_a_run_that_an_objection_ends_leaves_no_thread() -> None:
    before = threading.active_count()
    run = SinkRun(1, shapes=[TWO])
    run.world.loop.call_at(5.0, run.world.object, "enough")
    assert str(run.run().objection) == "enough"
    assert threading.active_count() == before


def test_the_plants_have_their_names() -> None:
    assert tuple(sink_plants()) == PLANTED_IN_SINKS == tuple(SHAPES)


FOUND_LATE = {"compares-no-rows-of-tasks", "leaves-no-plan", "fences-nothing-for-a-plan"}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if each in FOUND_LATE else []) for each in PLANTED_IN_SINKS]
)
def test_a_fault_planted_into_the_sink_is_found(name: str) -> None:
    with planted(name):
        assert any(SinkRun(seed, shapes=[SHAPES[name]]).run().objection is not None for seed in seeds_of(name))


@pytest.mark.slow
def test_a_seed_has_one_trace_whatever_the_process() -> None:
    def digest(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "headrace.sim", "--sink", "--seed", "2"],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()[-1]

    first = digest("0")
    assert first.startswith("digest: ")
    assert digest("1") == first
