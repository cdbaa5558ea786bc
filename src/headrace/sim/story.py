"""The story of a failed seed: its events, with as few of its faults as still fail.

Faults are left out in halves, then in quarters, and so on down to single ones (Zeller's ddmin, greedily). To leave out
a fault changes everything after it, so another promise may be broken in the end: a story is an example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.sim.world import LEFT_OUT

if TYPE_CHECKING:
    from headrace.sim.run import Result

Run = Callable[[int, Callable[[str], None] | None], "Result"]
"""One run: (seed, receiver of the lines of its trace)."""

DETAILS: Final = ("net", "log")
"""What crosses the network, and what nodes write into their logs: more than anybody reads."""


class Story:
    """One run without some of its faults: `lines` tell it, `faults` are the numbers of those that came."""

    def __init__(self, run: Run, seed: int, left_out: frozenset[int]) -> None:
        self.left_out = left_out
        self.lines: list[str] = []
        self.faults: list[int] = []
        token = LEFT_OUT.set(left_out)
        try:
            self.objection = run(seed, self._hear).objection
        finally:
            LEFT_OUT.reset(token)

    def _hear(self, line: str) -> None:
        _, kind, *values = line.split(" ")
        if kind not in DETAILS:
            self.lines.append(line)
        if kind == "fault":
            self.faults.append(int(values[0]))


def shortest_story(run: Run, seed: int) -> Story:
    """The shortest that is found; the whole one where the seed does not fail."""
    story = Story(run, seed, frozenset())
    if story.objection is None:
        return story
    size = max(1, len(story.faults) // 2)
    while True:
        shorter = _shorter(run, seed, story, size)
        if shorter is not None:
            story = shorter
            size = min(size, max(1, len(story.faults) // 2))
        elif size == 1:
            return story
        else:
            size //= 2


def _shorter(run: Run, seed: int, story: Story, size: int) -> Story | None:
    """A run without so many of its faults, in a row, that fails too."""
    for at in range(0, len(story.faults), size):
        tried = Story(run, seed, story.left_out.union(story.faults[at : at + size]))
        if tried.objection is not None and len(tried.faults) < len(story.faults):
            return tried
    return None
