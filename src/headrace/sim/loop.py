"""An asyncio event loop in virtual time: if nothing is left to do now, the next timer is due at once.

It reads no clock and no socket, so a run takes as long as its callbacks, and is the same every time.

A process can be paused, as by SIGSTOP: its callbacks, tasks and timers stop while time passes, and resume in order. The
context of a callback names its process: `PROCESS`.
"""

from __future__ import annotations

import heapq
from asyncio import Handle, TimerHandle, all_tasks, base_events, sleep
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, Final

from headrace.sim.disk import PowerCut

TURNS_MAX: Final = 200_000
"""Turns of the loop at one moment of virtual time: who needs more goes round in circles."""

ENDING_TURNS_MAX: Final = 1000
"""Turns of the loop in which every task has ended that was cancelled in each of them."""

PROCESS: Final[ContextVar[object]] = ContextVar("process", default=None)
"""The process that code runs in; None for what is the world's: the network, the faults, the checkers."""
WORLD: Final = Context()
"""Where `PROCESS` is None."""


class StandstillError(Exception):
    """Nothing is scheduled any more, and the run has not ended: everyone waits for everyone."""


class LivelockError(Exception):
    """The loop turned TURNS_MAX times at one moment: somebody calls himself for ever."""


class _Held:
    """What a callback does whose process is paused: it waits."""

    __slots__ = ()

    def _run(self) -> None:
        handle: Any = self
        loop: SimLoop = handle._loop  # noqa: SLF001
        if loop.paused and (held := loop.paused.get(handle._context.get(PROCESS))) is not None:  # noqa: SLF001
            held.append(handle)
        else:
            super()._run()  # type: ignore[misc]


class _Handle(_Held, Handle):
    __slots__ = ()


class _TimerHandle(_Held, TimerHandle):
    __slots__ = ()


class _Selector:
    """What the loop asks for events: there are none, and time passes by being asked."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StandstillError("nothing is scheduled, and somebody waits")
        self._loop.pass_time(timeout)
        return []

    def close(self) -> None:
        """Holds nothing."""


class SimLoop(base_events.BaseEventLoop):
    """An event loop with virtual time. `time()` is seconds since the run began."""

    _ready: deque[Handle]
    _scheduled: list[TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        self.paused: dict[object, list[Handle]] = {}
        """The callbacks of paused processes that would have run by now."""
        self.failure: BaseException | None = None
        """What ended the run: raised in no callback of anybody's, but to who runs the loop."""
        self.set_exception_handler(_keep_failure)

    def time(self) -> float:
        """See AbstractEventLoop.time."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Lets virtual time pass; a turn without any is counted."""
        if seconds > 0:
            self._now += seconds
            self._turns = 0
            return
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise LivelockError(f"{TURNS_MAX} turns of the loop at {self._now:.6f} s")

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        """See AbstractEventLoop.call_at."""
        timer: Any = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # noqa: SLF001
        found: TimerHandle = timer
        return found

    def _call_soon(self, callback: Callable[..., object], args: Any, context: Context | None) -> Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def pause(self, process: object) -> None:
        """Pauses a process from now on."""
        self.paused.setdefault(process, [])

    def resume(self, process: object) -> None:
        """A process goes on, if it stood still."""
        self._ready.extend(self.paused.pop(process, []))

    def end(self) -> None:
        """Cancels every task and closes the loop: none is left to be torn down after it.

        Raises LivelockError for a task that does not end.
        """
        self._turns = 0  # those of the run are not those of its end
        for _ in range(ENDING_TURNS_MAX):
            left = all_tasks(self)
            if not left:
                self.close()
                return
            for task in left:
                task.cancel()
            self.run_until_complete(sleep(0))
        raise LivelockError(f"{len(all_tasks(self))} tasks do not end")

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """There is no other thread to wake the loop from."""


def _keep_failure(loop: Any, context: dict[str, Any]) -> None:
    """A callback that belongs to no node raised: the simulator itself is broken."""
    error = context.get("exception") or RuntimeError(context["message"])
    if loop.failure is None and not isinstance(error, PowerCut):
        loop.failure = error
