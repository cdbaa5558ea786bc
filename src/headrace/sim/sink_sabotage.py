"""Planted faults in the exactly-once sink of Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.client.groups import commit_offsets
from headrace.sim.workloads.spark_queries import Shape
from headrace.spark.delivery import batch_commit, markers, per_task, plans
from headrace.spark.delivery.batch_commit import Batch
from headrace.spark.delivery.encoding import HashedRows
from headrace.spark.delivery.markers import Mark, NextWrite, Plan, Step
from headrace.spark.delivery.next_write import last_mark
from headrace.spark.delivery.per_task import TaskWrite
from headrace.spark.delivery_options import EXACTLY_ONCE, PER_TASK

Real = Callable[..., Any]


def _skip(_mark: Mark, _turn: NextWrite) -> Step:
    """A batch that has a mark is there, whichever of its writes comes."""
    return Step.SKIP


def _without_digest(real: Real) -> Real:
    def repeated(mark: Mark, upcoming: NextWrite) -> Any:
        return real(replace(mark, offsets=""), upcoming)

    return repeated


def _without_writes(real: Real) -> Real:
    def repeated(mark: Mark, upcoming: NextWrite) -> Any:
        writes = tuple(replace(each, digest=upcoming.write.digest) for each in mark.writes)
        return real(replace(mark, writes=writes), upcoming)

    return repeated


def _pass_over(real: Real) -> Real:
    """What has a newer mark is there."""

    def decide(mark: Mark | None, upcoming: NextWrite, *, trusted: bool) -> Any:
        if mark is not None and mark.batch_id > upcoming.batch_id:
            return Step.SKIP
        return real(mark, upcoming, trusted=trusted)

    return decide


def _begin_without_a_mark(real: Real) -> Real:
    """A query without a mark has written nothing yet."""

    def decide(mark: Mark | None, upcoming: NextWrite, *, trusted: bool) -> Any:
        return Step.WRITE if mark is None else real(mark, upcoming, trusted=trusted)

    return decide


def _ask_the_group_alone(client: Any, how: Any, query_id: str) -> Mark | None:
    """What the group has forgotten, nobody knows."""
    return markers.read_mark(client, markers.group_of(query_id), how.marker_topic, stable=True)


def _mark_first(real: Real) -> Real:
    """The mark is committed by itself, and then the batch."""

    def transact(self: Batch, producer: Any) -> None:
        rows = sum(part.rows for part in self.parts)
        mark = self.upcoming.marked(self.mark, tasks=len(self.parts), rows=rows, mode=self.how.mode)
        commit_offsets(self.client, self.group, {(self.how.marker_topic, markers.PARTITION): mark.committed()})
        real(self, producer)

    return transact


def _compare_nothing(_self: TaskWrite, _mark: Mark, rows: HashedRows) -> None:
    """A task that has a mark has its rows in the topic."""
    rows.exhaust()


def _pass_rows_over(*_: object, **__: object) -> str:
    """What has the number of the mark is the batch that is there."""
    return ""


def _no_plan(_mark: Mark | None, upcoming: NextWrite) -> Plan:
    """A run that leaves no plan, and asks for none."""
    return Plan(0, upcoming.run_id, 0, upcoming.place)


def _plan_nothing(self: TaskWrite) -> tuple[Plan | None, bool]:
    """Whether the batch is there is all that counts."""
    mark = last_mark(self.client, self.how, self.query_id)
    done = markers.decide(mark, self.upcoming, trusted=self.how.trusted) is Step.SKIP
    return (None if done else _no_plan(mark, self.upcoming)), False


def _fence_nothing(*_: object) -> int:
    """What other runs have committed is not asked for, and what they have open may be committed."""
    return 0


ONE: Final = Shape("query", EXACTLY_ONCE, grouped=False, topics=("one",), commit_topic="", rivals=True, changes=False)
TWO: Final = replace(ONE, topics=("one", "other"), commit_topic="commits", rivals=False)
EXPIRING: Final = replace(ONE, rivals=False, expires=True)
TASKS: Final = replace(ONE, mode=PER_TASK, changes=True)
SHAPES: Final[Mapping[str, Shape]] = {
    "decides-without-the-ordinal": TWO,
    "compares-no-digest": ONE,
    "compares-no-options-of-writes": replace(TWO, changes=True),
    "passes-over-what-is-older": ONE,
    "takes-a-missing-mark-for-the-first": EXPIRING,
    "forgets-the-commit-topic": replace(EXPIRING, commit_topic="commits"),
    "marks-before-it-commits": TWO,
    "compares-no-rows-of-batches": replace(ONE, plain=True),
    "compares-no-rows-of-tasks": TASKS,
    "leaves-no-plan": TASKS,
    "fences-nothing-for-a-plan": TASKS,
}
"""Which query meets each fault."""


def sink_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    repeated = vars(markers)["_repeated"]
    return {
        "decides-without-the-ordinal": [(markers, "_repeated", _skip)],
        "compares-no-digest": [(markers, "_repeated", _without_digest(repeated))],
        "compares-no-options-of-writes": [(markers, "_repeated", _without_writes(repeated))],
        "passes-over-what-is-older": [(markers, "decide", _pass_over(markers.decide))],
        "takes-a-missing-mark-for-the-first": [(markers, "decide", _begin_without_a_mark(markers.decide))],
        "forgets-the-commit-topic": [
            (batch_commit, "last_mark", _ask_the_group_alone),
            (per_task, "last_mark", _ask_the_group_alone),
            (plans, "last_mark", _ask_the_group_alone),
        ],
        "marks-before-it-commits": [(Batch, "_transact", _mark_first(vars(Batch)["_transact"]))],
        "compares-no-rows-of-batches": [(markers, "compare_rows", _pass_rows_over)],
        "compares-no-rows-of-tasks": [(TaskWrite, "_compare", _compare_nothing)],
        "leaves-no-plan": [(TaskWrite, "_planned", _plan_nothing), (plans, "check_owner", _no_plan)],
        "fences-nothing-for-a-plan": [(plans, "_committed", _fence_nothing)],
    }
