"""The one limiter of rates: a token bucket, which permits a burst and then a rate.

Quotas of controller mutations (KIP-599), throttles of replication (KIP-73) and TLS handshakes of one address are kept
to their rates by it. Kafka measures other quotas over a window, as `security.quotas.rate` does.
"""

from __future__ import annotations

from math import inf


class TokenBucket:
    """A bucket that is full at first, and that tokens enter at a rate.

    One request may take more tokens than there are and leaves a debt, which has to be paid before the next. The rate,
    in tokens a second, is given at each call, as settings may change; times are milliseconds of a clock that never goes
    back.
    """

    __slots__ = ("_burst_s", "_debt_s", "_now_ms", "_tokens")

    def __init__(self, burst_ms: int, debt_ms: int | None = None) -> None:
        """`burst_ms`: how much it saves at most, as time at its rate. `debt_ms`: how much of a debt is remembered, all
        of it if None."""
        self._burst_s = burst_ms / 1000
        self._debt_s = None if debt_ms is None else debt_ms / 1000
        self._tokens = inf
        self._now_ms: float = 0

    def tokens(self, rate: float, now_ms: float) -> float:
        """Returns the tokens that are there now; a negative number is a debt."""
        came = rate * (now_ms - self._now_ms) / 1000
        self._tokens = min(self._burst_s * rate, self._tokens + came)
        if self._debt_s is not None:
            self._tokens = max(self._tokens, -rate * self._debt_s)
        self._now_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: float) -> None:
        """Takes tokens, with a debt where there are not enough; a negative count puts tokens back."""
        self._tokens = min(self._burst_s * rate, self.tokens(rate, now_ms) - count)

    def wait_ms(self, rate: float, now_ms: float, needed: float = 0.0) -> float:
        """Returns the time until there are as many tokens; infinity at a rate of 0."""
        missing = needed - self.tokens(rate, now_ms)
        if missing <= 0:
            return 0.0
        return missing / rate * 1000 if rate > 0 else inf
