"""The HTTP endpoints of a node: `/metrics` for Prometheus, `/livez` and `/readyz` for probes.

A node without them (`metrics.listener` is -1) has a monitor that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.telemetry.families import Family, Section, gauge, gauges, histograms
from headrace.broker.telemetry.request_times import RequestTimes
from headrace.version import __version__
from headrace.wire.address import address_text

if TYPE_CHECKING:
    from headrace.broker.telemetry.cluster_numbers import QuorumSeen
    from headrace.broker.telemetry.exposition import Exposition
    from headrace.broker.telemetry.loop_lag import LoopLag
    from headrace.broker.telemetry.loop_share import LoopShare
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env import Node, Owner
    from headrace.http.messages import Request, Response
    from headrace.http.server import HttpServer, Secured

SETTING: Final = "metrics.listener"
EXTRA: Final = "pip install 'headrace[metrics]'"
BROKER_STATE: Final = "kafka_server_kafkaserver_brokerstate"
STARTING, RUNNING, ENDING = 1, 3, 7
"""Kafka's broker states."""
IDLE: Final = (
    ("kafka_network_socketserver_networkprocessoravgidle_percent", "reads and answers requests"),
    ("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", "handles them"),
)
"""Kafka's names for the idle share of its threads; here one thread has both tasks. The values are shares, not
percentages."""


class CannotListenForMetrics(OSError):
    """Raised if the address of `metrics.listener` cannot be bound; the text is one line."""


