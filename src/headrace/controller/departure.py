"""A broker leaves all that it held, or what lay in log directories that failed, in pieces: one decision has some
hundred records at most, and looks at some ten thousand partitions, so that a controller of many partitions has other
things to decide in between.

What makes it known comes with the last piece: the broker is fenced, registered again or unregistered, or has fewer
directories. A log that ends between two pieces has a broker that is unfenced and in sync in fewer partitions: the next
controller misses its heartbeats, or hears in them of the directories, begins again, and finds less to do. That is the
order of Kafka's controller too, whose batches may be cut likewise. Until then `BrokerSessions.is_leaving` keeps
everybody from electing the broker, and from calling it in sync; `BrokerSessions.failing` keeps everybody from electing
it where its directory failed.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.controller import pieces
from headrace.controller.partition_changes import PartitionChanges
from headrace.controller.sessions import BrokerSessions
from headrace.metadata.image import Broker, Topic, TopicsImage


class Departure:
    """What one broker leaves. It knows the topics in which nothing of the broker is left: an image does not change, so
    the same topic in a later one needs no second look, and a topic that changed meanwhile gets it.

    `was_clean` False: the broker may lack what it acknowledged, so it is not eligible either. `failed` are log
    directories: the broker stays, and leaves what lies in these alone.
    """

    def __init__(self, broker_id: int, *, was_clean: bool = True, failed: frozenset[bytes] | None = None) -> None:
        self.broker_id = broker_id
        self.was_clean = was_clean
        self.failed = failed
        self.records = 0
        """Decided so far."""
        self._left: dict[bytes, Topic] = {}
        self._waiting: list[str] = []
        """Topics that are still to be looked at, the next one last."""

    def go_on(self, changes: PartitionChanges) -> bool:
        """Takes the broker out of as much as one decision may; True once nothing is left."""
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
        """Whether any topic may hold something of the broker: in this decision or before, all were looked at once."""
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
    """The next piece of a departure; True with the last one. In between the broker is known to be leaving, or its
    directories to have failed."""
    is_over = departure.go_on(changes)
    if sessions is None:
        return is_over
    if departure.failed is None:
        sessions.leaves(broker.id, broker.epoch, is_over=is_over)
    else:
        sessions.fails(broker.id, broker.epoch, frozenset() if is_over else departure.failed)
    return is_over
