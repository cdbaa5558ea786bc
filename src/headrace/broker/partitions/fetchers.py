"""Everything that this broker follows: which partition is fetched over which connection."""

from __future__ import annotations

from asyncio import Task, wait
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.broker.partitions.fetch_loop import FetchLoop
from headrace.broker.partitions.lost_leaders import LostLeaders
from headrace.client.security import ConnectionSecurity
from headrace.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from headrace.broker.partitions.following import Following
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.partitions.throttles import Throttles
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env import Node
    from headrace.metadata.image import ClusterImage, Endpoint

Lane = tuple[int, int]
"""A leader, and which of the connections to it."""
_APART: Final = -1
"""The connection to a leader for what is far behind."""


class Fetchers:
    """At most num.replica.fetchers connections to each leader, and one more for what is far behind: producers wait for
    what is in sync, and it does not wait behind what is not. One that has nothing to fetch any more ends."""

    def __init__(
        self,
        node: Node,
        config: BrokerConfig,
        metrics: Registry,
        following: Following,
        *,
        image: Callable[[], ClusterImage],
        broker_epoch: Callable[[], int],
        throttles: Throttles,
        lanes: Callable[[], int],
        security: Callable[[], ConnectionSecurity],
    ) -> None:
        """`image` returns the newest image, `broker_epoch` is that of this broker's registration, `lanes` returns
        num.replica.fetchers, `security` what connections to leaders are opened with."""
        self._security = security
        self._node = node
        self._config = config
        self._log = node.logger("partitions")
        self._owner = node.owner("fetchers")
        self._following = following
        self._image = image
        self._broker_epoch = broker_epoch
        self.lost_leaders = LostLeaders(node, self._owner, image)
        self._throttles = throttles
        self._lanes = lanes
        self._lanes_now = lanes()
        self._loops: dict[Lane, FetchLoop] = {}
        self._tasks: dict[FetchLoop, Task[None]] = {}
        self._by_replica: dict[Replica, FetchLoop] = {}
        self._stopped = False
        metrics.gauge("replicas.followed", lambda: len(self._by_replica))

    def follow(self, replica: Replica) -> None:
        """Fetches a replica from the leader, and under the epoch, that its state names; one that is fetched so already
        goes on, unless it is to be cut first."""
        state = replica.state
        known = self._by_replica.get(replica)
        way = (state.leader, state.leader_epoch)
        if known is not None and (known.leader, known.leader_epoch(replica)) == way and replica.missing_from < 0:
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
        """A replica is far behind from now on, or is not any more."""
        loop = self._by_replica[replica]
        self.forget(replica)
        self._follow_over((loop.leader, self._lane(replica) if loop.is_apart else _APART), replica)

    def forget(self, replica: Replica) -> None:
        """The replica is fetched no more: it leads, or is gone, or has no leader."""
        loop = self._by_replica.pop(replica, None)
        if loop is None:
            return
        loop.forget(replica)
        if not loop:
            self._loops = {lane: each for lane, each in self._loops.items() if each is not loop}

    def settings_changed(self) -> None:
        """There may be more or fewer connections to a leader from now on: its partitions are spread over them again."""
        if self._lanes() == self._lanes_now:
            return
        self._lanes_now = self._lanes()
        for replica in list(self._by_replica):
            if not replica.is_held:  # whoever has its log in hand goes on with it
                self.forget(replica)
                self.follow(replica)

    def brokers_changed(self) -> None:
        """Brokers may be elsewhere by now."""
        for loop in self._loops.values():
            loop.look_at_address()
        self.lost_leaders.brokers_changed()

    async def stop(self) -> None:
        """Fetches nothing more; returns when nothing of it is under way."""
        self._stopped = True
        self.lost_leaders.stop()
        for loop in self._tasks:
            loop.stop()
        if self._tasks:
            await wait(list(self._tasks.values()))
        self._owner.close()

    def _lane(self, replica: Replica) -> int:
        return (31 * int.from_bytes(replica.topic_id[-4:], "big") + replica.index) % self._lanes_now

    def _begin(self, lane: Lane) -> FetchLoop:
        loop = self._loops[lane] = FetchLoop(
            self._node,
            self._config,
            self._following,
            self.lost_leaders,
            self._log,
            self._owner,
            lane[0],
            is_apart=lane[1] == _APART,
            change_lane=self._change_lane,
            endpoint=self._endpoint,
            broker_epoch=self._broker_epoch,
            throttles=self._throttles,
            security=self._security,
        )
        task = self._tasks[loop] = self._owner.spawn(loop.run())
        task.add_done_callback(lambda _: self._tasks.pop(loop, None))
        return loop

    def _endpoint(self, node_id: int) -> Endpoint | None:
        broker = self._image().brokers.get(node_id)
        return None if broker is None else broker.endpoint(self._config.inter_broker_listener)
