"""Which requests to other voters are under way: one each, with a time limit and a pause after a failure."""

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
    """How long each next voter waits to become a candidate if the leader's process is gone, the first one not at all;
    0: they wait as for a silent leader.
    """
    fetch_snapshot_bytes: int = 1024 * 1024
    """What a follower asks for at once of a snapshot."""
    auto_join: bool = False
    """Whether a controller that does not vote asks for it."""


class Peers:
    """Requests under way by voter. An answer to a request that is no longer waited for is nobody's."""

    def __init__(self, settings: RaftSettings) -> None:
        self._settings = settings
        self._number = 0
        self._in_flight: dict[int, tuple[int, int]] = {}
        self._rests_until_ms: dict[int, int] = {}

    def ready_ms(self, peer: int) -> int:
        """When the next request may go to a voter."""
        request = self._in_flight.get(peer)
        if request is not None:
            return request[1] + self._settings.request_timeout_ms
        return self._rests_until_ms.get(peer, 0)

    def ask(self, peer: int, now: int) -> int:
        """The number of a request that goes out now. One that took too long is forgotten."""
        assert now >= self.ready_ms(peer), "one request at a time"
        self._number += 1
        self._in_flight[peer] = (self._number, now)
        return self._number

    def answered(self, peer: int, number: int) -> bool:
        """Notes an answer; whether it was waited for."""
        request = self._in_flight.get(peer)
        if request is None or request[0] != number:
            return False
        del self._in_flight[peer]
        return True

    def rest(self, peer: int, now: int, for_ms: int | None = None) -> None:
        """A voter did not answer, or with an error, or has nothing to say: it is not asked again at once."""
        assert for_ms is None or for_ms >= 0
        self._rests_until_ms[peer] = now + (self._settings.retry_backoff_ms if for_ms is None else for_ms)

    def wake(self, peer: int) -> None:
        """There is something to ask a voter again."""
        self._rests_until_ms.pop(peer, None)

    def forget(self) -> None:
        """The role changed: no answer is waited for any more, and everybody may be asked."""
        self._in_flight.clear()
        self._rests_until_ms.clear()
