"""Checks failed log directories: all replicas there and no others stop leading, following and serving reads; and at
rest the metadata have the directory of each replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.metadata.image import DIRECTORY_UNASSIGNED

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.metadata.image import ClusterImage
    from headrace.sim.checkers.history import Place
    from headrace.sim.world import World


class Directories:
    """Checks the replicas of failed log directories."""

    def __init__(
        self, world: World, brokers: Callable[[], Sequence[Broker]], newest: Callable[[], ClusterImage | None]
    ) -> None:
        """`brokers` are those that run, `newest` is the newest image that any node has applied."""
        self._world = world
        self._brokers = brokers
        self._newest = newest
        self.failures = 0

    def look(self) -> None:
        """At any time."""
        for broker in self._brokers():
            failed = [home.path for home in broker.logs.directories.values() if home.failure is not None]
            self.failures += bool(failed)
            for replica in list(broker.replicas.by_name.values()):
                directory = replica.log.directory.rpartition("/")[0]
                text = f"{replica.key} is online on {broker.node_id} in {directory}, which has failed"
                self._world.demand(directory not in failed, text)
            if not failed:
                offline = sorted(broker.replicas.offline)
                self._world.demand(not offline, f"{offline} are offline on {broker.node_id}, and no directory failed")

    @staticmethod
    def lie_in(broker: Broker, directory: str) -> list[Place]:
        """Which replicas of a broker lie in a directory."""
        replicas = list(broker.replicas.by_name.values())
        return [each.key for each in replicas if each.log.directory.rpartition("/")[0] == directory]

    def not_left(self, node: int, places: Sequence[Place]) -> list[str]:
        """Which of the replicas that lay in a directory that has failed still count: none, soon after."""
        image = self._newest()
        late = []
        for topic, index in sorted(places):
            partition = None if image is None else image.topics.partition(topic, index)
            if partition is not None and (node in partition.isr or partition.leader in (node, -1)):
                late.append(f"the directory of {topic}-{index} on {node} has failed: {partition}")
        return late

    def differences(self) -> list[str]:
        """Which replicas lie elsewhere than the metadata say, at rest."""
        image = self._newest()
        late = []
        for broker in self._brokers():
            for replica in list(broker.replicas.by_name.values()):
                topic = None if image is None else image.topics.by_id(replica.topic_id)
                if topic is None or broker.layout is None:
                    continue
                assigned = topic.partitions[replica.index].directory_of(broker.node_id)
                directory = replica.log.directory.rpartition("/")[0]
                if assigned not in (DIRECTORY_UNASSIGNED, broker.layout.directory_ids[directory]):
                    late.append(
                        f"{replica.key} lies in {directory} of {broker.node_id}, and in {assigned.hex()} it is said"
                    )
        return late
