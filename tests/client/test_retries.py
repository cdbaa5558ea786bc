"""What a client does while nobody answers."""

from __future__ import annotations

import logging
from random import Random

import pytest

from headrace.client.conversation import Pause
from headrace.client.errors import ClientError
from headrace.client.retry import Retry


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)


def test_what_goes_on_failing_is_logged_after_five_seconds_and_then_twice_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    retry = Retry(clock, Random(1), 120.0)
    error = ClientError("nobody listens at broker:9092")
    with caplog.at_level(logging.WARNING, "headrace.client"), pytest.raises(ClientError):
        while True:
            for step in retry.pause(error):
                assert isinstance(step, Pause)
                clock.now += step.seconds
            if clock.now < 105.0:
                assert not caplog.messages
    assert len(caplog.messages) == 4
    assert caplog.messages[0].startswith("Retrying for ")
    assert caplog.messages[0].endswith("nobody listens at broker:9092")
