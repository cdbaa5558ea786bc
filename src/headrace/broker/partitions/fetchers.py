"""Assigns the partitions that this broker follows to its connections to leaders."""

from __future__ import annotations

from asyncio import Task, wait
from typing import TYPE_CHECKING, Final

from headrace.broker.partitions.fetch_loop import FetchLoop, FetchServices
from headrace.broker.partitions.lost_leaders import LostLeaders
from headrace.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from headrace.broker.partitions.following import Following
    from headrace.broker.partitions.ports import BrokerState
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.partitions.throttles import Throttles
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env import Node

Lane = tuple[int, int]
"""A leader, and the number of a connection to it."""
_APART: Final = -1
"""Number of the connection to a leader for replicas that are far behind."""


class Fetchers:
    """At most num.replica.fetchers connections to each leader, and one more for replicas that are far behind: producers
    wait for in-sync replicas, which must not wait for others. A connection without partitions ends."""

    def __init__(
        self,
        node: Node,
        config: BrokerConfig,
        metrics: Registry,
        following: Following,
        throttles: Throttles,
        broker: BrokerState,
    ) -> None:
        self._owner = node.owner("fetchers")
        self._broker = broker
        self.lost_leaders = LostLeaders(node, self._owner, lambda: broker.image)
        self._shared = FetchServices(node, config, following, self.lost_leaders, throttles, broker, self._owner)
        self._lanes = broker.config.num_replica_fetchers
        """Number of connections to each leader for replicas that are not far behind."""
        self._loops: dict[Lane, FetchLoop] = {}
        self._tasks: dict[FetchLoop, Task[None]] = {}
        self._by_replica: dict[Replica, FetchLoop] = {}
        """Connection that fetches each followed replica."""
        self._stopped = False
        metrics.gauge("replicas.followed", lambda: len(self._by_replica))

    def follow(self, replica: Replica) -> None:
        """Fetches a replica from the leader, and under the epoch, of its state. A replica that is fetched so already is
        left alone, unless it has to be cut first."""
        state = replica.state
        known = self._by_replica.get(replica)
        leader = (state.leader, state.leader_epoch)
        if known is not None and (known.leader, known.leader_epoch(replica)) == leader and replica.missing_from < 0:
            return
        self.forget(replica)
        if state.leader == NO_LEADER or self._stopped:
            return
        self._follow_over((state.leader, self._lane(replica)), replica)

    def _follow_over(self, lane: Lane, replica: Replica) -> None:
        loop = self._loops.get(lane) or self._begin(lane)
        self._by_replica[replica] = loop
        loop.follow(replica)

    def _change_lane(self, replica: Replica) -> None:
        """Moves a replica to the connection for replicas far behind, or back."""
        loop = self._by_replica[replica]
        self.forget(replica)
        self._follow_over((loop.leader, self._lane(replica) if loop.is_apart else _APART), replica)

    def forget(self, replica: Replica) -> None:
        """Stops fetching a replica that leads, is gone, or has no leader."""
        loop = self._by_replica.pop(replica, None)
        if loop is None:
            return
        loop.forget(replica)
        if not loop:
            self._loops = {lane: each for lane, each in self._loops.items() if each is not loop}

    def settings_changed(self) -> None:
        """Redistributes the partitions if the number of connections to a leader has changed."""
        if self._broker.config.num_replica_fetchers == self._lanes:
            return
        self._lanes = self._broker.config.num_replica_fetchers
        for replica in list(self._by_replica):
            if not replica.is_held:  # the worker that holds its log goes on with it
                self.forget(replica)
                self.follow(replica)

    def brokers_changed(self) -> None:
        """Updates connections after a change of the brokers in the metadata."""
        for loop in self._loops.values():
            loop.look_at_address()
        self.lost_leaders.brokers_changed()

    async def stop(self) -> None:
        """Stops fetching; returns when no fetch is in progress."""
        self._stopped = True
        self.lost_leaders.stop()
        for loop in self._tasks:
            loop.stop()
        if self._tasks:
            await wait(list(self._tasks.values()))
        self._owner.close()

    def _lane(self, replica: Replica) -> int:
        return (31 * int.from_bytes(replica.topic_id[-4:], "big") + replica.index) % self._lanes

    def _begin(self, lane: Lane) -> FetchLoop:
        is_apart = lane[1] == _APART
        loop = self._loops[lane] = FetchLoop(self._shared, lane[0], is_apart=is_apart, change_lane=self._change_lane)
        task = self._tasks[loop] = self._owner.spawn(loop.run())
        task.add_done_callback(lambda _: self._tasks.pop(loop, None))
        return loop
