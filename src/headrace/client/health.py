"""Whether a cluster is well: what a look at its metadata, quorum and log directories says. It only reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headrace.client import admin, describe, moves
from headrace.client.conversation import Steps
from headrace.client.errors import (
    BrokerError,
    ConnectionLostError,
    ProtocolMismatchError,
    TimedOutError,
    UnreachableError,
)
from headrace.client.metadata import Node, PartitionInfo, TopicInfo, TopicPartition
from headrace.client.operations import operation
from headrace.client.routing import Router
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

BEHIND_MS = 10_000
"""A voter that has not been caught up for so long is behind: an election may go wrong without it."""

ANSWER_S = 3.0
"""How long a broker may take to answer for itself."""

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """A broker: the partitions that it leads, those that it leads by preference, and the replicas that it holds."""

    node: Node
    fenced: bool
    leaders: int
    preferred: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Health:
    """A cluster at one moment. Partitions are sorted by name and number.

    `below_min_isr` take no writes with acks=all. `not_preferred` are led by another replica than the first. `behind`
    are voters that have not caught up with the metadata for a while, `silent` brokers that do not answer. `quorum` is
    None where the broker does not tell.
    """

    cluster_id: str | None
    partitions: int
    offline: tuple[TopicPartition, ...]
    under_replicated: tuple[TopicPartition, ...]
    below_min_isr: tuple[TopicPartition, ...]
    moving: tuple[TopicPartition, ...]
    not_preferred: tuple[TopicPartition, ...]
    brokers: tuple[BrokerHealth, ...]
    quorum: describe.QuorumDescription | None
    behind: tuple[int, ...]
    silent: tuple[int, ...]
    failed_dirs: tuple[tuple[int, str], ...]

    @property
    def healthy(self) -> bool:
        """Every partition led and fully replicated, every broker and directory there, the quorum whole.

        Moves under way and leaders that are not the preferred ones are no illness.
        """
        ill = (self.offline, self.under_replicated, self.below_min_isr, self.behind, self.silent, self.failed_dirs)
        return not any(ill) and not any(broker.fenced for broker in self.brokers)

    @property
    def skew(self) -> float:
        """How far the busiest leader is above the mean of the brokers that are up: 0.5 is half as much again."""
        counts = [broker.leaders for broker in self.brokers if not broker.fenced]
        return max(counts) * len(counts) / sum(counts) - 1 if sum(counts) else 0.0


@operation
def examine(router: Router) -> Steps[Health]:
    """Looks at everything once. Raises `ClientError`s of the calls that it takes."""
    found = yield from describe.describe_cluster.steps(router)
    topics = yield from router.topics()
    under_way: dict[TopicPartition, moves.Move] = {}
    if (yield from router.supports(ApiKey.LIST_PARTITION_REASSIGNMENTS)):
        under_way = yield from moves.list_moves.steps(router)
    quorum = yield from _quorum(router)
    partitions = [p for topic in topics for p in topic.partitions]
    at = {(p.topic, p.index): p for p in partitions}
    adding = {key: len(move.adding) for key, move in under_way.items()}
    up = {broker.id for broker in found.brokers} - found.fenced
    silent, failed_dirs = yield from _directories(router, up)
    return Health(
        cluster_id=found.cluster_id,
        partitions=len(partitions),
        offline=tuple(key for key, p in at.items() if p.leader not in up),
        under_replicated=tuple(key for key, p in at.items() if len(p.isr) < len(p.replicas) - adding.get(key, 0)),
        below_min_isr=(yield from _below_min_isr(router, topics)),
        moving=tuple(sorted(under_way)),
        not_preferred=tuple(key for key, p in at.items() if p.leader in up and p.leader != p.replicas[0]),
        brokers=_brokers(found, partitions),
        quorum=quorum,
        behind=() if quorum is None else voters_behind(quorum),
        silent=silent,
        failed_dirs=failed_dirs,
    )


def voters_behind(quorum: describe.QuorumDescription) -> tuple[int, ...]:
    """The voters that were not caught up for `BEHIND_MS`, by the leader's clock: the newest time that it tells."""
    now_ms = max((max(r.last_caught_up_ms, r.last_fetch_ms) for r in quorum.replicas), default=-1)
    return tuple(
        r.id
        for r in quorum.replicas
        if r.voter and r.id != quorum.leader_id and now_ms - r.last_caught_up_ms > BEHIND_MS
    )


def _brokers(found: describe.ClusterDescription, partitions: list[PartitionInfo]) -> tuple[BrokerHealth, ...]:
    leaders = Counter(p.leader for p in partitions)
    preferred = Counter(p.replicas[0] for p in partitions if p.replicas)
    replicas = Counter(replica for p in partitions for replica in p.replicas)
    return tuple(
        BrokerHealth(b, b.id in found.fenced, leaders[b.id], preferred[b.id], replicas[b.id]) for b in found.brokers
    )


def _below_min_isr(router: Router, topics: list[TopicInfo]) -> Steps[tuple[TopicPartition, ...]]:
    """As Kafka counts: a topic with fewer replicas than its setting needs all that it has."""
    needed = yield from admin.topic_setting.steps(router, [topic.name for topic in topics], MIN_ISR)
    return tuple(
        (p.topic, p.index)
        for topic in topics
        for p in topic.partitions
        if len(p.isr) < min(int(needed.get(topic.name) or 1), len(p.replicas))
    )


def _quorum(router: Router) -> Steps[describe.QuorumDescription | None]:
    try:
        return (yield from describe.describe_quorum.steps(router))
    except ProtocolMismatchError:
        return None
    except BrokerError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise


def _directories(router: Router, up: set[int]) -> Steps[tuple[tuple[int, ...], tuple[tuple[int, str], ...]]]:
    """Which of these brokers do not answer, though the controller has not noticed, and the directories that failed."""
    silent: list[int] = []
    failed: list[tuple[int, str]] = []
    for broker in sorted(up):
        try:
            found = yield from describe.describe_log_dirs.steps(router, [], brokers=[broker], timeout_s=ANSWER_S)
        except (UnreachableError, TimedOutError, ConnectionLostError):
            silent.append(broker)
        else:
            failed += [(broker, each.path) for each in found if each.error != ErrorCode.NONE]
    return tuple(silent), tuple(failed)
