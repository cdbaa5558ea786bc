"""A seed that fails is told with as few faults as still break something."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from headrace.sim.__main__ import main
from headrace.sim.found_at import seeds_of
from headrace.sim.quorum_run import run_quorum_seed
from headrace.sim.run import Result
from headrace.sim.sabotage import planted
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
    with planted("votes-twice"):
        seed = next(seed for seed in seeds_of("votes-twice") if run_quorum_seed(seed).objection is not None)
    assert main(["--sabotage", "votes-twice", "--seed", str(seed), "--story"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert re.search(r"objection epoch \d+ of the quorum has two leaders: \d and \d$", lines[-1])
    told = re.fullmatch(rf"seed {seed} fails with (\d+) faults, and without \d+ others", last)
    assert told is not None and int(told[1]) == sum(" fault " in line for line in lines) > 0
    with pytest.raises(SystemExit):
        main(["--seeds", "1-2", "--story"])
