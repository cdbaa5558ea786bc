"""Blocking code under the simulator: one process goes on at a time, in virtual time, with variables of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from headrace.client import cluster
from headrace.client.errors import UnreachableError
from headrace.sim.blocking import EndedError, Process
from headrace.sim.client import SimClient
from headrace.sim.world import World


def the_time() -> Any:
    """The module, as blocking code finds it now."""
    return vars(Module)["time"]


class Module:
    """Stands for a module with a variable."""

    known: ClassVar[list[str]] = []
    time: ClassVar[Any] = time


@pytest.fixture
def world() -> Any:
    world = World(1)
    yield world
    world.end()


def process(world: World, name: str) -> Process:
    return Process(SimClient(world, name, "nobody"), {(Module, "known"): [], (Module, "time"): time})


def sleeper(name: str, said: list[str], pause_s: float) -> Callable[[], list[str]]:
    def work() -> list[str]:
        for _ in range(3):
            the_time().sleep(pause_s)
            said.append(f"{name} {the_time().monotonic():.0f}")
            Module.known.append(name)
        return Module.known

    return work


def test_processes_take_turns_in_virtual_time_and_share_no_variables(world: World) -> None:
    said: list[str] = []
    outside = Module.known
    one = world.loop.create_task(process(world, "a").run(sleeper("a", said, 2.0)))
    other = world.loop.create_task(process(world, "b").run(sleeper("b", said, 3.0)))
    began = time.monotonic()
    assert world.loop.run_until_complete(one) == ["a"] * 3
    assert world.loop.run_until_complete(other) == ["b"] * 3
    assert said == ["a 2", "b 3", "a 4", "b 6", "a 6", "b 9"] or said == ["a 2", "b 3", "a 4", "a 6", "b 6", "b 9"]
    assert time.monotonic() - began < 60 and the_time() is time
    assert Module.known is outside == []


def test_a_process_that_is_killed_ends_where_it_waits(world: World) -> None:
    said: list[str] = []
    killed = process(world, "a")
    world.loop.call_later(3.0, killed.kill)
    with pytest.raises(EndedError):
        world.loop.run_until_complete(killed.run(sleeper("a", said, 2.0)))
    assert said == ["a 2"] and world.loop.time() == 3.0
    with pytest.raises(EndedError):
        world.loop.run_until_complete(killed.run(sleeper("a", said, 2.0)))


def test_what_a_dead_process_does_when_it_unwinds_has_no_effect(world: World) -> None:
    dead = process(world, "a")

    def work() -> None:
        try:
            dead.die()
        finally:
            the_time().sleep(1.0)

    with pytest.raises(EndedError):
        world.loop.run_until_complete(dead.run(work))
    assert world.loop.time() < 1.0


def test_an_error_of_the_work_reaches_who_runs_it(world: World) -> None:
    """The client is the real one: nothing answers at an address that nobody has."""

    def work() -> None:
        with cluster.Client("nobody:9092", timeout_s=5.0) as client:
            client.refresh(None)

    with pytest.raises(UnreachableError, match="nobody:9092"):
        world.loop.run_until_complete(process(world, "a").run(work))
    assert isinstance(cluster.Client, type)
