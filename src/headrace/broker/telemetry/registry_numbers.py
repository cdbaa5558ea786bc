"""Exposes the registry's counters and gauges as families: under Kafka's names if it has them, else under ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from headrace.broker.telemetry.families import Family, Labels, counter, counters, gauge, histograms
from headrace.broker.telemetry.metrics import Registry, Statistics
from headrace.broker.telemetry.request_errors import FAMILY
from headrace.broker.telemetry.request_times import RequestTimes
from headrace.wire.apis import APIS, ApiKey

REQUESTS: Final = "kafka_network_requestmetrics_"
TOPIC: Final = "kafka_server_brokertopicmetrics_"

KAFKA_COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    "controller.unclean_elections": (
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Elections of leaders that may lack acknowledged records, as far as this node has heard of them.",
    ),
    "replicas.fetched_bytes": (
        "kafka_server_brokertopicmetrics_replicationbytesin",
        "Bytes of batches that this broker has copied from leaders.",
    ),
    "replicas.sent_bytes": (
        "kafka_server_brokertopicmetrics_replicationbytesout",
        "Bytes of batches that followers have fetched.",
    ),
    "replicas.isr_shrinks": (
        "kafka_server_replicamanager_isrshrinks",
        "Changes by which this leader had a follower taken out of an in-sync set.",
    ),
    "replicas.isr_expands": (
        "kafka_server_replicamanager_isrexpands",
        "Changes by which this leader had a follower taken into an in-sync set.",
    ),
    "replicas.isr_failed_updates": (
        "kafka_server_replicamanager_failedisrupdates",
        "Changes of an in-sync set that the controller refused.",
    ),
}
KAFKA_GAUGES: Final[Mapping[str, tuple[str, str]]] = {
    "connections.open": (
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections of clients and of other nodes.",
    ),
    "log.directories_offline": (
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that have failed.",
    ),
    "replicas.offline": (
        "kafka_server_replicamanager_offlinereplicacount",
        "Partitions that this broker should serve and cannot: their disk failed, or a defect.",
    ),
}
ELSEWHERE: Final = frozenset({"produce.bytes", "produce.messages", "fetch.bytes", "replicas.online"})
"""Metrics that `partition_numbers` shows instead."""

_NO_NAME: Final = re.compile(r"[^a-z0-9]+")


def api_name(name: str) -> str:
    """Returns an API's name in Kafka's metrics: `list_offsets` is ListOffsets."""
    return "".join(part.capitalize() for part in name.lower().split("_"))


def own_name(name: str) -> str:
    """Returns a metric's name in Prometheus: `log.cleaner.uncleanable` is headrace_log_cleaner_uncleanable."""
    return "headrace_" + _NO_NAME.sub("_", name.lower())


class RegistryNumbers:
    """The section of the metrics page with the registry's content."""

    def __init__(self, metrics: Registry, times: Callable[[], RequestTimes | None], *, is_broker: bool) -> None:
        self._metrics = metrics
        self._times = times
        self._is_broker = is_broker

    def families(self) -> Iterator[Family | None]:
        """Yields the families of the section."""
        statistics = self._metrics.statistics()
        yield None
        requests: list[tuple[Labels, float]] = []
        errors: list[tuple[Labels, float]] = []
        others: list[Family] = []
        for name, value in statistics.counters.items():
            family, _, label = name.rpartition(".")
            errors_of, _, api = family.rpartition(".")
            if errors_of == FAMILY:
                errors.append(({"request": api_name(api), "error": label}, value))
            elif family == "requests" and label in _API_NAMES:
                requests.append(({"request": api_name(label)}, value))
            elif name in KAFKA_COUNTERS:
                others.append(counter(*KAFKA_COUNTERS[name], value))
            elif name not in ELSEWHERE:
                others.append(counter(own_name(name), f"The counter {name}.", value))
        yield counters(REQUESTS + "requests", "Requests by API.", requests)
        yield counters(REQUESTS + "errors", "Errors in answers, by API and error; an answer may have several.", errors)
        if self._is_broker:
            yield from self._of_topics(statistics)
        yield from self._times_of_requests()
        yield from others
        for name, level in statistics.gauges.items():
            if name in KAFKA_GAUGES:
                yield gauge(*KAFKA_GAUGES[name], level)
            elif name not in ELSEWHERE:
                yield gauge(own_name(name), f"The gauge {name}.", level)

    def _of_topics(self, statistics: Statistics) -> Iterator[Family]:
        for key in (ApiKey.PRODUCE, ApiKey.FETCH):
            name = APIS[key].name
            kind = api_name(name).lower()
            total = statistics.counters.get(f"requests.{name}", 0)
            prefix = f"{FAMILY}.{name}."
            failed = sum([count for each, count in statistics.counters.items() if each.startswith(prefix)])
            yield counter(f"{TOPIC}total{kind}requests", f"{api_name(name)} requests.", total)
            yield counter(
                f"{TOPIC}failed{kind}requests", f"Partitions that were refused in {api_name(name)} requests.", failed
            )

    def _times_of_requests(self) -> Iterator[Family]:
        times = self._times()
        if times is None:
            return
        yield histograms(
            REQUESTS + "totaltimems",
            "Time from the arrival of a request to its answer, by API, in milliseconds.",
            [({"request": api_name(APIS[key].name)}, each) for key, each in sorted(times.by_key.items())],
            unit=1000,
        )


_API_NAMES: Final = frozenset(api.name for api in APIS.values())
