"""Tokens that come at a rate: what a client pays with for changes of topics, all of one request at once.

One big request takes more than there is and leaves a debt; who has a debt waits until it is paid. Source: KIP-599.
"""

from __future__ import annotations

from math import inf

from headrace.security.quotas.rate import in_throttle_range


class TokenBucket:
    """See the module. `samples` of `sample_ms` each are what it saves at most, in time at its rate.

    It is full at first. The rate is given at each call: it may change.
    """

    __slots__ = ("_burst_s", "_now_ms", "_tokens")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._burst_s = samples * sample_ms / 1000
        self._tokens = inf
        self._now_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """What is there now, below zero what is owed."""
        came = rate * (now_ms - self._now_ms) / 1000
        self._tokens = min(self._burst_s * rate, self._tokens + came)
        self._now_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        """Pays, with a debt where there is not enough."""
        self._tokens = min(self._burst_s * rate, self.tokens(rate, now_ms) - count)

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """How long to wait until nothing is owed."""
        owed = -self.tokens(rate, now_ms)
        if owed <= 0:
            return 0
        return in_throttle_range(owed / rate * 1000 if rate > 0 else inf)
