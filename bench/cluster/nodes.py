"""One side of the comparison: three nodes, each a broker and a controller in a process of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterable

from bench.link import Link
from bench.rigs import DATA
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from headrace.wire.messages.k60_describe_cluster import DescribeClusterRequest
from tests.peers.cluster import HeadraceCluster, KafkaNode
from tests.peers.headrace import HeadracePeer
from tests.peers.kafka import OWN, cpu_s, resident_bytes
from tests.peers.link import Link as AnyLink

REPLICAS = 3
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "500",
}
PATIENCE_S = 180.0
KEPT_BYTES = 1 << 20
CONTROLLERS = 2
"""The kind of endpoint that a controller asks about in DescribeCluster."""


class Nodes:
    """Nodes 1 to 3 of one side, with data of their own; nothing runs before `start`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = DATA / f"cluster-{name}"
        shutil.rmtree(self.directory, ignore_errors=True)
        ids = range(1, REPLICAS + 1)
        self.cluster = HeadraceCluster(self.directory, SETTINGS, REPLICAS, ids if name == "kafka" else ())
        for node in self.cluster.nodes.values():
            if isinstance(node, KafkaNode):
                node.flags = OWN  # Apache Kafka as it comes

    @property
    def peers(self) -> dict[int, HeadracePeer]:
        return self.cluster.nodes

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def start(self) -> None:
        """Formats and starts all; returns when each knows of all the others."""
        self.cluster.format()
        self.cluster.start()

    def clean(self) -> None:
        """Kills them all and empties their large files, which stay until the end of the run.

        For minutes ext4 looks for a new file's inode behind those that were just removed: a side that comes after the
        removal of 100,000 files makes its own ten times slower.
        """
        self.cluster.kill()
        kept = next(each for each in map(DATA.joinpath, map("kept-{}".format, itertools.count())) if not each.exists())
        self.directory.rename(kept)
        for file in kept.rglob("*"):
            if file.is_file() and file.stat().st_size > KEPT_BYTES:
                os.truncate(file, 0)

    # --- what is known of them

    def resident_bytes(self) -> int:
        return sum(resident_bytes(peer.pid) for peer in self.peers.values())

    def cpu_s(self) -> dict[int, float]:
        """CPU seconds of each node so far."""
        return {node: cpu_s(peer.pid) for node, peer in self.peers.items()}

    def running(self) -> list[int]:
        return [node for node, peer in self.peers.items() if peer.process is not None]

    def controller(self) -> int:
        """The active controller, as any controller that runs has it."""
        found = -1

        def known() -> bool:
            nonlocal found
            for node in self.running():
                try:
                    with AnyLink(self.cluster.ports[node][1], 5.0) as link:
                        found = link.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), 1).controller_id
                except OSError:
                    continue
                if found in self.running():
                    return True
            return False

        wait_until(known, "no controller is active")
        return found

    def partitions(self, topic: str, ask: int | None = None) -> dict[int, MetadataResponsePartition]:
        """The partitions of a topic, as a node (any that runs, where none is named) tells them."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        with Link(self.peers[ask or self.running()[0]].port) as link:
            return {part.partition_index: part for each in link.ask(request).topics for part in each.partitions}

    def has(self, topic: str) -> bool:
        """Whether there is such a topic."""
        return any(part.leader_id >= 0 for part in self.partitions(topic).values())

    def leader(self, topic: str, partition: int = 0) -> int:
        return int(self.partitions(topic)[partition].leader_id)

    def leader_port(self, topic: str, partition: int = 0) -> int:
        return self.peers[self.leader(topic, partition)].port

    # --- topics

    def create(self, name: str, partitions: int = 1) -> None:
        """A topic of three replicas, of which two must be in sync; returns when all are, as each node has it."""
        with Link(self.peers[self.running()[0]].port) as link:
            link.create_topic(name, partitions, replicas=REPLICAS, min_insync_replicas="2")
        self.wait_in_sync(name, partitions)

    def drop(self, name: str) -> None:
        with Link(self.peers[self.running()[0]].port) as link:
            link.delete_topic(name)

    def wait_in_sync(self, topic: str, partitions: int, replicas: int = REPLICAS, every_s: float = 0.01) -> None:
        """Until each node that runs knows of so many replicas in sync, and of a leader, of every partition."""
        for node in self.running():
            wait_until(
                lambda node=node: in_sync(self.partitions(topic, node).values(), replicas) == partitions,  # type: ignore[misc]
                f"{topic} is not in sync as node {node} has it",
                every_s,
            )


def in_sync(partitions: Iterable[MetadataResponsePartition], replicas: int) -> int:
    """How many of these have a leader and so many replicas in sync."""
    return sum(part.error_code == 0 and part.leader_id >= 0 and len(part.isr_nodes) == replicas for part in partitions)


def wait_until(done: Callable[[], bool], failure: str, every_s: float = 0.01) -> None:
    """Looks again and again. Raises AssertionError where it takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"{failure} within {PATIENCE_S:g} s"
        time.sleep(every_s)
