"""Completions are delivered at the end of the turn, in order, once."""

from __future__ import annotations

import asyncio

import pytest
from env.turns_by_hand import TurnsByHand

from headrace.env.completion import DELIVERED_PER_TURN, Completion, settled, when_known
from headrace.env.posix_node import PosixNode


def test_no_receiver_runs_inside_the_call_that_completes() -> None:
    turns = TurnsByHand()
    queue = turns.completions()
    got: list[int] = []
    first, second = Completion[int](queue), Completion[int](queue)

    def receive(value: int) -> None:
        second.complete(value + 1)
        assert not got and queue.is_delivering, "the second receiver waits for the first one's return"

    first.deliver_to(receive)
    second.deliver_to(got.append)
    first.complete(1)
    assert not queue.is_delivering and not second.done
    assert turns.run() == 1, "what a receiver completes is delivered in the same turn"
    assert got == [2]


def test_a_receiver_that_comes_late_waits_for_the_end_of_the_turn_too() -> None:
    turns = TurnsByHand()
    completion = Completion[str](turns.completions())
    completion.complete("value")
    got: list[str] = []
    completion.deliver_to(got.append)
    assert not got
    turns.run()
    assert got == ["value"]


def test_completions_are_delivered_in_the_order_of_their_values() -> None:
    turns = TurnsByHand()
    queue = turns.completions()
    got: list[int] = []
    completions = [Completion[int](queue) for _ in range(3)]
    for each in completions:
        each.deliver_to(got.append)
    for index in (2, 0, 1):
        completions[index].complete(index)
    turns.run()
    assert got == [2, 0, 1]


def test_a_value_is_given_once_and_has_one_receiver() -> None:
    completion = Completion[int](TurnsByHand().completions())
    with pytest.raises(AssertionError, match="once it is there"):
        completion.take()
    completion.complete(1)
    with pytest.raises(AssertionError, match="completed once"):
        completion.complete(2)
    completion.deliver_to(lambda _: None)
    with pytest.raises(AssertionError, match="one receiver"):
        completion.deliver_to(lambda _: None)
    assert completion.take() == 1


def test_a_mapped_value_is_made_when_it_is_taken() -> None:
    turns = TurnsByHand()
    got: list[str] = []
    completion = Completion[int](turns.completions())
    mapped = completion.mapped(lambda value: f"<{value}>")
    mapped.deliver_to(got.append)
    completion.complete(7)
    assert not got
    turns.run()
    assert got == ["<7>"]


def test_what_deliveries_share_comes_after_all_of_them() -> None:
    turns = TurnsByHand()
    queue = turns.completions()
    got: list[object] = []

    def receive(value: int) -> None:
        got.append(value)
        if value == 0:
            queue.after(lambda: got.append("sent"))

    for value in range(2):
        completion = Completion[int](queue)
        completion.deliver_to(receive)
        completion.complete(value)
    assert turns.run() == 1
    assert got == [0, 1, "sent"]
    queue.after(lambda: got.append("alone"))
    assert turns.run() == 1 and got[-1] == "alone"


def test_a_known_value_is_received_at_once_and_another_at_the_end_of_its_turn() -> None:
    turns = TurnsByHand()
    queue = turns.completions()
    got: list[int] = []
    done, later = Completion[int](queue), Completion[int](queue)
    done.complete(2)
    when_known(1, got.append)
    when_known(done, got.append)
    when_known(later, got.append)
    assert got == [1, 2]
    later.complete(3)
    assert got == [1, 2]
    turns.run()
    assert got == [1, 2, 3]


def test_a_turn_delivers_no_more_than_its_share() -> None:
    turns = TurnsByHand()
    queue = turns.completions()
    got: list[int] = []
    for value in range(DELIVERED_PER_TURN * 2 + 1):
        completion = Completion[int](queue)
        completion.deliver_to(got.append)
        completion.complete(value)
    assert turns.run() == 3
    assert got == list(range(DELIVERED_PER_TURN * 2 + 1))


def test_an_error_of_one_receiver_does_not_keep_others_from_theirs() -> None:
    turns = TurnsByHand()
    queue = turns.completions()
    got: list[int] = []

    def fail(_: int) -> None:
        raise ValueError("a defect")

    for receiver in (fail, got.append):
        completion = Completion[int](queue)
        completion.deliver_to(receiver)
        completion.complete(1)
    with pytest.raises(ValueError, match="a defect"):
        turns.run()
    assert not queue.is_delivering
    turns.run()
    assert got == [1]


async def test_a_task_awaits_one() -> None:
    node = PosixNode(worker_threads=1, sync_threads=1)
    try:
        completion = Completion[int](node.completions)
        asyncio.get_running_loop().call_soon(completion.complete, 3)
        assert await completion == 3
        done = Completion[int](node.completions)
        done.complete(4)
        assert await settled(done) == 4 and await settled(5) == 5
        left = Completion[int](node.completions)
        task = asyncio.ensure_future(settled(left))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        left.complete(6)  # nobody waits for it any longer
        await asyncio.sleep(0)
    finally:
        await node.close()
    assert not node.defects.count
