"""Interrupted workers: other work runs between two of their disk operations.

Each piece of work has a thread, and one thread runs at a time: the draw decides when it yields, so a run is the same
every time. While the event loop of a node changes files, a worker may run in between; and if a waiting piece of work
holds a lock that is needed, it continues until it releases the lock.
"""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from headrace.sim.disk import PowerCut
from headrace.sim.loop import PROCESS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from headrace.sim.lock import SimLock
    from headrace.sim.node import SimNode

INTERRUPTED: Final = 0.3
"""The share of all work that has a thread."""
PAUSES: Final = 0.3
"""How often that work pauses before an operation on the disk..."""
STAYS_AWAY: Final = 0.03
"""How often such a pause is a long one, while there are faults: its owner changes much meanwhile."""
AWAY_S: Final = (0.1, 1.5)
GIVES_WAY: Final = 0.5
"""... and how often the event loop lets some of it have a turn before one of its own."""


class Step:
    """One piece of work, on its thread."""

    def __init__(self, work: Callable[[], Any], ended: Callable[[Any, BaseException | None], None]) -> None:
        self.is_over = False
        self.is_dead = False
        """Whether its process has ended: nothing more that it does has an effect."""
        self.stays_s = 0.0
        """How long its next pause lasts, if its owner does not wait for it."""
        self.wants: SimLock | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = ended
        self._work = work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.is_dead:
                self.result = self._work()
        except BaseException as error:
            self.error = error
        self.is_over = True
        self._back.release()

    def pause(self) -> None:
        """On its thread: hands over, and returns when it is its turn again. Raises PowerCut in a dead process."""
        self._back.release()
        self._go.acquire()
        if self.is_dead:
            raise PowerCut

    def go_on(self) -> None:
        """On the thread of the loop: returns when it has paused, or is over."""
        if not self._thread.ident:
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self.is_over:
            self._thread.join()


class Steps:
    """The interrupted work of one process."""

    def __init__(self, node: SimNode, rng: random.Random) -> None:
        self.current: Step | None = None
        """That whose thread goes on; None while the loop's does."""
        self._node = node
        self._rng = rng
        self._waiting: list[Step] = []

    def interrupts(self) -> bool:
        """Whether the next piece of work is interrupted."""
        return self._rng.random() < INTERRUPTED

    def begin(self, work: Callable[[], Any], ended: Callable[[Any, BaseException | None], None]) -> None:
        """Has a piece of work done, a part of it now; `ended` is called on the loop's thread."""
        step = Step(work, ended)
        self._waiting.append(step)
        self._go_on_later(step)

    def _go_on_later(self, step: Step) -> None:
        world = self._node.world
        delay_s = self._node.disk_delay()
        if world.calm_since is None and self._rng.random() < STAYS_AWAY:
            delay_s += self._rng.uniform(*AWAY_S)
        if step.stays_s:
            delay_s += step.stays_s
        world.loop.call_later(delay_s, self._on_time, step)

    def _on_time(self, step: Step) -> None:
        if not step.is_over and self._node.alive:
            self._go_on(step)
            if not step.is_over:
                self._go_on_later(step)

    def _go_on(self, step: Step) -> None:
        step.stays_s = 0.0
        assert self.current is None, "one goes on at a time"
        self.current = step
        try:
            step.go_on()
        finally:
            self.current = None
        if step.is_over:
            self._waiting.remove(step)
            if not step.is_dead:
                step.ended(step.result, step.error)

    def at_operation(self) -> None:
        """Before each operation on the disk: others may have a turn. Raises PowerCut for a dead process."""
        step = self.current
        if step is not None:
            if step.is_dead:
                raise PowerCut
            if step.stays_s or self._rng.random() < PAUSES:
                step.pause()
        elif self._waiting and PROCESS.get() is self._node and self._rng.random() < GIVES_WAY:
            step = self._rng.choice(self._waiting)
            if not step.stays_s:
                self._go_on(step)

    def wait_for(self, lock: SimLock) -> None:
        """Lets the holder of a lock go on for a while."""
        step = self.current
        if step is not None:
            step.wants = lock
            step.pause()
            step.wants = None
            return
        holder = lock.holder
        seen: list[object] = []
        while isinstance(holder, Step) and holder.wants is not None and holder.wants.holder not in (None, holder):
            assert holder not in seen, "work that waits for itself"
            seen.append(holder)
            holder = holder.wants.holder
        assert isinstance(holder, Step), f"a lock that {holder} has not given back, which waits for another one"
        self._go_on(holder)

    def finish(self) -> None:
        """All work goes on until it is over: its process waits for it."""
        while self._waiting:
            for step in list(self._waiting):
                if not step.is_over:
                    self._go_on(step)

    def end(self) -> None:
        """The process is dead: all that waits ends where it is."""
        for step in self._waiting:
            step.is_dead = True
        if self.current is None:
            self._unwind()
        else:  # one of them has ended the process: the others follow it
            self._node.world.loop.call_soon(self._unwind)

    def _unwind(self) -> None:
        for step in list(self._waiting):
            while not step.is_over:
                self._go_on(step)


__all__ = ["Step", "Steps"]
