"""What the mark of a query's last batch says about the next one."""

from __future__ import annotations

import json
import uuid

import pytest

from headrace.client.groups import Committed
from headrace.spark.delivery.markers import (
    FINGERPRINT_SIZE,
    NO_BATCH,
    RUNS_KEPT,
    WRITES_MAX,
    HistoryError,
    Mark,
    NextWrite,
    Plan,
    Step,
    Write,
    compare_rows,
    decide,
    group_of,
    parsed,
    task_group_of,
)


def mark(batch_id: int | None) -> Mark | None:
    return None if batch_id is None else Mark(batch_id)


@pytest.mark.parametrize(
    ("marked", "batch_id", "trusted", "step"),
    [
        (None, 0, False, Step.WRITE),
        (0, 1, False, Step.WRITE),
        (7, 8, False, Step.WRITE),
        (0, 0, False, Step.SKIP),
        (8, 8, False, Step.SKIP),
        (8, 8, True, Step.SKIP),
        (None, 5, True, Step.WRITE),
        (2, 5, True, Step.WRITE),
    ],
)
def test_a_batch_is_written_once(marked: int | None, batch_id: int, trusted: bool, step: Step) -> None:
    assert decide(mark(marked), NextWrite("q", "run", batch_id), trusted=trusted) is step


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(("marked", "batch_id"), [(1, 0), (9, 6)])
def test_a_checkpoint_that_is_behind_ends_the_query_whatever_is_trusted(
    marked: int, batch_id: int, trusted: bool
) -> None:
    with pytest.raises(HistoryError, match=f"^Batch {batch_id} of query q comes after batch {marked}.*nothing was"):
        decide(mark(marked), NextWrite("q", "run", batch_id), trusted=trusted)


@pytest.mark.parametrize(("marked", "last"), [(None, "no batch"), (2, "batch 2")])
def test_a_mark_that_is_gone_ends_the_query(marked: int | None, last: str) -> None:
    with pytest.raises(HistoryError, match=f"Batch 5 .* remembers {last} as the last one.*markerMissing to trust"):
        decide(mark(marked), NextWrite("q", "run", 5), trusted=False)


@pytest.mark.parametrize("trusted", [False, True])
def test_a_batch_that_was_planned_again_ends_the_query_whatever_is_trusted(trusted: bool) -> None:
    """A restored checkpoint, or a copied one: the number is that of the mark, and the records are others."""
    there = Mark(4, "run 1", 2, 17, offsets="aa")
    for run in ("run 1", "run 2"):
        assert decide(there, NextWrite("q", run, 4, "aa"), trusted=trusted) is Step.SKIP
        wrong = f"^Batch 4 of query q is in the topic with other records.*run 1 wrote.*{run}, has planned"
        with pytest.raises(HistoryError, match=wrong + ".*restored to a state before.*a copy.*nothing was written"):
            decide(there, NextWrite("q", run, 4, "bb"), trusted=trusted)
    assert decide(there, NextWrite("q", "run 2", 5, "bb"), trusted=trusted) is Step.WRITE


def test_a_mark_without_offsets_and_a_checkpoint_that_is_out_of_reach() -> None:
    """The mark of an older version, and that of a driver that could not read the checkpoint, say the number alone."""
    assert decide(Mark(4, "run", 2, 17), NextWrite("q", "run", 4, "aa"), trusted=False) is Step.SKIP
    assert decide(Mark(4, "run", 2, 17, offsets="aa"), NextWrite("q", "run", 4), trusted=False) is Step.SKIP


@pytest.mark.parametrize(("rows", "row_hash", "has"), [(17, 6, "has 17 others"), (18, 5, "has 18"), (0, 0, "has 0")])
def test_other_rows_end_the_query_where_nobody_can_read_offsets(rows: int, row_hash: int, has: str) -> None:
    there = NextWrite("q", "run 1", 4).marked(None, tasks=2, rows=17, mode="exactly-once", row_hash=5)
    upcoming = NextWrite("q", "run 2", 4)
    assert compare_rows(there, upcoming, 17, 5, trusted=False) == ""
    wrong = f"^Batch 4 of query q is in the topic with other rows: run run 1 .* 17 rows, and this run, run 2, {has}"
    with pytest.raises(HistoryError, match=wrong + ".*restored.*a copy.*nothing was written.*not deterministic"):
        compare_rows(there, upcoming, rows, row_hash, trusted=False)
    said = compare_rows(there, upcoming, rows, row_hash, trusted=True)
    assert said.startswith("Batch 4 of query q is not written: run run 1") and has in said


def test_what_is_not_known_of_rows_ends_no_query() -> None:
    upcoming, there = NextWrite("q", "run 2", 4), Mark(4, "run 1", 2, 17)
    assert compare_rows(there, upcoming, 17, 6, trusted=False) == ""
    assert "with 17 rows, and this run, run 2, has 18" in compare_rows(there, upcoming, 18, 6, trusted=False)
    assert compare_rows(Mark(4, "run 1", 2, 17, row_hash=5), upcoming, 17, None, trusted=False) == ""
    # offsets tell more
    assert (
        compare_rows(
            Mark(4, "run 1", 2, 17, row_hash=5, offsets="aa"), NextWrite("q", "r", 4, "aa"), 3, 3, trusted=False
        )
        == ""
    )


