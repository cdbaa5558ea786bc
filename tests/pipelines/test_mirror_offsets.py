"""Offsets of a copy: whatever befalls the mirror, what an offset becomes leaves no record behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_pipelines.mirror_offsets import RUNS_MAX, Run, Runs, extended, is_due, mark_of, translated


def test_a_source_without_gaps_is_known_exactly() -> None:
    runs: Runs = ()
    for first in range(0, 1000, 10):
        runs = extended(runs, [Run(first, first + 9, first + 5, 10)])
    assert runs == (Run(0, 999, 5, 1000),)
    assert [translated(runs, offset) for offset in (0, 500, 999, 1000, 2000)] == [5, 505, 1004, 1005, 1005]


def test_an_offset_below_what_is_known_is_not_translated() -> None:
    assert translated((), 7) is None
    assert translated((Run(100, 199, 40, 100),), 99) is None


def test_gaps_cost_no_more_records_than_there_are_gaps() -> None:
    # 6 of 10 records are left, offsets 102, 105, 106 and 108 are gone
    runs = extended((), [Run(100, 109, 40, 6)])
    assert [translated(runs, offset) for offset in (100, 104, 109, 110, 500)] == [40, 40, 45, 46, 46]
    more = extended(runs, [Run(110, 119, 46, 10)])
    assert len(more) == 2, "gaps are those of the records that were written together"
    assert translated(more, 104) == 40


def test_what_is_written_again_counts_where_it_stands_last() -> None:
    once = extended((), [Run(0, 9, 0, 10), Run(10, 19, 10, 10)])
    again = extended(once, [Run(10, 19, 27, 10)])
    assert again == (Run(0, 9, 0, 10), Run(10, 19, 27, 10))
    assert [translated(again, offset) for offset in (9, 10, 15, 20)] == [9, 27, 32, 37]
    # 12 of 20 records are left; 2 of them at least below offset 10
    with_gaps = extended((Run(0, 19, 0, 12),), [Run(10, 19, 30, 7)])
    assert [translated(with_gaps, offset) for offset in (0, 9, 10)] == [0, 1, 30]


def test_a_copy_that_may_be_another_begins_anew() -> None:
    assert extended((Run(0, 99, 0, 100),), [Run(100, 109, -1, 10), Run(110, 119, 7, 10)]) == (Run(110, 119, 7, 10),)
    assert extended((Run(0, 99, 0, 100),), [Run(100, 109, 0, 10)]) == (Run(100, 109, 0, 10),)


def test_what_is_known_is_bounded_and_the_more_exact_the_younger() -> None:
    runs: Runs = ()
    for first in range(0, 100_000, 10):
        runs = extended(runs, [Run(first, first + 8, first, 9)])
        assert len(runs) <= RUNS_MAX
    assert translated(runs, 0) == 0
    assert translated(runs, 99_990) == 99_990
    for offset in range(0, 100_000, 777):
        there = translated(runs, offset)
        assert there is not None and there <= offset <= there + (100_000 - offset) // 10 + 10


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[tuple[str, Any]]]:
    """The offsets that a source has, and what a mirror of it goes through."""
    there = draw(st.lists(st.booleans(), min_size=1, max_size=60))
    batch = st.tuples(
        st.integers(1, 15), st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.integers(0, 2)), max_size=8)
    )
    step = st.one_of(
        st.tuples(st.just("batch"), batch), st.tuples(st.just("torn"), st.integers(0, 8)),
        st.tuples(st.just("replay"), batch), st.tuples(st.just("back"), st.integers(0, 60)),
        st.tuples(st.just("anew"), st.none()),
    )  # fmt: skip
    return [offset for offset, exists in enumerate(there) if exists], draw(st.lists(step, max_size=12))


class Model:
    """A source, its copy, and a mirror that forgets at most what it was about to write."""

    def __init__(self, source: list[int], most: int) -> None:
        self.source = source
        self.most = most
        self.copy: list[int | None] = []
        """The source offset of each record of the copy; None for records of others."""
        self.runs: Runs = ()
        self.position = 0

    def batch(self, size: int, spans: list[tuple[int, bool, int]], *, done: bool) -> None:
        """Written in spans of so many records, some of whose offsets nobody said, others' records in between."""
        end = self.position + size
        left = [offset for offset in self.source if self.position <= offset < end]
        written = []
        for count, said, others in [*spans, (len(left), True, 0)]:
            part, left = left[:count], left[count:]
            self.copy += [None] * others
            if part:
                written.append(Run(part[0], part[-1], len(self.copy) if said else -1, len(part)))
            self.copy += part
        self.runs = extended(self.runs, written, self.most)
        if done:
            self.position = end

    def step(self, what: str, how: Any) -> None:
        if what in ("batch", "replay"):
            self.batch(*how, done=what == "batch")
        elif what == "torn":
            self.copy += [offset for offset in self.source if offset >= self.position][:how]
        elif what == "back":
            self.position = min(self.position, how)
        else:
            self.copy = []

    def check(self) -> None:
        for offset in range(max(self.source, default=0) + 3):
            place = translated(self.runs, offset) or 0
            left = set(self.copy[place:])
            for record in self.source:
                if offset <= record < self.position and record in self.copy:
                    assert record in left, (offset, place, record)


@given(histories(), st.integers(3, 8))
def test_no_record_is_passed_over(history: tuple[list[int], list[tuple[str, Any]]], most: int) -> None:
    source, steps = history
    model = Model(source, most)
    for what, how in steps:
        model.step(what, how)
        model.check()
        assert len(model.runs) <= most


@given(histories())
def test_without_failures_only_gaps_cost_records(history: tuple[list[int], list[tuple[str, Any]]]) -> None:
    source, steps = history
    model = Model(source, RUNS_MAX)
    for what, how in steps:
        if what == "batch":
            size, spans = how
            model.batch(size, [(count, True, 0) for count, _, _ in spans], done=True)
    for run in model.runs:
        for offset in range(run.first, run.last + 1):
            exact = next(place for place, record in enumerate(model.copy) if record is not None and record >= offset)
            place = translated(model.runs, offset)
            assert place is not None and 0 <= exact - place <= run.last - run.first + 1 - run.count
    if model.runs:
        assert translated(model.runs, model.position) == len(model.copy)


@pytest.mark.parametrize(
    ("offset", "translation", "there", "metadata", "due"),
    [
        (50, 50, 40, "", True),
        (50, 40, 50, "", False),  # a consumer of the copy is further
        (50, 50, 50, mark_of(50), False),
        (60, 60, 50, mark_of(50), True),
        (60, 40, 50, mark_of(50), False),  # known less exactly than before: what is there is right
        (30, 30, 50, mark_of(50), True),  # the group went back at the source
        (30, 50, 50, mark_of(50), False),
        (30, 30, 50, None, False),
        (30, 30, 50, "50", False),
        (30, 30, 50, mark_of(50) + "?", False),
    ],
)
def test_a_group_moves_forward_and_back_where_the_mirror_put_it(
    offset: int, translation: int, there: int, metadata: str | None, due: bool
) -> None:
    assert is_due(offset, translation, there, metadata) is due
