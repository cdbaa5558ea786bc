"""Logs changes of the metadata for operators: created and deleted topics, partitions without a leader, and unclean
elections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.broker.telemetry.pace import PacedLines
from headrace.metadata.image import LEADER_RECOVERING

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import LogSink
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage, Topic

NO_LEADER: Final = -1
LINES_MAX: Final = 20
"""Bound on the topics of one change that are named; one line counts the others."""

ALONE: Final = "the only replica was not stopped cleanly, and may not have synced its last records"
UNCLEAN: Final = "no replica that was in sync was there, so another one leads"


class ClusterEvents:
    """Logs each topic of an image's changes that was created, deleted, or lost a leader.

    Also counts unclean elections, as Kafka's controllers do: every node counts those it learns of while it runs.
    """

    def __init__(self, log: LogSink, monotonic: Callable[[], float], metrics: Registry) -> None:
        self._log = log
        self._lines = PacedLines(log, monotonic)
        """Log for lines that clients cause, who create and delete topics at any rate."""
        self._unclean = metrics.counter("controller.unclean_elections")

    def changed(self, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        """Logs one change of the image."""
        made: list[Topic] = []
        leaderless: dict[str, int] = {}
        for topic_id, change in delta.topics.items():
            topic = new.topics.by_id(topic_id)
            if topic is None:
                continue
            if change.old is None:
                made.append(topic)
            unclean = [
                topic.partitions[index]
                for index in change.changed
                if topic.partitions[index].leader_recovery_state == LEADER_RECOVERING and _had_all(change.old, index)
            ]
            if unclean:
                self._unclean.add(len(unclean))
                replicas = min(len(partition.replicas) for partition in unclean)
                self._log.warning(
                    "leaders may lack records",
                    topic=topic.name,
                    partitions=len(unclean),
                    replicas=replicas,
                    why=ALONE if replicas == 1 else UNCLEAN,
                )
            lost = sum(
                topic.partitions[index].leader == NO_LEADER and _had_leader(change.old, index)
                for index in sorted(change.changed)
            )
            if lost:
                leaderless[topic.name] = lost
        for topic in made[:LINES_MAX]:
            self._lines.info(topic.name, "topic created", topic=topic.name, partitions=len(topic.partitions))
        self._more("topics created", len(made))
        deleted = [topic.name for topic in delta.deleted_topics.values()]
        for name in deleted[:LINES_MAX]:
            self._lines.info(name, "topic deleted", topic=name)
        self._more("topics deleted", len(deleted))
        for name, count in list(leaderless.items())[:LINES_MAX]:
            self._log.info("partitions without leader", topic=name, partitions=count)
        self._more("topics without leader", len(leaderless))

    def _more(self, event: str, count: int) -> None:
        if count > LINES_MAX:
            self._lines.info(event, event, count=count, named=LINES_MAX)


def _had_leader(old: Topic | None, index: int) -> bool:
    return old is not None and index < len(old.partitions) and old.partitions[index].leader != NO_LEADER


def _had_all(old: Topic | None, index: int) -> bool:
    """Returns whether the partition existed, with a leader that had all records."""
    return (
        old is not None
        and index < len(old.partitions)
        and old.partitions[index].leader_recovery_state != LEADER_RECOVERING
    )
