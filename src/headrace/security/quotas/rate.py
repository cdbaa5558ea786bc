"""A rate over the last seconds, and how long a client that exceeds its quota has to wait.

Time is cut into samples. The window begins with the oldest sample that is still counted; where there are fewer whole
samples than configured, those that are missing count as empty, so that a new client may send a burst. Source: Kafka's
metrics (`Rate`), KIP-219.
"""

from __future__ import annotations

from math import floor, inf
from typing import Final

THROTTLE_MS_MAX: Final = 2**31 - 1
"""What fits in `throttle_time_ms`."""


def in_throttle_range(wait_ms: float) -> int:
    """Rounds half up, within what an answer can say."""
    return THROTTLE_MS_MAX if wait_ms >= THROTTLE_MS_MAX else max(0, floor(wait_ms + 0.5))


class _Sample:
    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.began_ms = self.last_ms = now_ms


class Rate:
    """A rate over the last samples.

    `samples` of `sample_ms` each; values are what the quota counts, times milliseconds.
    """

    __slots__ = ("_at", "_sample_ms", "_samples", "_samples_wanted")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples_wanted = samples
        self._sample_ms = sample_ms
        self._samples: list[_Sample] = []
        self._at = 0

    def record(self, value: float, now_ms: int) -> None:
        """Counts what was used; a negative value takes some of it back."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._at]
        if now_ms - sample.began_ms >= self._sample_ms:
            # One more than wanted: the oldest may still overlap the window.
            self._at = (self._at + 1) % (self._samples_wanted + 1)
            if self._at >= len(samples):
                samples.append(_Sample(now_ms))
            sample = samples[self._at]
            sample.reset(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def window_ms(self, now_ms: int) -> int:
        """The time that `per_second` covers now."""
        self._forget(now_ms)
        began_ms = min((sample.began_ms for sample in self._samples), default=now_ms)
        elapsed_ms = now_ms - began_ms
        missing = self._samples_wanted - 1 - elapsed_ms // self._sample_ms
        return max(1, elapsed_ms + max(0, missing) * self._sample_ms)

    def per_second(self, now_ms: int) -> float:
        """The rate."""
        window_ms = self.window_ms(now_ms)
        return sum(sample.value for sample in self._samples) / (window_ms / 1000)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long to wait until the rate is down at `bound` a second; 0 where it is not above."""
        over = self.per_second(now_ms) - bound
        if over <= 0:
            return 0
        return in_throttle_range(over / bound * self.window_ms(now_ms) if bound > 0 else inf)

    def _forget(self, now_ms: int) -> None:
        """Empties samples whose last use lies before the window."""
        oldest_ms = now_ms - self._samples_wanted * self._sample_ms
        for sample in self._samples:
            if sample.last_ms <= oldest_ms:
                sample.reset(now_ms)
