"""A clock that tests set by hand."""

from __future__ import annotations


class HandClock:
    """See `env.clock.Clock`: both of its hands stand still until a test moves them."""

    def __init__(self, now_ms: int) -> None:
        self.wall_ms = now_ms
        self.steady_s = now_ms / 1000

    def pass_to(self, now_ms: int) -> None:
        """Time passes until the wall clock, which goes right, says `now_ms`."""
        self.steady_s += (now_ms - self.wall_ms) / 1000
        self.wall_ms = now_ms

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.steady_s

    def sleep(self, seconds: float) -> None:
        self.steady_s += seconds
