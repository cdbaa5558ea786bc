"""Checks that committed offsets never go back, and that groups settle."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.sim.world import World

Place = tuple[str, int]


class Commits:
    """Checks the acknowledged commits of members against the offsets that the coordinator returns."""

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
        """Checks a coordinator's committed offset (-1: none); `floor` is as it was when the request was sent."""
        self._world.demand(
            max(offset, 0) >= floor,
            f"group {group}: {place[0]}-{place[1]} is committed at {offset}, and {floor} was confirmed before",
        )
        # Once a commit has been returned to a client, "none" must never be returned, even if it was never confirmed.
        self._floor[group, place] = max(offset, self._floor.get((group, place), 0))
