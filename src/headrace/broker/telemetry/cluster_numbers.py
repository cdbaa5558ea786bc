"""Metrics of the cluster from this node's metadata: the quorum, and the active controller's counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from headrace.broker.telemetry.families import Family, gauge, gauges
from headrace.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from headrace.metadata.image import ClusterImage, TopicsImage
    from headrace.raft.machine import Raft

PARTITIONS_AT_ONCE: Final = 500
"""Partitions of the metadata counted between two yields: some 0.2 ms."""
NO_NODE: Final = -1
RAFT: Final = "kafka_server_raftmetrics_"
CONTROLLER: Final = "kafka_controller_kafkacontroller_"


class ReplicaSeen(Protocol):
    """A voter or an observer as the quorum's leader sees it."""

    @property
    def key(self) -> NodeKey:
        """Identity of the node."""
        ...

    @property
    def end_offset(self) -> int:
        """End of the node's metadata log; -1 if it is not known yet."""
        ...


class NodeKey(Protocol):
    """The identity of a node with a metadata log."""

    @property
    def id(self) -> int:
        """Node id."""
        ...


class QuorumSeen(Protocol):
    """The parts of the metadata quorum that metrics read."""

    @property
    def image(self) -> ClusterImage:
        """Committed metadata, as far as this node knows."""
        ...

    @property
    def raft(self) -> Raft:
        """Raft state machine."""
        ...

    @property
    def decides(self) -> bool:
        """Whether this node is the active controller."""
        ...

    def progress(self) -> Sequence[ReplicaSeen]:
        """Returns every voter, if this node leads."""
        ...

    def observers(self) -> Sequence[ReplicaSeen]:
        """Returns every observer that has fetched recently, if this node leads."""
        ...


class Placed:
    """Counts of the partitions in one state of the metadata."""

    __slots__ = ("here", "not_preferred", "offline", "total")

    def __init__(self) -> None:
        self.total = self.offline = self.not_preferred = self.here = 0


class ClusterNumbers:
    """Section of the metrics page. Partitions are counted again only if the topics have changed."""

    def __init__(
        self, node_id: int, quorum: Callable[[], QuorumSeen | None], topics_max: int, *, is_broker: bool
    ) -> None:
        """`quorum` returns None until the node has opened its metadata; `topics_max` topics have series of their
        own."""
        self._node_id = node_id
        self._topics_max = topics_max
        self._quorum = quorum
        self._is_broker = is_broker
        self._counted: TopicsImage | None = None
        self._placed = Placed()

    def families(self) -> Iterator[Family | None]:
        """Yields the families of the section."""
        quorum = self._quorum()
        if quorum is None:
            return
        yield from self._of_quorum(quorum)
        image = quorum.image
        if self._is_broker or quorum.decides:
            yield from self._count(image.topics)
        if self._is_broker:
            yield gauge(
                "kafka_server_replicamanager_partitioncount",
                "Partitions that have a replica on this broker, by the metadata.",
                self._placed.here,
            )
        if quorum.decides:
            yield from self._of_controller(image)

    # --- the quorum

    def _of_quorum(self, quorum: QuorumSeen) -> Iterator[Family]:
        raft = quorum.raft
        leader = NO_NODE if raft.known_leader is None else raft.known_leader
        state = type(raft.role).__name__.lower()
        if not raft.is_voter:
            state = "observer"
        yield gauges(RAFT + "current_state", "What this node is in the quorum.", [({"current_state": state}, 1)])
        yield gauge(RAFT + "current_leader", "The leader of the quorum; -1: none is known.", leader)
        yield gauge(RAFT + "current_epoch", "The epoch of the quorum.", raft.epoch)
        yield gauge(
            RAFT + "current_vote",
            "The node that this one voted for in this epoch; -1: none.",
            NO_NODE if raft.voted is None else raft.voted.id,
        )
        yield gauge(RAFT + "high_watermark", "Metadata below this offset are committed.", raft.high_watermark)
        yield gauge(RAFT + "log_end_offset", "The end of this node's metadata log.", raft.log.end_offset)
        yield gauge(RAFT + "log_end_epoch", "The epoch of the last record there.", raft.log.last.epoch)
        offset = quorum.image.offset
        yield gauge("headrace_metadata_image_offset", "The last record of the metadata that this node obeys.", offset)
        yield gauge(
            CONTROLLER + "activecontrollercount", "1 where this node is the active controller.", int(quorum.decides)
        )
        for label, replicas in (("voter", quorum.progress()), ("observer", quorum.observers())):
            yield gauges(
                f"headrace_quorum_{label}_lag_records",
                f"Records of the metadata log that each {label} lacks, as the leader of the quorum sees it.",
                [
                    ({label: str(each.key.id)}, raft.log.end_offset - max(0, each.end_offset))
                    for each in replicas
                    if each.key.id != self._node_id
                ],
            )

    # --- the metadata

    def _count(self, topics: TopicsImage) -> Iterator[None]:
        if topics is self._counted:
            return
        placed = Placed()
        seen = 0
        for topic in topics.topics_by_name.values():
            for partition in topic.partitions:
                seen += 1
                if seen % PARTITIONS_AT_ONCE == 0:
                    yield None
                if partition.leader == NO_LEADER:
                    placed.offline += 1
                elif partition.leader != partition.replicas[0]:
                    placed.not_preferred += 1
                if self._node_id in partition.replicas:
                    placed.here += 1
        placed.total = seen
        self._counted, self._placed = topics, placed

    def _of_controller(self, image: ClusterImage) -> Iterator[Family]:
        placed = self._placed
        fenced = sum(broker.fenced for broker in image.brokers.values())
        yield gauge(CONTROLLER + "offlinepartitionscount", "Partitions without a leader.", placed.offline)
        yield gauge(
            CONTROLLER + "preferredreplicaimbalancecount",
            "Partitions that another broker than their preferred one leads.",
            placed.not_preferred,
        )
        yield gauge(CONTROLLER + "globaltopiccount", "Topics of the cluster.", len(image.topics))
        yield gauge(CONTROLLER + "globalpartitioncount", "Partitions of the cluster.", placed.total)
        active = len(image.brokers) - fenced
        yield gauge(CONTROLLER + "activebrokercount", "Brokers that are registered and not fenced.", active)
        yield gauge(CONTROLLER + "fencedbrokercount", "Brokers that are registered and fenced.", fenced)
        yield gauge("kafka_brokers", "The same as activebrokercount, as the Kafka exporter calls it.", active)
        first = islice(image.topics.topics_by_name.values(), self._topics_max)
        yield gauges(
            "kafka_topic_partitions",
            "Partitions of a topic.",
            [({"topic": topic.name}, len(topic.partitions)) for topic in first],
        )
