"""Committed offsets never go back, and groups settle."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.sim.world import World

Place = tuple[str, int]


class Commits:
    """What members were told of their commits, against what the coordinator says is committed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._floor: dict[tuple[str, Place], int] = {}
        self.acknowledged_count = 0

    def acknowledges(self, group: str, place: Place, offset: int) -> None:
        """A commit was confirmed. Members only go forward, so a later one is higher."""
        self.acknowledged_count += 1
        self._floor[group, place] = max(offset, self._floor.get((group, place), 0))

    def floor(self, group: str, place: Place) -> int:
        """What a question that is asked from now on must find at least."""
        return self._floor.get((group, place), 0)

    def reads(self, group: str, place: Place, offset: int, floor: int) -> None:
        """The coordinator said what is committed (-1: nothing); `floor` is as it was when it was asked."""
        self._world.demand(
            max(offset, 0) >= floor,
            f"group {group}: {place[0]}-{place[1]} is committed at {offset}, and {floor} was confirmed before",
        )
        # Who was told of a commit is never told that there is none, whether it was ever confirmed or not.
        self._floor[group, place] = max(offset, self._floor.get((group, place), 0))
