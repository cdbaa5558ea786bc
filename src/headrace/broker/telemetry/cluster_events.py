"""What an operator wants to read back of the metadata: topics made and deleted, partitions without a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.env import LogSink
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage, Topic

NO_LEADER: Final = -1
LINES_MAX: Final = 20
"""Topics of one change that are named; of the others a line says how many they are."""


class ClusterEvents:
    """Follows the image, and writes a line for each topic that came or went, or lost its leader."""

    def __init__(self, log: LogSink) -> None:
        self._log = log

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
            lost = sum(
                topic.partitions[index].leader == NO_LEADER and _had_leader(change.old, index)
                for index in sorted(change.changed)
            )
            if lost:
                leaderless[topic.name] = lost
        for topic in made[:LINES_MAX]:
            self._log.info("topic created", topic=topic.name, partitions=len(topic.partitions))
        self._more("topics created", len(made))
        deleted = [topic.name for topic in delta.deleted_topics.values()]
        for name in deleted[:LINES_MAX]:
            self._log.info("topic deleted", topic=name)
        self._more("topics deleted", len(deleted))
        for name, count in list(leaderless.items())[:LINES_MAX]:
            self._log.info("partitions without leader", topic=name, partitions=count)
        self._more("topics without leader", len(leaderless))

    def _more(self, event: str, count: int) -> None:
        if count > LINES_MAX:
            self._log.info(event, count=count, named=LINES_MAX)


def _had_leader(old: Topic | None, index: int) -> bool:
    return old is not None and index < len(old.partitions) and old.partitions[index].leader != NO_LEADER
