"""How long a client tries again, and how long it pauses in between."""

from __future__ import annotations

import logging
from random import Random
from typing import Final

from headrace.client.conversation import Clock, Pause, Steps
from headrace.client.errors import BrokerError, ClientError
from headrace.wire.errors import ErrorCode

_log = logging.getLogger("headrace.client")

PAUSE_FIRST_S: Final = 0.02
PAUSE_LAST_S: Final = 1.0

WARN_AFTER_S: Final = 5.0
WARN_AGAIN_S: Final = 30.0
"""After how long a time of failed attempts a warning is logged, and how long after that the next one."""

MISSING_TOPIC_PATIENCE_S: Final = 1.0
"""How long a client asks again for a topic that the cluster denies: long enough for a creation to reach every broker,
short enough for a mistyped name."""


class Retry:
    """Growing, jittered pauses until a deadline, and then the error that they were for."""

    def __init__(self, clock: Clock, random: Random, timeout_s: float) -> None:
        self.started = clock.monotonic()
        self.deadline = self.started + timeout_s
        self.error: ClientError | None = None
        """The error that the last pause was for."""
        self._clock = clock
        self._random = random
        self._pause_s = PAUSE_FIRST_S
        self._warns_at = self.started + WARN_AFTER_S

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.deadline - self._clock.monotonic()

    def leave_out(self, seconds: float) -> None:
        """Moves the deadline by time that was spent on something else."""
        self.started += seconds
        self.deadline += seconds
        self._warns_at += seconds

    def pause(self, error: ClientError, *, at_most_s: float | None = None) -> Steps[None]:
        """Pauses before another attempt. Raises `error` if there is no time for one. Logs a warning after attempts
        have failed for long, so that somebody who waits for a program sees why."""
        self.error = error
        deadline = self.deadline if at_most_s is None else min(self.deadline, self.started + at_most_s)
        pause_s = self._pause_s * self._random.uniform(0.8, 1.2)
        now = self._clock.monotonic()
        if now + pause_s >= deadline:
            raise error
        if now >= self._warns_at:
            self._warns_at = now + WARN_AGAIN_S
            tried_s, left_s = now - self.started, deadline - now
            _log.warning("Retrying for %.0f s, and for up to %.0f s more: %s", tried_s, left_s, error)
        yield Pause(pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_LAST_S)

    def pause_or_raise(self, error: BrokerError, *, missing_topic_s: float = MISSING_TOPIC_PATIENCE_S) -> Steps[None]:
        """Pauses after a retriable error, for `missing_topic_s` in all if a topic is unknown; raises any other."""
        if not error.retriable:
            raise error
        unknown = error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        yield from self.pause(error, at_most_s=missing_topic_s if unknown else None)
