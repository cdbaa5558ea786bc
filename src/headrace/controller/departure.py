"""Removes a broker from the partitions that it holds, or from those in its failed log directories, in pieces.

One decision has some hundred records at most and looks at some ten thousand partitions, so that a controller with many
partitions can decide other requests in between.

The change that makes the departure visible comes with the last piece: the broker is fenced, registered again or
unregistered, or has fewer directories. If the log ends between two pieces, the broker is unfenced and in sync in fewer
partitions. The next controller misses its heartbeats, or learns from them of the directories, starts again, and finds
less to do. Kafka's controller has the same order, and its batches may be cut likewise. Until then
`BrokerSessions.is_leaving` excludes the broker from elections and from the ISR; `BrokerSessions.failing` excludes its
replicas in failed directories from elections.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.controller import pieces
from headrace.controller.partition_changes import PartitionChanges
from headrace.controller.sessions import BrokerSessions
from headrace.metadata.image import Broker, Topic, TopicsImage


class Departure:
    """The departure of one broker. It remembers the topics that are done: an image is immutable, so the same topic in a
    later image needs no second look, and one that has changed gets it.

    `was_clean` False: the broker may lack acknowledged records, so it is not an eligible leader either. `failed` are
    log directories: the broker stays, and leaves only its replicas there.
    """

    def __init__(self, broker_id: int, *, was_clean: bool = True, failed: frozenset[bytes] | None = None) -> None:
        self.broker_id = broker_id
        self.was_clean = was_clean
        self.failed = failed
        self.records = 0
        """The number of records decided so far."""
        self._left: dict[bytes, Topic] = {}
        self._waiting: list[str] = []
        """Topics still to be looked at, the next one last."""

    def go_on(self, changes: PartitionChanges) -> bool:
        """Removes the broker from as many partitions as one decision may; returns True once none is left."""
        if self.failed is None:
            changes.goes_down(self.broker_id)
        else:
            changes.fail_directories(self.failed)
        before = len(changes.records)
        is_over = self._go_on(changes)
        self.records += len(changes.records) - before
        return is_over

    def _go_on(self, changes: PartitionChanges) -> bool:
        topics, done = changes.image.topics, set[str]()
        while self._waiting or self._look_again(topics, done):
            if changes.looked_at >= pieces.PIECE_PARTITIONS or len(changes.records) >= pieces.PIECE_RECORDS:
                return False
            topic = topics.by_name(self._waiting[-1])
            if topic is not None:
                known = len(changes.records)
                if not changes.take_out(topic, self, records_max=pieces.PIECE_RECORDS):
                    return False
                done.add(topic.name)
                if len(changes.records) == known:
                    self._left[topic.id] = topic
            self._waiting.pop()
        return True

    def _look_again(self, topics: TopicsImage, done: Collection[str]) -> bool:
        """Starts another pass over the topics; returns False if this decision and those before have looked at all of
        them."""
        left = self._left
        self._waiting = sorted(
            [
                topic.name
                for topic in topics.topics_by_id.values()
                if left.get(topic.id) is not topic and topic.name not in done
            ],
            reverse=True,
        )
        return bool(self._waiting)


def leave(changes: PartitionChanges, sessions: BrokerSessions | None, departure: Departure, broker: Broker) -> bool:
    """Decides the next piece of a departure; returns True with the last one. Until then the sessions note that the
    broker is leaving, or that its directories have failed."""
    is_over = departure.go_on(changes)
    if sessions is None:
        return is_over
    if departure.failed is None:
        sessions.leaves(broker.id, broker.epoch, is_over=is_over)
    else:
        sessions.fails(broker.id, broker.epoch, frozenset() if is_over else departure.failed)
    return is_over
