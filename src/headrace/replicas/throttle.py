"""Keeps traffic to a rate that may change: how much has passed is told, and whether more may pass is asked. Pure.

What was not used is saved up for `burst_ms`; what went over the rate is paid back, but no more of it than `memory_ms`
at that rate. Traffic that must not wait is told all the same, and so is paid for by the rest.
"""

from __future__ import annotations

from typing import Final

UNLIMITED: Final = 2**63 - 1
"""The rate that limits nothing."""


class Throttle:
    """See the module. Rates are bytes a second, times milliseconds of a steady clock."""

    __slots__ = ("_at_ms", "_burst_ms", "_left", "_memory_ms", "_rate")

    def __init__(self, burst_ms: int, memory_ms: int) -> None:
        self._burst_ms = burst_ms
        self._memory_ms = memory_ms
        self._rate = UNLIMITED
        self._left = 0.0
        self._at_ms = 0

    def _turn_to(self, rate: int, now_ms: int) -> None:
        """Counts up to now. A rate that is another one begins with a full burst."""
        if rate != self._rate:
            self._rate = rate
            self._left = rate * self._burst_ms / 1000
        else:
            self._left += rate * (now_ms - self._at_ms) / 1000
        self._at_ms = now_ms
        self._left = min(max(self._left, -rate * self._memory_ms / 1000), rate * self._burst_ms / 1000)

    def passed(self, byte_count: int, rate: int, now_ms: int) -> None:
        """So many bytes have passed."""
        if rate != UNLIMITED:
            self._turn_to(rate, now_ms)
            self._left -= byte_count

    def wait_ms(self, rate: int, now_ms: int) -> float:
        """How long nothing may pass from now on: 0.0 where it may pass now, infinity at a rate of nothing."""
        if rate == UNLIMITED:
            return 0.0
        self._turn_to(rate, now_ms)
        if self._left > 0:
            return 0.0
        return (1 - self._left) * 1000 / rate if rate else float("inf")
