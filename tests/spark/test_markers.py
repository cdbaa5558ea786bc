"""What the mark of a query's last batch says about the next one."""

from __future__ import annotations

import json

import pytest

from headrace.spark.markers import HistoryError, Step, decide, group_of, marker


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
    mark = marker(4, "run", 3, 17)
    assert group_of("8c1e") == "headrace-8c1e"
    assert (mark.offset, mark.leader_epoch) == (4, -1)
    assert json.loads(mark.metadata or "") == {"v": 1, "run": "run", "tasks": 3, "rows": 17}
    assert " " not in (mark.metadata or "")
