"""Publishes the broker's own log lines and metrics as JSON records in its own topics (the setting `self.topics`).

Records are appended as clients' batches are. A line that is logged during that append goes only to standard error:
publishing it would log the next one, for ever. Lines that cannot be written now wait in a bounded queue, and no request
waits for them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.telemetry.log_lines import Line, LogLines
from headrace.broker.telemetry.request_errors import FAMILY
from headrace.env.node import settle
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig
from headrace.wire.records import Compression, Record, build_batch

if TYPE_CHECKING:
    from headrace.broker.partitions.replica_manager import ReplicaManager
    from headrace.broker.quorum.port.topics import Topics
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env import Node, Timer
    from headrace.metadata.image import ClusterImage

LOGS_TOPIC: Final = "headrace.logs"
METRICS_TOPIC: Final = "headrace.metrics"

TOPIC_SETTINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * 24 * 3600 * 1000),
    "retention.bytes": str(128 * 1024 * 1024),
    "segment.bytes": str(16 * 1024 * 1024),
}
"""Settings with which the topics are created: retention of a week, and of at most 128 MiB beside a segment.

To change them, alter the topics, or create them first.
"""

TICK_S: Final = 0.5
"""Time that a line waits for others to share its batch."""
RETRY_S: Final = 5.0
"""Pause after a topic could not be created or written."""
BATCH_LINES_MAX: Final = 500
BATCH_BYTES_MAX: Final = 256 * 1024
"""Bounds on the lines and bytes published in one turn of the event loop: about a millisecond."""

PASSING: Final = frozenset(
    {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""Errors that do not concern the lines themselves: the append is retried."""

_API_NAMES: Final = frozenset(api.name for api in APIS.values())


