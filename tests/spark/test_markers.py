"""What the mark of a query's last batch says about the next one."""

from __future__ import annotations

import json

import pytest

from headrace.client.groups import Committed
from headrace.spark.markers import HistoryError, Mark, Step, decide, group_of, parsed, task_group_of


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
    assert decide(marked, batch_id, query_id="q", trusted=trusted) is step


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(("marked", "batch_id"), [(1, 0), (9, 6)])
def test_a_checkpoint_that_is_behind_ends_the_query_whatever_is_trusted(
    marked: int, batch_id: int, trusted: bool
) -> None:
    with pytest.raises(HistoryError, match=f"^Batch {batch_id} of query q comes after batch {marked}.*nothing was"):
        decide(marked, batch_id, query_id="q", trusted=trusted)


@pytest.mark.parametrize(("marked", "last"), [(None, "no batch"), (2, "batch 2")])
def test_a_mark_that_is_gone_ends_the_query(marked: int | None, last: str) -> None:
    with pytest.raises(HistoryError, match=f"Batch 5 .* remembers {last} as the last one.*markerMissing to trust"):
        decide(marked, 5, query_id="q", trusted=False)


def test_what_a_mark_is() -> None:
    mark = Mark(4, "run", 3, 17)
    said = mark.committed()
    assert group_of("8c1e") == "headrace-8c1e" and task_group_of("8c1e", 2) == "headrace-8c1e-task-2"
    assert (said.offset, said.leader_epoch) == (4, -1)
    assert json.loads(said.metadata or "") == {"v": 1, "run": "run", "tasks": 3, "rows": 17}
    assert " " not in (said.metadata or "")
    assert parsed(said) == mark


def test_what_the_mark_of_a_task_is() -> None:
    mark = Mark(4, "run", 0, 17, "exactly-once-per-task", 0xFFFF_FFFF_FFFF_FFFF)
    said = mark.committed()
    assert json.loads(said.metadata or "")["hash"] == "ffffffffffffffff"
    assert parsed(said) == mark


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"v":2,"run":"r","tasks":1,"rows":1}', '{"v":1}', None])
def test_what_is_no_mark(text: str | None) -> None:
    assert parsed(Committed(3, metadata=text)) is None
