"""The clocks of a machine: a wall clock that can be set, and a monotonic clock with the drift of quartz.

The monotonic clock starts anywhere, has a rate that changes now and then, and leaps like a clock that counts while its
machine sleeps. It never goes back. It belongs to the machine: a restarted process finds it where it is. All timers of a
process use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from headrace.sim.world import World

RATES: Final = (0.95, 1.05)
CHANGES_S: Final = (2.0, 20.0)
"""How long a rate lasts."""
BEGINS_S: Final = (10.0, 1_000_000.0)
"""How long a machine has been up when the world begins."""
TICK_S: Final = 1e-9
"""How much later a timer comes than it is due: rounding makes it no earlier."""


class SteadyClock:
    """A steady clock that drifts like quartz."""

    def __init__(self, world: World) -> None:
        """Keeps the world's time until `drift`."""
        self._loop = world.loop
        self._own_s = self._at_s = 0.0
        """What it showed, and when, as the rate last changed."""
        self.rate = 1.0
        self.on_change: Callable[[], None] | None = None
        """Hears that timers come at another time than it seemed."""

    def now_s(self) -> float:
        """What it shows."""
        return self._own_s + (self._loop.time() - self._at_s) * self.rate

    def drift(self, rng: random.Random) -> None:
        """From now on its rate is its own, and changes."""
        self._own_s += rng.uniform(*BEGINS_S)
        self._change(rng)

    def _change(self, rng: random.Random) -> None:
        self._set(0.0, rng.uniform(*RATES))
        self._loop.call_later(rng.uniform(*CHANGES_S), self._change, rng)

    def leap(self, by_s: float) -> None:
        """It goes forward at once."""
        self._set(by_s, self.rate)

    def _set(self, forward_s: float, rate: float) -> None:
        assert forward_s >= 0 < rate, "never back"
        self._own_s, self._at_s = self.now_s() + forward_s, self._loop.time()
        self.rate = rate
        if self.on_change is not None:
            self.on_change()

    def until(self, due_s: float) -> float:
        """How long it takes, by the world's time, until it shows this."""
        left_s = due_s - self.now_s()
        return left_s / self.rate + TICK_S if left_s > 0 else 0.0


class SimClock:
    """See `env.clock.Clock`."""

    def __init__(self, world: World, steady: SteadyClock) -> None:
        self._world = world
        self.steady = steady
        self.monotonic = steady.now_s
        """See Clock.monotonic."""
        self.set_by_ms = 0
        self.slept_s = 0.0
        """What worker threads slept since their work began: it is done that much later."""

    def now_ms(self) -> int:
        """See Clock.now_ms."""
        return self._world.epoch_ms + int(self._world.loop.time() * 1000) + self.set_by_ms

    def sleep(self, seconds: float) -> None:
        """See Clock.sleep."""
        self.slept_s += seconds
