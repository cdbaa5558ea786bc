"""The budget that half-received requests draw on."""

from __future__ import annotations

from headrace.broker.net.budget import Budget


def test_it_refuses_beyond_its_limit() -> None:
    budget = Budget(100)
    assert budget.take(60)
    assert not budget.take(60)
    assert budget.take(40)
    assert budget.exhausted
    budget.give(100)
    assert budget.used == 0


def test_one_holder_at_a_time_may_overdraw() -> None:
    budget = Budget(100)
    assert budget.take(100)
    assert budget.overdraw(50, "first")
    assert not budget.overdraw(10, "second")
    assert budget.overdraw(10, "first")
    budget.settle("second")
    assert not budget.overdraw(10, "second")
    budget.give(60)
    budget.settle("first")
    assert budget.overdraw(10, "second")


def test_waiters_are_woken_in_order_when_there_is_room() -> None:
    budget = Budget(100)
    budget.take(100)
    woken: list[str] = []
    for name in ("a", "b"):
        budget.wait(lambda name=name: woken.append(name))  # type: ignore[misc]
    assert budget.contended
    budget.overdraw(10, "c")
    budget.give(5)
    assert woken == []
    budget.give(30)
    assert woken == ["a", "b"]
    assert not budget.contended
