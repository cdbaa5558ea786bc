"""Work that is interrupted: others have turns in the middle of it, and its process waits for it where it stops."""

from __future__ import annotations

import asyncio

import pytest

from headrace.env.workers import Raised
from headrace.sim.disk import SimDisk, SimFile
from headrace.sim.node import SimNode
from headrace.sim.steps import Steps
from headrace.sim.world import World

PIECES = 50


class Fixture:
    """A node whose workers sync a file to which its loop appends."""

    def __init__(self) -> None:
        self.world = World(1)
        disk = SimDisk(self.world.rng("disk"))
        self.node = SimNode(self.world, "node", disk, self.world.rng("node"))
        self.world.add(self.node)
        self.node.steps = Steps(self.node, self.world.rng("steps"))
        disk.make_dirs("/data")
        self.file: SimFile = disk.open("/data/file", create=True)
        disk.between = self.node.steps.at_operation
        self.grown: list[int] = []
        """How much the loop has appended while a piece of work was done, of each that was heard of."""

    def sync(self) -> int:
        before = self.file.size()
        self.file.sync()
        return self.file.size() - before

    def submit(self) -> None:
        self.node.workers.submit(self.sync).deliver_to(self.receive)

    def receive(self, grown: int | Raised) -> None:
        assert not isinstance(grown, Raised)
        self.grown.append(grown)

    def work(self) -> None:
        owner = self.node.owner("owner")
        for number in range(PIECES):
            owner.later(number * 0.001, self.submit)
            owner.later(number * 0.001, self.file.append, [b"x"])

    def run(self, seconds: float) -> None:
        self.world.loop.run_until_complete(asyncio.sleep(seconds))

    @property
    def interrupted(self) -> int:
        """How many pieces of work are not over."""
        return len(vars(self.node.steps)["_waiting"])

    def run_until_interrupted(self) -> None:
        self.work()
        while not self.interrupted:
            assert self.world.loop.time() < 1.0
            self.run(0.0005)


@pytest.fixture
def run() -> Fixture:
    return Fixture()


def test_the_loop_has_turns_between_two_steps_of_a_worker(run: Fixture) -> None:
    run.work()
    run.run(60)
    assert len(run.grown) == PIECES
    assert 0 < sum(grown > 0 for grown in run.grown) < PIECES


def test_a_process_that_stops_waits_for_its_workers(run: Fixture) -> None:
    run.run_until_interrupted()
    run.world.loop.run_until_complete(run.node.close())
    assert not run.interrupted and not run.node.alive


def test_no_work_of_a_process_that_was_killed_has_an_effect(run: Fixture) -> None:
    run.run_until_interrupted()
    heard = len(run.grown)
    run.node.kill()
    assert not run.interrupted
    run.run(60)
    assert len(run.grown) == heard
