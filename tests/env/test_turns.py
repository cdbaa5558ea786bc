"""Who may wait does its work in slices, and others have the time between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from headrace.env.turns import SLICE_S, SlicedTurns


class Owner:
    """A steady clock, and what is to be called: next, or after a time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers.append((self.now + delay_s, callback))

    def turn(self) -> None:
        """One turn of the loop, which waits for a timer where nothing else is to be done."""
        if not self.due and self.timers:
            at, callback = self.timers.pop(0)
            self.now = max(self.now, at)
            self.due.append(callback)
        due, self.due = self.due, []
        for callback in due:
            callback()

    def work(self, took_s: float) -> None:
        self.now += took_s


def turns_of(owner: Owner, share: float = 1.0) -> SlicedTurns:
    return SlicedTurns(owner, owner.monotonic, lambda: share)  # type: ignore[arg-type]


def test_a_slice_ends_and_the_rest_waits_in_its_order() -> None:
    owner = Owner()
    turns = turns_of(owner)
    done: list[int] = []

    def step(number: int) -> None:
        done.append(number)
        owner.work(0.4 * SLICE_S)

    for number in range(8):
        turns.ask(partial(step, number))
    assert done == [] and len(turns) == 8
    for expected in (3, 6, 8):
        assert len(owner.due) == 1  # whoever waits asks for nothing
        owner.turn()
        assert done == list(range(expected))


def test_a_step_may_be_made_at_once_where_nobody_waits() -> None:
    owner = Owner()
    turns = turns_of(owner)
    for _ in range(3):
        assert turns.has_turn()
        turns.serve(partial(owner.work, 0.7 * SLICE_S))
        assert turns.has_turn()
        turns.serve(partial(owner.work, 0.7 * SLICE_S))
        assert not turns.has_turn()
        owner.turn()
    turns.ask(lambda: None)
    assert not turns.has_turn()
    owner.turn()
    assert turns.has_turn()


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_what_is_done_stays_a_share_of_the_time(share: float) -> None:
    owner = Owner()
    turns = turns_of(owner, share)
    worked_s, longest_s = 0.0, 0.0

    def step(took_s: float) -> None:
        nonlocal worked_s
        worked_s += took_s
        owner.work(took_s)
        turns.ask(partial(step, took_s))

    for took_s in (SLICE_S / 10, SLICE_S / 3, 4 * SLICE_S):
        turns.ask(partial(step, took_s))
    began = owner.now
    while owner.now < began + 1000 * SLICE_S:
        before = worked_s
        owner.turn()
        longest_s = max(longest_s, worked_s - before)
    assert worked_s == pytest.approx(share * (owner.now - began), rel=0.02)
    assert longest_s <= 5 * SLICE_S  # what was begun within the slice is ended


def test_a_step_that_fails_holds_no_other_up() -> None:
    owner = Owner()
    turns = turns_of(owner)
    done: list[str] = []

    def defect() -> None:
        owner.work(SLICE_S)
        raise AssertionError("a defect")

    turns.ask(defect)
    turns.ask(lambda: done.append("the next"))
    with pytest.raises(AssertionError):
        owner.turn()
    owner.turn()
    assert done == ["the next"]
    with pytest.raises(AssertionError):
        turns.serve(defect)
    assert not turns.has_turn()
    owner.turn()
    assert turns.has_turn()
