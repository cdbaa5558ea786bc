"""Metrics of the partitions that a broker leads: in-sync replicas, lag of followers, and traffic by topic.

Requests count only bytes, by replica. All other numbers are computed when a page is rendered, some partitions at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from headrace.broker.telemetry.families import NO_LABELS, Family, Labels, counters, gauge, gauges

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Registry
    from headrace.replicas.partition import PartitionState

PARTITIONS_AT_ONCE: Final = 64
"""Replicas handled between two yields: some 0.2 ms."""
TOPIC: Final = "kafka_server_brokertopicmetrics_"
REPLICAS: Final = "kafka_server_replicamanager_"


class LedReplica(Protocol):
    """The parts of a replica led by this broker that metrics read."""

    topic: str
    index: int
    state: PartitionState
    log: Any
    """Log of the replica, with `end_offset`, `log_start_offset` and the setting `config.min_insync_replicas`."""
    bytes_in: int
    bytes_out: int


class InSync(NamedTuple):
    """The state of a partition's in-sync set."""

    is_whole: bool
    """Whether all replicas are in sync."""
    is_under: bool
    """Whether fewer than min.insync.replicas are in sync, so that acks=all is refused."""
    is_at: bool
    """Whether exactly min.insync.replicas are in sync, so that one more failure has acks=all refused."""


def in_sync(replica: LedReplica) -> InSync:
    """Returns the state of a partition's in-sync set, as its leader sees it."""
    count, all_of_them = len(replica.state.isr), len(replica.state.replicas)
    least = min(replica.log.config.min_insync_replicas, all_of_them)
    return InSync(count >= all_of_them, count < least, count == least < all_of_them)


class Followed:
    """Counts of one broker that follows partitions of this one."""

    __slots__ = ("lag_max", "lag_sum", "out_of_sync", "partitions")

    def __init__(self) -> None:
        self.partitions = self.out_of_sync = self.lag_sum = self.lag_max = 0

    def add(self, log_end: int, follower_end: int, is_in_sync: bool) -> None:
        """Adds one partition: the end of its leader's log, and the least end of the follower's."""
        lag = max(0, log_end - follower_end)
        self.partitions += 1
        self.out_of_sync += not is_in_sync
        self.lag_sum += lag
        self.lag_max = max(self.lag_max, lag)


class TopicNumbers:
    """Counts of one topic since this process began to lead partitions of it."""

    __slots__ = ("_ends", "bytes_in", "bytes_out", "messages", "partitions", "records")

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.messages = 0
        self.partitions = self.records = 0
        self._ends: dict[int, int] = {}

    def add(self, replica: LedReplica) -> None:
        """Adds a replica's counts since the last page. Records from before this broker led do not count."""
        index, log = replica.index, replica.log
        end_offset = log.end_offset
        begin = max(self._ends.get(index, 0), replica.state.epoch_start)
        self._ends[index] = end_offset
        self.partitions += 1
        self.records += end_offset - log.log_start_offset
        self.messages += max(0, end_offset - begin)
        self.bytes_in += replica.bytes_in
        self.bytes_out += replica.bytes_out
        replica.bytes_in = replica.bytes_out = 0


