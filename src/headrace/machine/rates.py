"""The rate limiter: a token bucket, which permits a burst and then a rate.

It limits controller mutations (KIP-599), replication (KIP-73) and the TLS handshakes of an address. Kafka measures
other quotas over a window, as `security.quotas.rate` does.
"""

from __future__ import annotations

from math import inf


class TokenBucket:
    """A bucket that starts full, and that tokens enter at a rate.

    One request may take more tokens than there are and leaves a debt, which has to be paid before the next. The rate,
    in tokens a second, is given at each call, as settings may change; times are milliseconds of a monotonic clock.
    """

    __slots__ = ("_burst_s", "_debt_s", "_now_ms", "_tokens")

    def __init__(self, burst_ms: int, debt_ms: int | None = None) -> None:
        """Creates a full bucket. `burst_ms`: its capacity, as time at its rate. `debt_ms`: the limit of its debt, None
        for no limit."""
        self._burst_s = burst_ms / 1000
        self._debt_s = None if debt_ms is None else debt_ms / 1000
        self._tokens = inf
        self._now_ms: float = 0

    def tokens(self, rate: float, now_ms: float) -> float:
        """Returns the current tokens; a negative number is a debt."""
        came = rate * (now_ms - self._now_ms) / 1000
        self._tokens = min(self._burst_s * rate, self._tokens + came)
        if self._debt_s is not None:
            self._tokens = max(self._tokens, -rate * self._debt_s)
        self._now_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: float) -> None:
        """Takes tokens, if necessary as a debt; a negative count returns tokens."""
        self._tokens = min(self._burst_s * rate, self.tokens(rate, now_ms) - count)

    def wait_ms(self, rate: float, now_ms: float, needed: float = 0.0) -> float:
        """Returns the time until there are that many tokens, in ms; infinity at a rate of 0."""
        missing = needed - self.tokens(rate, now_ms)
        if missing <= 0:
            return 0.0
        return missing / rate * 1000 if rate > 0 else inf