class SelfTopics:
    """Publishes the log lines and metrics of one broker. It collects the lines of the whole process from its
    construction until it is stopped or closed."""

    def __init__(
        self,
        node: Node,
        metrics: Registry,
        replicas: ReplicaManager,
        *,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        topics: Callable[[], Topics],
    ) -> None:
        """`config` returns the settings in force, `image` the cluster's metadata, and `topics` the port that creates
        topics; the last two exist once the broker has started."""
        self._node = node
        self._metrics = metrics
        self._replicas = replicas
        self._config = config
        self._image = image
        self._topics = topics
        self._node_id = config().node_id
        self._log = node.logger("self_topics")
        self._service = f"headrace-{self._node_id}"
        self._key = self._service.encode()
        self._interval_s = config().self_topics_metrics_interval_ms / 1000
        self._published = metrics.counter("self_topics.records")
        self._refused = metrics.counter("self_topics.refused")
        self.lines = LogLines(self._service, node.clock.now_ms, metrics.counter("self_topics.lines_dropped"))
        metrics.gauge("self_topics.lines_queued", lambda: len(self.lines))
        self._owner = node.owner("self topics")
        self._timer: Timer | None = None
        self._creation: asyncio.Task[None] | None = None
        self._create_at = self._write_at = self._metrics_at = 0.0
        self._complained: set[str] = set()
        """Topics whose failed creation has been logged."""
        self._totals: dict[str, tuple[int, int]] = {}
        """Published requests and errors of each API so far."""
        logging.getLogger().addHandler(self.lines)

    # --- life

    async def start(self) -> None:
        """Creates missing topics, and begins to publish; failures are retried."""
        await self._create()
        await self._ready()
        self._tick()

    async def stop(self) -> None:
        """Publishes everything left, if possible now, and then nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._creation is not None:
            await asyncio.wait([self._creation])
        self.close()
        await self._ready()
        while self._publish_lines():
            pass
        self._publish_metrics()

    def close(self) -> None:
        """Stops collecting lines."""
        logging.getLogger().removeHandler(self.lines)

    def _tick(self) -> None:
        now = self._node.clock.monotonic()
        if self._missing() and now >= self._create_at:
            self._creation = self._owner.spawn(self._create())
        goes_on = now >= self._write_at and self._publish_lines()
        if now >= self._metrics_at:
            self._metrics_at = now + self._interval_s
            self._publish_metrics()
        self._timer = self._owner.later(0 if goes_on else TICK_S, self._tick)

    # --- the topics

    def _missing(self) -> list[str]:
        topics = self._image().topics
        return [name for name in (LOGS_TOPIC, METRICS_TOPIC) if topics.by_name(name) is None]

    async def _ready(self) -> None:
        """Returns when the topics take records, or will not."""
        for topic in (LOGS_TOPIC, METRICS_TOPIC):
            done = self._node.future()
            key = (topic, self._partition(topic))
            self._replicas.when_ready(key, partial(settle, done), for_appends=True)
            await done

    async def _create(self) -> None:
        self._create_at = self._node.clock.monotonic() + RETRY_S
        brokers = max(1, len(self._image().online_brokers()))
        replicas = min(self._config().default_replication_factor, brokers)
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in TOPIC_SETTINGS.items()]
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=replicas, configs=configs)
            for name in self._missing()
        ]
        try:
            codes = await self._topics().create(topics) if topics else {}
        except ControllerError:
            return  # the controller's port has logged it
        for name, code in codes.items():
            if code is not ErrorCode.NONE and name not in self._complained:
                self._complained.add(name)
                event = "topic cannot be created, and nothing is published there"
                self._log.warning(event, topic=name, error=code.name)

    # --- publishing

    def _publish_lines(self) -> bool:
        """Publishes a batch of lines; returns whether more could follow at once."""
        lines = self.lines.take(BATCH_LINES_MAX, BATCH_BYTES_MAX)
        if not lines:
            return False
        error = self._append(LOGS_TOPIC, lines)
        if error in PASSING:
            self.lines.put_back(lines)
            self._write_at = self._node.clock.monotonic() + RETRY_S
            return False
        return len(self.lines) > 0

    def _publish_metrics(self) -> None:
        """Publishes every gauge, every counter that has counted, and the requests of each API since the last time.

        They are never queued: if an append fails, the next one includes its numbers.
        """
        now_ms = self._node.clock.now_ms()
        statistics = self._metrics.statistics()
        counters = {name: value for name, value in statistics.counters.items() if value}
        metrics: list[Line] = []
        for kind, values in (("counter", counters), ("gauge", statistics.gauges)):
            for name, value in values.items():
                fields = {"service": self._service, "time": now_ms, **named(name), "kind": kind, "value": value}
                metrics.append(Line(now_ms, json.dumps(fields).encode()))
        totals = requests_of(counters)
        for api, (requests, errors) in totals.items():
            requests_before, errors_before = self._totals.get(api, (0, 0))
            more = {"requests": requests - requests_before, "errors": errors - errors_before}
            if any(more.values()):
                fields = {"service": self._service, "time": now_ms, "name": "requests", "api": api, "kind": "interval"}
                metrics.append(Line(now_ms, json.dumps(fields | more).encode()))
        error = self._append(METRICS_TOPIC, metrics)
        if error is ErrorCode.NONE:
            self._totals = totals
        elif error in PASSING:
            self._refused.value += len(metrics)

    def _append(self, topic: str, lines: Sequence[Line]) -> ErrorCode:
        """Appends one batch to the first partition that this broker leads. Counts lines that are refused for good."""
        batch = build_batch(
            [Record(0, line.time_ms, self._key, line.value) for line in lines], compression=Compression.LZ4
        )
        with self.lines.muted():
            replica = self._replicas.find(topic, self._partition(topic))
            if isinstance(replica, ErrorCode):
                return replica
            result = self._replicas.appender.append_many(replica, (batch,), self._node.clock.now_ms())[0]
        error = ErrorCode(result.error)
        if error is ErrorCode.NONE:
            self._published.value += len(lines)
        elif error not in PASSING:
            self._refused.value += len(lines)
        return error

    def _partition(self, topic: str) -> int:
        known = self._image().topics.by_name(topic)
        partitions = known.partitions if known is not None else ()
        return next((each.index for each in partitions if each.leader == self._node_id), 0)


def named(name: str) -> dict[str, Any]:
    """Returns a metric's name and labels: `requests.fetch` counts requests of one API."""
    family, _, label = name.rpartition(".")
    errors, _, api = family.rpartition(".")
    if errors == FAMILY:
        return {"name": errors, "api": api, "error": label}
    return {"name": family, "api": label} if family == "requests" and label in _API_NAMES else {"name": name}


def requests_of(counters: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Returns the requests and the errors in their answers, by API."""
    found: dict[str, tuple[int, int]] = {}
    for metric, count in counters.items():
        labels = named(metric)
        if "api" in labels:
            requests, errors = found.get(labels["api"], (0, 0))
            failed = "error" in labels
            found[labels["api"]] = (requests + count * (not failed), errors + count * failed)
    return found
