"""What an operator wants to read back of the metadata: topics made and deleted, partitions without a leader, and
with one that may lack records."""

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
"""Topics of one change that are named; of the others a line says how many they are."""

ALONE: Final = "the only replica was not stopped cleanly, and may not have synced its last records"
UNCLEAN: Final = "no replica that was in sync was there, so another one leads"


class ClusterEvents:
    """Follows the image, and writes a line for each topic that came or went, or lost its leader.

    Unclean elections are counted too, as Kafka's controllers do: each those that it hears of while it runs.
    """

    def __init__(self, log: LogSink, monotonic: Callable[[], float], metrics: Registry) -> None:
        self._log = log
        self._lines = PacedLines(log, monotonic)
        """For what clients do: they make and delete topics as fast as they may."""
        self._unclean = metrics.counter("controller.unclean_elections")

    def changed(self, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        """Tells of one change."""
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
    """Whether the partition was there, and its leader not in doubt."""
    return (
        old is not None
        and index < len(old.partitions)
        and old.partitions[index].leader_recovery_state != LEADER_RECOVERING
    )
