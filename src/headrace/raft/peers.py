"""Requests in flight to other voters: one each, with a timeout and a backoff after a failure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The times of the quorum (`controller.quorum.*`), in milliseconds, with Kafka's defaults."""

    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_wait_ms: int = 500
    early_election_ms: int = 100
    """How long each next voter waits before it campaigns if the leader's process is gone; the first one does not wait.
    0: all wait as for a silent leader."""
    fetch_snapshot_bytes: int = 1024 * 1024
    """The size of a follower's snapshot request."""
    auto_join: bool = False
    """Whether a controller that is not a voter asks to become one."""


class Peers:
    """Requests in flight by voter. Answers to forgotten requests are ignored."""

    def __init__(self, settings: RaftSettings) -> None:
        self._settings = settings
        self._number = 0
        self._in_flight: dict[int, tuple[int, int]] = {}
        self._rests_until_ms: dict[int, int] = {}

    def ready_ms(self, peer: int) -> int:
        """Returns when the next request may go to a voter."""
        request = self._in_flight.get(peer)
        if request is not None:
            return request[1] + self._settings.request_timeout_ms
        return self._rests_until_ms.get(peer, 0)

    def ask(self, peer: int, now: int) -> int:
        """Returns the number of a new request. One that took too long is forgotten."""
        assert now >= self.ready_ms(peer), "one request at a time"
        self._number += 1
        self._in_flight[peer] = (self._number, now)
        return self._number

    def answered(self, peer: int, number: int) -> bool:
        """Takes an answer; returns whether its request was in flight."""
        request = self._in_flight.get(peer)
        if request is None or request[0] != number:
            return False
        del self._in_flight[peer]
        return True

    def rest(self, peer: int, now: int, for_ms: int | None = None) -> None:
        """Delays the next request to a voter that did not answer, answered an error, or has nothing new."""
        assert for_ms is None or for_ms >= 0
        self._rests_until_ms[peer] = now + (self._settings.retry_backoff_ms if for_ms is None else for_ms)

    def wake(self, peer: int) -> None:
        """Ends the delay of a voter."""
        self._rests_until_ms.pop(peer, None)

    def forget(self) -> None:
        """Forgets all requests and delays: the role has changed."""
        self._in_flight.clear()
        self._rests_until_ms.clear()