class Monitor:
    """The endpoints of one node. `listen`, `serves`, `ends` and `close` follow its life cycle."""

    def __init__(
        self,
        node: Node,
        config: BrokerConfig,
        metrics: Registry,
        *,
        sections: Callable[[Monitor], Sequence[Section]],
        not_ready: Callable[[], str],
        directories: Sequence[str] = (),
        secured: Callable[[Owner], Secured] | None = None,
    ) -> None:
        """`sections` is called once, and only if the page is served. `not_ready` returns why a started node cannot work
        now, "" if it can. The page shows the free space of `directories`. `secured` reads the TLS keys of the pages,
        and raises ConfigError if it cannot; None: they are served in the clear."""
        self.times: RequestTimes | None = None
        """Receiver of the requests' durations; None if nothing reads them."""
        self.quorum: QuorumSeen | None = None
        """Metadata quorum; None before it is opened."""
        self._node = node
        self._log = node.logger("metrics")
        self._address = config.metrics_address
        self._token = config.metrics_token or ""
        self._secured = secured
        self._is_configured = config.is_given(SETTING)
        self._not_ready = not_ready
        self._directories = directories
        self._failure = ""
        self._state = STARTING
        self._http: HttpServer | None = None
        self._page: Exposition | None = None
        self._lag: LoopLag | None = None
        self._share: LoopShare | None = None
        if self._address is None:
            return
        self._prepare(node, metrics, sections)

    def _prepare(self, node: Node, metrics: Registry, sections: Callable[[Monitor], Sequence[Section]]) -> None:
        from headrace.broker.telemetry.exposition import Exposition, is_installed
        from headrace.broker.telemetry.loop_lag import LoopLag
        from headrace.broker.telemetry.loop_share import LoopShare
        from headrace.http.auth import BearerToken
        from headrace.http.routes import Routes
        from headrace.http.server import HttpServer

        routes = Routes()
        routes.add("GET", "/metrics", self._metrics)
        routes.add("GET", "/livez", self._livez)
        routes.add("GET", "/readyz", self._readyz)
        http = HttpServer(node, routes, authenticator=BearerToken(self._token) if self._token else None)
        self._http = http
        metrics.gauge("http.connections_refused", lambda: http.refused_connections)
        if is_installed():
            self.times = RequestTimes(node.clock.monotonic)
            self._lag = LoopLag(node, self._http.owner)
            self._share = LoopShare(node, self._http.owner)
            all_sections = [self._families, *sections(self)]
            self._page = Exposition(node, self._http.owner, all_sections, self._room)

    @property
    def port(self) -> int | None:
        """Port of the endpoints; None if they are not served."""
        return None if self._http is None else self._http.port

    # --- the life of the node

    def listen(self) -> None:
        """Begins to serve. If the address is taken, raises CannotListenForMetrics if the settings name it, and else
        logs a line. Raises ConfigError if keys for TLS cannot be used."""
        if self._http is None or self._address is None:
            return
        host, port = self._address
        if self._secured is not None:
            self._http.tls = self._secured(self._http.owner)
        try:
            self._http.listen(host, port)
        except OSError as error:
            why = f"{SETTING} cannot have {address_text(host, port)}: {error.strerror or error}"
            if self._is_configured:
                raise CannotListenForMetrics(f"{why}; give another HOST:PORT, or -1") from error
            self._log.warning("metrics are not served", why=why)
            self.close()
            return
        if self._page is not None and self._lag is not None and self._share is not None:
            self._page.load()
            self._lag.start()
            self._share.start()
        elif self._is_configured:
            self._log.warning("prometheus-client is not installed, and /metrics says so", install=EXTRA)
        self._log.info("metrics are served", host=host, port=self._http.port)

    def follows(self, quorum: QuorumSeen) -> None:
        """Sets the quorum, whose metadata are opened."""
        self.quorum = quorum

    def serves(self) -> None:
        """Notes that the node serves."""
        self._state = RUNNING

    def ends(self) -> None:
        """Notes that the node is stopping."""
        self._state = ENDING

    def failed(self, why: str) -> None:
        """Notes that the node cannot go on."""
        self._failure = self._failure or why

    def close(self) -> None:
        """Stops serving; harmless if called again."""
        self.times = None
        if self._http is not None:
            self._http.close()

    # --- pages

    async def _livez(self, _: Request) -> Response:
        return _state(self._failure, "alive")

    async def _readyz(self, _: Request) -> Response:
        why = self._failure
        if not why:
            why = self._not_ready() if self._state == RUNNING else "starts" if self._state == STARTING else "stops"
        return _state(why, "ready")

    async def _metrics(self, _: Request) -> Response:
        from headrace.http.messages import Response

        page = self._page
        if page is None:
            return Response(404, f"the metrics need prometheus-client: {EXTRA}\n".encode())
        text = await page.render()
        if text is None:
            return Response(500, b"the page cannot be made; the log of the node says why\n")
        return Response(200, text, page.content_type)

    # --- what no section has

    def _families(self) -> Iterator[Family | None]:
        yield gauges("headrace_build_info", "The release.", [({"version": __version__}, 1)])
        yield gauge(BROKER_STATE, "Kafka's state of a node: 1 starts, 3 runs, 7 stops.", self._state)
        assert self._lag is not None and self._share is not None
        for name, does in IDLE:
            about = f"Share of the last minute (1: all of it) in which the thread that {does} used no processor."
            yield gauge(name, about, self._share.idle())
        yield histograms(
            "headrace_loop_lag_seconds",
            "How late the event loop called a timer: how long it was held by something else.",
            [({}, self._lag.histogram)],
        )
        yield gauge("headrace_loop_lag_max_seconds", "The longest of these in the last minute or two.", self._lag.max_s)

    def _room(self) -> list[Family]:
        """Returns the free space of the disks; runs on a worker, because a disk may be slow to answer."""
        free: list[tuple[dict[str, str], float]] = []
        total: list[tuple[dict[str, str], float]] = []
        failed = 0
        for directory in self._directories:
            labels = {"directory": directory}
            try:
                free.append((labels, self._node.disk.free_bytes(directory)))
                total.append((labels, self._node.disk.total_bytes(directory)))
            except OSError:
                failed += 1
        return [
            gauges("headrace_log_directory_free_bytes", "Room left where a log directory lies.", free),
            gauges("headrace_log_directory_size_bytes", "Size of the file system of a log directory.", total),
            gauge("headrace_log_directories_unreadable", "Log directories whose file system does not answer.", failed),
        ]


def _state(why: str, good: str) -> Response:
    """Returns the answer to a probe: `good`, or 503 and the reason."""
    from headrace.http.messages import Response

    line = " ".join((why or good).split())
    return Response(503 if why else 200, f"{line}\n".encode())
