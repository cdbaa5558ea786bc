"""The rates at which this broker feeds followers, follows leaders, and moves replicas between its directories.

A replica is held back only where the settings of its topic name it, and while it is not in sync (KIP-73): one that is
in sync would fall out of the set. What in-sync ones take counts for the rate.
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
    """One direction of traffic."""

    def __init__(self, clock: Clock, rate: Callable[[], int], window_s: int, windows: int) -> None:
        """`rate` returns what the settings say now, in bytes a second. Unused rate is saved for one window; what was
        over it is remembered for all of them."""
        self._clock = clock
        self._rate = rate
        self._throttle = Throttle(1000 * window_s, 1000 * window_s * windows)

    @property
    def is_limited(self) -> bool:
        """Whether there is a rate at all."""
        return self._rate() != UNLIMITED

    def passed(self, byte_count: int) -> None:
        """Counts bytes that have passed."""
        self._throttle.passed(byte_count, self._rate(), self._now_ms())

    @property
    def wait_s(self) -> float:
        """How long nothing may pass from now on; 0.0 where it may."""
        return self._throttle.wait_ms(self._rate(), self._now_ms()) / 1000

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


class Throttles:
    """All of them, of one broker."""

    def __init__(self, clock: Clock, node_id: int, config: Callable[[], BrokerConfig]) -> None:
        """`config` returns the settings that are in force now."""
        self._node_id = node_id
        now = config()
        window_s, windows = now.replication_quota_window_size_seconds, now.replication_quota_window_num
        self.leader = RateLimit(clock, lambda: config().leader_replication_throttled_rate, window_s, windows)
        """The rate at which followers fetch here."""
        self.follower = RateLimit(clock, lambda: config().follower_replication_throttled_rate, window_s, windows)
        """The rate at which this broker fetches as a follower."""
        self.moves = RateLimit(
            clock,
            lambda: config().replica_alter_log_dirs_io_max_bytes_per_second,
            now.alter_log_dirs_replication_quota_window_size_seconds,
            now.alter_log_dirs_replication_quota_window_num,
        )
        """The rate of copies between log directories."""

    def counts_as_leader(self, replica: Replica) -> bool:
        """Whether what followers fetch of a replica that is led here counts for a rate."""
        return self.leader.is_limited and self._is_named(
            replica, replica.log.config.leader_replication_throttled_replicas
        )

    def counts_as_follower(self, replica: Replica) -> bool:
        """Whether what this broker fetches of a replica counts for a rate."""
        return self.follower.is_limited and self._is_named(
            replica, replica.log.config.follower_replication_throttled_replicas
        )

    def holds_back_follower(self, replica: Replica, node_id: int) -> bool:
        """Whether a follower gets nothing now of a replica that is led here."""
        return self.counts_as_leader(replica) and node_id not in replica.state.isr and self.leader.wait_s > 0

    def holds_back(self, replica: Replica) -> bool:
        """Whether a replica is not to be fetched now that this broker follows."""
        return self.counts_as_follower(replica) and self._node_id not in replica.state.isr and self.follower.wait_s > 0

    def _is_named(self, replica: Replica, named: tuple[str, ...]) -> bool:
        return bool(named) and (named == (_ALL,) or f"{replica.index}:{self._node_id}" in named)
