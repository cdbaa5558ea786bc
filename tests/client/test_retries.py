"""What a client does while nobody answers."""

from __future__ import annotations

import logging

import pytest

from headrace.client import cluster
from headrace.client.cluster import Retry
from headrace.client.errors import ClientError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_what_goes_on_failing_is_logged_after_five_seconds_and_then_twice_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    monkeypatch.setattr(cluster, "time", clock)
    retry = Retry(120.0)
    error = ClientError("nobody listens at broker:9092")
    with caplog.at_level(logging.WARNING, "headrace.client"), pytest.raises(ClientError):
        while True:
            retry.pause(error)
            if clock.now < 105.0:
                assert not caplog.messages
    assert len(caplog.messages) == 4
    assert caplog.messages[0].startswith("Retrying for ")
    assert caplog.messages[0].endswith("nobody listens at broker:9092")
