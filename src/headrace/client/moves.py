"""Where replicas are and who leads: moves of partitions, elections of leaders, brokers that are forgotten.

Functions over a `Client`, one a task, as in `admin`. Every broker takes these and has the controller decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from headrace.client.conversation import Steps
from headrace.client.errors import BrokerError, ProtocolMismatchError
from headrace.client.metadata import TopicPartition
from headrace.client.operations import operation
from headrace.client.routing import Router
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

Outcomes = dict[TopicPartition, BrokerError | None]
"""For each partition why it was refused, or None."""


class Election(IntEnum):
    """Who is to lead: the preferred replica, or, where no replica in sync is left, one that may lack records."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Move:
    """A partition on the move: all its replicas, and which of them come and go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@operation
def list_moves(router: Router, partitions: Iterable[TopicPartition] | None = None) -> Steps[dict[TopicPartition, Move]]:
    """The moves under way, of these partitions or of all. Raises `BrokerError`."""
    from headrace.wire.messages.k46_list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        ListPartitionReassignmentsTopics,
    )

    wanted = None
    if partitions is not None:
        wanted = [ListPartitionReassignmentsTopics(name, indexes) for name, indexes in _by_topic(partitions).items()]
    request = ListPartitionReassignmentsRequest(timeout_ms=_timeout_ms(router), topics=wanted)
    response = yield from router.checked(
        request, ListPartitionReassignmentsResponse, lambda r: (r.error_code, r.error_message), "the moves under way"
    )
    return {
        (topic.name, p.partition_index): Move(tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas))
        for topic in response.topics
        for p in topic.partitions
    }


@operation
def move_partitions(router: Router, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Steps[Outcomes]:
    """Begin to move partitions to other replicas, the preferred leader first; None calls off a move under way.

    The outcome has the refused ones; the others have begun. Raises `BrokerError` where all are refused.
    """
    from headrace.wire.messages.k45_alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ReassignablePartition,
        ReassignableTopic,
    )

    topics: dict[str, ReassignableTopic] = {}
    for (name, index), replicas in sorted(targets.items()):
        topic = topics.setdefault(name, ReassignableTopic(name=name))
        topic.partitions.append(ReassignablePartition(index, None if replicas is None else list(replicas)))
    response = yield from router.checked(
        AlterPartitionReassignmentsRequest(timeout_ms=_timeout_ms(router), topics=list(topics.values())),
        AlterPartitionReassignmentsResponse,
        lambda r: (r.error_code, r.error_message),
        "the moves",
    )
    return {
        (topic.name, p.partition_index): _refusal(topic.name, p.partition_index, p.error_code, p.error_message)
        for topic in response.responses
        for p in topic.partitions
    }


@operation
def elect_leaders(router: Router, kind: Election, partitions: Iterable[TopicPartition]) -> Steps[Outcomes]:
    """Elect leaders. One that leads already is no error. Raises `BrokerError` where all are refused, and
    `ProtocolMismatchError` where the broker knows no unclean elections."""
    from headrace.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

    if kind is Election.UNCLEAN and not (yield from router.supports(ApiKey.ELECT_LEADERS, 1)):
        raise ProtocolMismatchError("the broker knows no unclean elections: it is older than Kafka 2.4")
    wanted = [TopicPartitions(name, indexes) for name, indexes in _by_topic(partitions).items()]
    response = yield from router.checked(
        ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=_timeout_ms(router)),
        ElectLeadersResponse,
        lambda r: (r.error_code, None),
        "the elections",
    )
    done: Outcomes = {}
    for topic in response.replica_election_results:
        for p in topic.partition_result:
            needed = p.error_code != ErrorCode.ELECTION_NOT_NEEDED
            code = p.error_code if needed else ErrorCode.NONE
            done[topic.topic, p.partition_id] = _refusal(topic.topic, p.partition_id, code, p.error_message)
    return done


@operation
def unregister_broker(router: Router, broker: int) -> Steps[None]:
    """Make the cluster forget a broker. Raises `BrokerError`, BROKER_ID_NOT_REGISTERED for one."""
    from headrace.wire.messages.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

    yield from router.checked(
        UnregisterBrokerRequest(broker_id=broker),
        UnregisterBrokerResponse,
        lambda r: (r.error_code, r.error_message or None),
        f"broker {broker}",
    )


def _refusal(topic: str, partition: int, code: int, message: str | None) -> BrokerError | None:
    return BrokerError(code, f"topic {topic} partition {partition}", message or None) if code else None


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        topics.setdefault(name, []).append(index)
    return topics


def _timeout_ms(router: Router) -> int:
    return int(router.timeout_s * 1000)
