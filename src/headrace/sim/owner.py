"""The owner of the tasks that belong to no node: those of steered faults that last."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headrace.sim.loop import WORLD

if TYPE_CHECKING:
    from headrace.sim.world import World


class WorldOwner:
    """Starts tasks, and ends them: none outlives its owner's `close`. What one of them raises ends the run."""

    def __init__(self, world: World) -> None:
        self._loop = world.loop
        self._tasks: dict[Task[None], None] = {}

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a task of no process, whichever process the moment belongs to at which it begins."""
        task = self._loop.create_task(work, context=WORLD.copy())
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None and self._loop.failure is None:
            self._loop.failure = error

    def close(self) -> None:
        """Ends what still runs. What a task still had to undo is left to the healing of the world."""
        for task in list(self._tasks):
            task.cancel()
