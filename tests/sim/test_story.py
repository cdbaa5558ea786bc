"""A seed that fails is told with as few faults as still break something."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.sim.__main__ import main
from headrace.sim.run import Result
from headrace.sim.story import shortest_story
from headrace.sim.world import World

KINDS = ("kill", "power", "cut", "stop", "split", "pause", "clock")


def result(world: World) -> Result:
    return Result(world.seed, world.trace.digest, 0.0, 0, 0, 0, 0, world.objection)


def needs(*needed: str) -> Callable[[int, Callable[[str], None] | None], Result]:
    """A run that fails where all of these faults come."""

    def run(seed: int, say: Callable[[str], None] | None) -> Result:
        world = World(seed, say)
        world.trace.note("net", "much")
        came = [kind for kind in KINDS if world.strikes(kind, "node1")]
        if set(needed) <= set(came):
            world.object("it breaks")
        return result(world)

    return run


@pytest.mark.parametrize("needed", [("power",), ("kill", "clock"), ("power", "split", "pause"), KINDS, ()])
def test_what_does_not_matter_is_left_out(needed: tuple[str, ...]) -> None:
    story = shortest_story(needs(*needed), 1)
    assert str(story.objection) == "it breaks"
    assert [KINDS[number] for number in story.faults] == list(needed)
    told = [line.split(" ", 1)[1] for line in story.lines]
    assert told == [*(f"fault {KINDS.index(kind)} {kind} node1" for kind in needed), "objection it breaks"]


def test_a_fault_that_another_one_brings_about_goes_with_it() -> None:
    """What is left out changes what comes after it."""

    def run(seed: int, say: Callable[[str], None] | None) -> Result:
        world = World(seed, say)
        if world.strikes("kill"):
            for _ in range(3):
                world.strikes("cut")
        if world.strikes("power"):
            world.object("it breaks")
        return result(world)

    story = shortest_story(run, 1)
    assert [line.split(" ", 1)[1] for line in story.lines] == [f"fault {story.faults[0]} power", "objection it breaks"]


def test_a_seed_that_holds_is_told_whole() -> None:
    story = shortest_story(needs("another"), 1)
    assert story.objection is None and story.faults == list(range(len(KINDS)))


@pytest.mark.slow
def test_the_command_line_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sabotage", "forgets-its-vote", "--seed", "14", "--story"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("objection epoch 1 of the quorum has two leaders: 3 and 2")
    assert [line.split(" ", 3)[3] for line in lines if " fault " in line] == ["partition node2", "winner cut off node3"]
    assert last == "seed 14 fails with 2 faults, and without 0 others"
    with pytest.raises(SystemExit):
        main(["--seeds", "1-2", "--story"])
