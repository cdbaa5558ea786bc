"""Limits traffic to a rate that may change. Pure.

Unused rate is saved for `burst_ms`; traffic over the rate is paid back, but at most `memory_ms` at that rate. Traffic
that must not wait is counted too, so the rest pays for it. Source: KIP-73.
"""

from __future__ import annotations

from typing import Final

from headrace.machine.rates import TokenBucket

UNLIMITED: Final = 2**63 - 1
"""The rate without a limit."""


class Throttle:
    """A token bucket of bytes. Rates are bytes a second, times milliseconds of a steady clock."""

    __slots__ = ("_bucket", "_burst_ms", "_memory_ms", "_rate")

    def __init__(self, burst_ms: int, memory_ms: int) -> None:
        self._burst_ms = burst_ms
        self._memory_ms = memory_ms
        self._rate = UNLIMITED
        self._bucket = TokenBucket(burst_ms, memory_ms)

    def _bucket_of(self, rate: int) -> TokenBucket:
        """Returns the bucket; starts with a full one if the rate changed."""
        if rate != self._rate:
            self._rate = rate
            self._bucket = TokenBucket(self._burst_ms, self._memory_ms)
        return self._bucket

    def passed(self, byte_count: int, rate: int, now_ms: int) -> None:
        """Counts passed bytes."""
        if rate != UNLIMITED:
            self._bucket_of(rate).take(byte_count, rate, now_ms)

    def wait_ms(self, rate: int, now_ms: int) -> float:
        """Returns how long nothing may pass, in ms: 0.0 if traffic may pass now, infinity at a rate of 0."""
        if rate == UNLIMITED:
            return 0.0
        bucket = self._bucket_of(rate)
        return 0.0 if bucket.tokens(rate, now_ms) > 0 else bucket.wait_ms(rate, now_ms, needed=1)