class PartitionNumbers:
    """The section of the metrics page about led partitions, with its state between pages."""

    def __init__(self, led: Callable[[], Iterable[LedReplica]], topics_max: int, metrics: Registry) -> None:
        """`led` returns the replicas that this broker leads; `topics_max` topics have series of their own: the first
        ones seen keep them until they are gone. The totals are counters of `metrics`."""
        self._bytes_in = metrics.counter("produce.bytes")
        self._bytes_out = metrics.counter("fetch.bytes")
        self._messages = metrics.counter("produce.messages")
        self._led = led
        self._topics_max = topics_max
        self._topics: dict[str, TopicNumbers] = {}
        self._reset()

    def _reset(self) -> None:
        self._leaders = self._under_replicated = self._under_min = self._at_min = 0
        self._followed: dict[int, Followed] = {}
        self._others: dict[str, None] = {}

    # --- adding up

    def families(self) -> Iterator[Family | None]:
        """Yields the families of the section."""
        self._reset()
        for numbers in self._topics.values():
            numbers.partitions = numbers.records = 0
        for count, replica in enumerate(list(self._led())):
            self._look_at(replica)
            if count % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                yield None
        for name in [name for name, numbers in self._topics.items() if not numbers.partitions]:
            del self._topics[name]  # this broker no longer leads any of its partitions
        yield from self._totals()
        yield from self._by_follower()
        yield from self._by_topic()

    def _look_at(self, replica: LedReplica) -> None:
        state, log = replica.state, replica.log
        self._leaders += 1
        found = in_sync(replica)
        self._under_replicated += not found.is_whole
        self._under_min += found.is_under
        self._at_min += found.is_at
        if state.followers:
            for node_id, follower in state.followers.items():
                followed = self._followed.get(node_id)
                if followed is None:
                    followed = self._followed[node_id] = Followed()
                is_in_sync = node_id in state.isr
                # A new leader does not know its followers' ends yet: in-sync replicas have the committed part, and no
                # replica lacks records before the start of the log.
                known = state.high_watermark if is_in_sync else 0
                followed.add(state.log_end, max(follower.log_end, known, log.log_start_offset), is_in_sync)
        self._add_to_topic(replica)

    def _add_to_topic(self, replica: LedReplica) -> None:
        numbers = self._topics.get(replica.topic)
        if numbers is None:
            if len(self._topics) >= self._topics_max:
                self._others[replica.topic] = None
                return
            numbers = self._topics[replica.topic] = TopicNumbers()
        numbers.add(replica)

    # --- families

    def _totals(self) -> Iterator[Family]:
        yield gauge(REPLICAS + "leadercount", "Partitions that this broker leads.", self._leaders)
        yield gauge(
            REPLICAS + "underreplicatedpartitions",
            "Partitions that this broker leads and that have replicas out of sync.",
            self._under_replicated,
        )
        yield gauge(
            REPLICAS + "underminisrpartitioncount",
            "Partitions that this broker leads and that refuse acks=all: fewer than min.insync.replicas are in sync.",
            self._under_min,
        )
        yield gauge(
            REPLICAS + "atminisrpartitioncount",
            "Partitions that this broker leads and that refuse acks=all if one more replica fails.",
            self._at_min,
        )

    def _by_follower(self) -> Iterator[Family]:
        followed: list[tuple[Labels, Followed]] = [({"follower": str(i)}, each) for i, each in self._followed.items()]
        yield gauges(
            "headrace_follower_lag_max_messages",
            "Messages that a follower lacks of the partition in which it lacks most.",
            [(labels, each.lag_max) for labels, each in followed],
        )
        yield gauges(
            "headrace_follower_lag_messages",
            "Messages that a follower lacks of all partitions that this broker leads.",
            [(labels, each.lag_sum) for labels, each in followed],
        )
        yield gauges(
            "headrace_follower_partitions",
            "Partitions that a follower has from this leader.",
            [(labels, each.partitions) for labels, each in followed],
        )
        yield gauges(
            "headrace_follower_partitions_out_of_sync",
            "Partitions in which a follower is not in sync with this leader.",
            [(labels, each.out_of_sync) for labels, each in followed],
        )

    def _by_topic(self) -> Iterator[Family]:
        topics: list[tuple[Labels, TopicNumbers]] = [({"topic": name}, each) for name, each in self._topics.items()]
        yield counters(
            TOPIC + "bytesin",
            "Bytes of batches appended, of all topics and by topic.",
            [(NO_LABELS, self._bytes_in.value), *((labels, each.bytes_in) for labels, each in topics)],
        )
        yield counters(
            TOPIC + "bytesout",
            "Bytes of batches fetched, of all topics and by topic.",
            [(NO_LABELS, self._bytes_out.value), *((labels, each.bytes_out) for labels, each in topics)],
        )
        yield counters(
            TOPIC + "messagesin",
            "Messages appended, of all topics and by topic.",
            [(NO_LABELS, self._messages.value), *((labels, each.messages) for labels, each in topics)],
        )
        yield gauges(
            "headrace_topic_offsets",
            "Offsets from the start to the end of the partitions that this broker leads.",
            [(labels, each.records) for labels, each in topics],
        )
        yield gauges(
            "headrace_topic_leaders",
            "Partitions of a topic that this broker leads.",
            [(labels, each.partitions) for labels, each in topics],
        )
        yield gauge(
            "headrace_topics_without_series",
            "Topics beyond metrics.topics.max, which the totals alone count.",
            len(self._others),
        )
