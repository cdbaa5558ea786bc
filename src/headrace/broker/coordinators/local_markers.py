"""Writes the ends of transactions into the partitions that this broker leads.

It serves this broker's transaction coordinator, and other brokers' through WriteTxnMarkers. A marker that is in flight
is not written a second time. On `__consumer_offsets` the group coordinator writes it, in order with its own records
(KAFKA-17507).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from headrace.env.completion import Completion, when_known
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import build_marker

if TYPE_CHECKING:
    from headrace.broker.coordinators.door import LedPartitions
    from headrace.broker.coordinators.group_coordinator import GroupCoordinator
    from headrace.env.node import Node
    from headrace.log.producers import Origin
    from headrace.machine.outcome import Ending
    from headrace.transactions.asks import TopicPartition

PartitionEnding: TypeAlias = "tuple[TopicPartition, Ending]"
"""The end of a transaction in a partition that this broker leads."""

_NOT_COORDINATED_HERE: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors of a group coordinator that a transaction coordinator does not know."""


class LocalMarkers:
    """The markers that are written here and not yet committed, bounded by the appends that wait for their replicas."""

    def __init__(self, node: Node, partitions: LedPartitions, groups: GroupCoordinator) -> None:
        self._clock = node.clock
        self._completions = node.completions
        self._partitions = partitions
        self._groups = groups
        self._in_flight: dict[PartitionEnding, list[Completion[ErrorCode]]] = {}

    def __len__(self) -> int:
        """Returns the number of markers in flight."""
        return len(self._in_flight)

    def write(self, markers: Sequence[PartitionEnding]) -> list[Completion[ErrorCode]]:
        """Writes markers, those of one partition in one append. Returns a completion for each: NONE when the marker is
        committed, or an error of WriteTxnMarkers. It is done already if the result is known."""
        appends: dict[tuple[TopicPartition, Origin], list[Ending]] = {}
        answers: list[Completion[ErrorCode]] = []
        for marker in markers:
            answer: Completion[ErrorCode] = Completion(self._completions)
            answers.append(answer)
            partition, ending = marker
            if (waiting := self._in_flight.get(marker)) is not None:
                waiting.append(answer)
            elif not self._partitions.holds(partition):
                answer.complete(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                self._in_flight[marker] = [answer]
                if partition[0] == OFFSETS_TOPIC:
                    commit = self._groups.end_transaction(partition[1], ending, _error_of_a_partition)
                    when_known(commit, partial(self._ended, marker))
                else:
                    appends.setdefault((partition, ending.origin), []).append(ending)
        now_ms = self._clock.now_ms()
        for (partition, origin), endings in appends.items():
            batches = [build_marker(ending.marker, now_ms) for ending in endings]
            commits = self._partitions.append_internal(*partition, batches, origin)
            for ending, known in zip(endings, commits, strict=True):
                when_known(known, partial(self._ended, (partition, ending)))
        return answers

    def _ended(self, marker: PartitionEnding, error: ErrorCode) -> None:
        for answer in self._in_flight.pop(marker):
            answer.complete(error)


def _error_of_a_partition(error: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _NOT_COORDINATED_HERE else error
