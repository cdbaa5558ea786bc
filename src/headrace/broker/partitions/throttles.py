"""Limits the rates of serving followers, of following leaders, and of moving replicas between directories.

A replica is held back only if its topic's settings name it and it is not in sync (KIP-73): an in-sync replica would
leave the set. The traffic of in-sync replicas counts towards the rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.replicas.throttle import UNLIMITED, Throttle

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.config import BrokerConfig
    from headrace.env.clock import Clock

_ALL: Final = "*"


class RateLimit:
    """The rate limit of one direction of traffic."""

    def __init__(self, clock: Clock, rate: Callable[[], int], window_s: int, windows: int) -> None:
        """`rate` returns the current limit in bytes per second. Unused rate is saved for one window; excess is
        remembered for all windows."""
        self._clock = clock
        self._rate = rate
        self._throttle = Throttle(1000 * window_s, 1000 * window_s * windows)

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self._rate() != UNLIMITED

    def passed(self, byte_count: int) -> None:
        """Counts bytes that have passed."""
        self._throttle.passed(byte_count, self._rate(), self._now_ms())

    @property
    def wait_s(self) -> float:
        """Time in seconds for which nothing may pass; 0.0 if it may now."""
        return self._throttle.wait_ms(self._rate(), self._now_ms()) / 1000

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


class Throttles:
    """The rate limits of one broker."""

    def __init__(self, clock: Clock, node_id: int, config: Callable[[], BrokerConfig]) -> None:
        """`config` returns the settings in force."""
        self._node_id = node_id
        now = config()
        window_s, windows = now.replication_quota_window_size_seconds, now.replication_quota_window_num
        self.leader = RateLimit(clock, lambda: config().leader_replication_throttled_rate, window_s, windows)
        """Limit of followers' fetches from this broker."""
        self.follower = RateLimit(clock, lambda: config().follower_replication_throttled_rate, window_s, windows)
        """Limit of this broker's fetches as a follower."""
        self.moves = RateLimit(
            clock,
            lambda: config().replica_alter_log_dirs_io_max_bytes_per_second,
            now.alter_log_dirs_replication_quota_window_size_seconds,
            now.alter_log_dirs_replication_quota_window_num,
        )
        """Limit of copying between log directories."""

    def counts_as_leader(self, replica: Replica) -> bool:
        """Returns whether followers' fetches of a led replica count towards the limit."""
        return self.leader.is_limited and self._is_named(
            replica, replica.log.config.leader_replication_throttled_replicas
        )

    def counts_as_follower(self, replica: Replica) -> bool:
        """Returns whether this broker's fetches of a replica count towards the limit."""
        return self.follower.is_limited and self._is_named(
            replica, replica.log.config.follower_replication_throttled_replicas
        )

    def holds_back_follower(self, replica: Replica, node_id: int) -> bool:
        """Returns whether a follower is to get nothing now of a led replica."""
        return self.counts_as_leader(replica) and node_id not in replica.state.isr and self.leader.wait_s > 0

    def holds_back(self, replica: Replica) -> bool:
        """Returns whether a followed replica is not to be fetched now."""
        return self.counts_as_follower(replica) and self._node_id not in replica.state.isr and self.follower.wait_s > 0

    def _is_named(self, replica: Replica, named: tuple[str, ...]) -> bool:
        return bool(named) and (named == (_ALL,) or f"{replica.index}:{self._node_id}" in named)