def test_each_of_several_writes_is_compared_with_its_own_rows() -> None:
    writes = [NextWrite("q", "run 1", 4, write=Write(number)) for number in range(3)]
    mark = None
    for upcoming in writes:
        mark = upcoming.marked(mark, tasks=1, rows=2, mode="exactly-once", row_hash=5 + upcoming.write.number)
    assert mark is not None and mark.row_hash is None
    found = parsed(mark.committed())
    assert found == mark
    for upcoming in writes:
        number = upcoming.write.number
        assert compare_rows(found, upcoming, 2, 5 + number, trusted=False) == ""
        assert compare_rows(found, upcoming, 2, None, trusted=False) == "", "a task has not reported its rows"
        for rows, row_hash in ((2, 9), (3, 5 + number), (2, 5 + (number + 1) % 3)):
            with pytest.raises(HistoryError, match=f"run 1 has done write {number + 1} of it, and this run"):
                compare_rows(found, upcoming, rows, row_hash, trusted=False)
            assert "has others" in compare_rows(found, upcoming, rows, row_hash, trusted=True)


def test_several_writes_whose_rows_nobody_has_hashed_are_not_compared() -> None:
    first = NextWrite("q", "run", 4).marked(None, tasks=1, rows=1, mode="exactly-once")
    second = NextWrite("q", "run", 4, write=Write(1)).marked(first, tasks=1, rows=1, mode="exactly-once", row_hash=6)
    assert compare_rows(second, NextWrite("q", "run", 4), 1, 7, trusted=False) == ""
    with pytest.raises(HistoryError):
        compare_rows(second, NextWrite("q", "run", 4, write=Write(1)), 1, 7, trusted=False)


def test_what_a_mark_is() -> None:
    mark = Mark(4, "run", 3, 17)
    said = mark.committed()
    assert group_of("8c1e") == "headrace-8c1e" and task_group_of("8c1e", 2) == "headrace-8c1e-task-2"
    assert (said.offset, said.leader_epoch) == (4, -1)
    assert json.loads(said.metadata or "") == {"v": 1, "run": "run", "tasks": 3, "rows": 17}
    assert " " not in (said.metadata or "")
    assert parsed(said) == mark


def test_a_mark_says_where_its_batch_ends() -> None:
    found = Mark(4, "run", 3, 17, offsets="00ff")
    assert json.loads(found.committed().metadata or "")["offsets"] == "00ff"
    assert parsed(found.committed()) == found


def test_what_the_mark_of_a_task_is() -> None:
    mark = Mark(4, "run", 0, 17, "exactly-once-per-task", 0xFFFF_FFFF_FFFF_FFFF)
    said = mark.committed()
    assert json.loads(said.metadata or "")["hash"] == "ffffffffffffffff"
    assert parsed(said) == mark


def test_a_mark_with_a_plan() -> None:
    plan = Plan(7, "run", 16, (4, 1), 3, ("other", "third"))
    mark = Mark(3, "other", 3, 17, plan=plan)
    found = parsed(mark.committed(), "topic")
    assert found == mark and (found.plan, found.topic) == (plan, "topic")
    next_one = NextWrite("q", "run", 4).marked(found, tasks=1, rows=1, mode="exactly-once-per-task")
    assert next_one.plan == plan


def test_a_plan_before_the_first_batch() -> None:
    """A version without plans takes it for no mark, and for no batch either."""
    plan = Plan(1, "run", 8, (0, 0))
    said = Mark(NO_BATCH, plan=plan).committed()
    assert said.offset == 0 and set(json.loads(said.metadata or "")) == {"v", "plan"}
    found = parsed(said)
    assert found is not None and (found.place, found.plan) == ((NO_BATCH, 0), plan)
    assert decide(found, NextWrite("q", "run", 0), trusted=False) is Step.WRITE
    with pytest.raises(HistoryError, match="remembers no batch as the last one"):
        decide(found, NextWrite("q", "run", 1), trusted=False)


def test_a_mark_has_room_for_all_that_it_may_say() -> None:
    writes = tuple(Write(number, "t" * 249, "d" * 8, "f" * FINGERPRINT_SIZE) for number in range(WRITES_MAX))
    runs = tuple(str(uuid.uuid4()) for _ in range(RUNS_KEPT))
    plan = Plan(10_000_000, runs[0], 1 << 20, (10_000_000, WRITES_MAX - 1), 1 << 20, runs)
    mark = Mark(10_000_000, runs[0], 1 << 20, 1 << 40, "exactly-once-per-task", 1, "0" * 16, writes, 1, plan)
    assert len(mark.committed().metadata or "") < 4096


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"v":2,"run":"r","tasks":1,"rows":1}', '{"v":1}', None])
def test_what_is_no_mark(text: str | None) -> None:
    assert parsed(Committed(3, metadata=text)) is None
