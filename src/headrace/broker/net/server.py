"""The listeners of a node, and the connections that they accept, with their limits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.admission import Admission
from headrace.broker.net.answers import CloseConnectionError, UnknownVersionError
from headrace.broker.net.connection import Connection
from headrace.broker.net.handshakes import Handshakes
from headrace.broker.net.listener import CannotListen, OpenListener
from headrace.broker.net.logins import LoginTerms
from headrace.broker.net.old_clients import OldClients
from headrace.broker.net.shared import Shared
from headrace.broker.net.tls import ListenerTls
from headrace.config import ConfigError
from headrace.config.security_table import SASL_PROTOCOLS
from headrace.config.tls import TLS_PROTOCOLS
from headrace.env.network import Stream
from headrace.env.tls import TlsStream, scratch_of
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.net.client_quotas import ClientQuotas
    from headrace.broker.net.ports import Pace, Requests, ServedConnection
    from headrace.broker.telemetry.metrics import Registry
    from headrace.broker.telemetry.request_errors import RequestErrors
    from headrace.config import BrokerConfig, Endpoint
    from headrace.env import Node

STALLED_FRAME_S: Final = 10.0
"""Time after which a client that stopped within a frame is closed while memory for requests is short."""
STALLED_OUTPUT_S: Final = 10.0
"""Time after which a client that has not taken all of its answers is closed while memory for responses is short."""
HANDSHAKE_WAIT_SHARE: Final = 0.5
"""Longest wait for a TLS handshake, as a share of the login timeout."""
SWEEP_S_MAX: Final = 5.0
HANGUP_S: Final = 1.0
"""Interval of the check for clients that hung up while their requests are at work and nothing is read from them."""
LINES_PER_S: Final = 100
"""Log lines a second about closed or refused connections; the next line counts those left out."""
ACCEPT_LOG_S: Final = 10.0
"""Shortest time between two failures to accept after which the second is logged too."""


class Server:
    """Accepts connections and owns their shared state."""

    def __init__(
        self,
        node: Node,
        config: Callable[[], BrokerConfig],
        requests: Requests,
        pace: Pace,
        metrics: Registry,
        request_errors: RequestErrors,
    ) -> None:
        """`config` returns the settings in force; `pace` tells whether the disk keeps up with the producers."""
        self._config = config
        self._node = node
        self._log = node.logger("net")
        self.owner = node.owner("server")
        self.shared = Shared(node, self.owner, config, requests, pace, metrics, request_errors, self)
        self.requests_budget, self.responses_budget = self.shared.requests_budget, self.shared.responses_budget
        self.long_answers = self.shared.long_answers
        self._requests = requests
        self._monotonic = node.clock.monotonic
        self.connections: dict[Connection, None] = {}
        self.listeners: list[OpenListener] = []
        self._accepted = metrics.counter("connections.accepted")
        self._refused = metrics.counter("connections.refused")
        self._throttled = metrics.counter("connections.throttled")
        self._bad = metrics.counter("connections.closed_for_bad_input")
        self.old_clients = OldClients(self.owner, self._monotonic, self._bad)
        self.handshakes = Handshakes(self.owner, self._monotonic, self._handshake_rate, self._handshake_patience_s)
        self._stores_of: BrokerConfig | None = None
        """Configuration that the listeners' key stores and logins follow."""
        self._per_host: dict[str, int] = {}
        """Open connections by client address."""
        self.admission = Admission(node, self.owner, config, self.listeners, self._give_way)
        self._accept_failed_at = self._lines_since = -ACCEPT_LOG_S
        self._lines = 0
        self._register(metrics)

    def _register(self, metrics: Registry) -> None:
        metrics.gauge("connections.open", lambda: len(self.connections))
        metrics.gauge("connections.muted", lambda: len(self.shared.mutes))
        metrics.gauge("connections.unauthenticated", lambda: len(self.shared.unauthenticated))
        metrics.gauge("handshakes.waiting", lambda: len(self.handshakes))
        metrics.gauge("requests.bytes_held", lambda: self.requests_budget.used)
        metrics.gauge("responses.bytes_held", lambda: self.responses_budget.used)

    # --- listeners

    def listen(self, endpoint: Endpoint, *, controller: bool = False) -> OpenListener:
        """Binds a listener, which accepts no connection before `serve`. Raises CannotListen, and ConfigError if its key
        stores cannot be used."""
        config = self._config()
        tls = None
        if endpoint.protocol in TLS_PROTOCOLS:
            tls = ListenerTls(endpoint.name, endpoint.protocol, config, self._node.disk)
        served = self._requests.served("controller" if controller else "broker")
        opened = OpenListener(endpoint, served, controller, tls)
        if endpoint.protocol in SASL_PROTOCOLS:
            opened.login_terms = self._requests.login_terms(endpoint.name, config)
        try:
            opened.listener = self._node.network.listen(
                endpoint.host,
                endpoint.port,
                backlog=config.socket_listen_backlog_size,
                receive_buffer=config.socket_receive_buffer_bytes,
                send_buffer=config.socket_send_buffer_bytes,
                on_connection=lambda stream: self._accept(stream, opened),
                on_failure=self._accept_failed,
                turns=self.shared.unauthenticated,
            )
        except OSError as error:
            opened.close_sources()
            raise CannotListen(endpoint.name, endpoint.host, endpoint.port, error) from error
        self.listeners.append(opened)
        return opened

    def store_refusal(self, config: BrokerConfig) -> str:
        """Returns in one line why a listener cannot use the key stores of these settings; empty if all can."""
        refusals = (opened.tls.refusal(config) for opened in self.listeners if opened.tls is not None)
        return next((why for why in refusals if why), "")

    def login_refusal(self, config: BrokerConfig) -> str:
        """Returns in one line why a listener cannot offer logins under these settings; empty if all can."""
        for opened in self.listeners:
            if opened.login_terms is not None:
                try:
                    self._requests.login_terms(opened.name, config, opened.login_terms).close_sources(
                        opened.login_terms
                    )
                except ConfigError as error:
                    return str(error)
        return ""

    def settings_changed(self) -> None:
        """Applies new settings: listeners take changed or newer key stores, and the mechanisms of new logins. Before
        the server accepts connections, stored settings may replace those of the file."""
        config = self._config()
        if config is self._stores_of:
            return
        self._stores_of = config
        for opened in self.listeners:
            if opened.tls is not None:
                self._follow_stores(opened, opened.tls, config)
            if opened.login_terms is not None:
                self._follow_logins(opened, opened.login_terms, config)

    def _follow_stores(self, opened: OpenListener, tls: ListenerTls, config: BrokerConfig) -> None:
        try:
            if opened.accepts:
                is_other = tls.follow(config)
            else:
                opened.tls = ListenerTls(opened.name, opened.endpoint.protocol, config, self._node.disk)
                is_other = False
        except ConfigError as error:
            self._log.warning("keys are not exchanged", listener=opened.name, why=error)
        else:
            if is_other:
                self._log.info("keys are exchanged", listener=opened.name)

    def _follow_logins(self, opened: OpenListener, before: LoginTerms, config: BrokerConfig) -> None:
        try:
            terms = self._requests.login_terms(opened.name, config, before)
        except ConfigError as error:
            self._log.warning("logins stay as they were", listener=opened.name, why=error)
            return
        before.close_sources(terms)
        opened.login_terms = terms
        if list(terms.offers.items()) != list(before.offers.items()):
            self._log.info("logins follow the settings", listener=opened.name, mechanisms=list(terms.offers))

    def unlisten(self, opened: OpenListener) -> None:
        """Closes a listener that has accepted nothing yet."""
        assert opened.listener is not None
        opened.listener.close()
        opened.close_sources()
        self.listeners.remove(opened)

    async def logins_ready(self) -> None:
        """Waits until clients can log in on every listener, or the first attempt to read a credential source has
        failed."""
        for opened in self.listeners:
            if opened.login_terms is not None:
                for source in opened.login_terms.sources:
                    await source.ready()

    def serve_controllers(self) -> None:
        """Begins to accept the connections of other nodes, before clients are served. Raises CannotListen."""
        self._accept_on([opened for opened in self.listeners if opened.is_controller])

    def serve(self) -> None:
        """Begins to accept connections. Raises CannotListen if another program has taken the port."""
        self._accept_on([opened for opened in self.listeners if not opened.accepts])
        self._sweep()
        self._look_for_hangups()

    def _accept_on(self, listeners: Iterable[OpenListener]) -> None:
        for opened in listeners:
            listener = opened.listener
            assert listener is not None
            try:
                listener.pause(False)
            except OSError as error:
                raise CannotListen(opened.name, listener.host, listener.port, error) from error
            opened.accepts = True
        self.admission.look()

    def _accept(self, stream: Stream, listener: OpenListener) -> None:
        host = stream.peer_host
        held = self._per_host.get(host, 0)
        if self.admission.holds(stream):
            self._throttled.value += 1
        elif held >= self._host_limit(host):
            self._refuse(stream, "max.connections.per.ip is reached")
        elif (wait_s := 0.0 if listener.tls is None else self.handshakes.book(host)) is None:
            self._throttled.value += 1
            stream.close()
        else:
            self._per_host[host] = held + 1
            self._accepted.value += 1
            connection = self._connection(stream, listener)
            self.connections[connection] = None
            if wait_s:
                self.handshakes.hold(connection, wait_s)
            connection.start()
            self.admission.came(listener)

    def _give_way(self) -> bool:
        """Closes the least recently used client connection; returns False if there is none."""
        clients = [each for each in self.connections if self.admission.is_client(each.listener)]
        if not clients:
            return False
        self._refused.value += 1
        min(clients, key=lambda each: (each.active, each.idle_since)).close(
            "max.connections is reached, and brokers came"
        )
        return True

    def _connection(self, stream: Stream, listener: OpenListener) -> Connection:
        """Makes the connection of a stream, over TLS if the listener has it. A certificate may set the principal after
        the handshake."""
        tls = listener.tls
        if tls is None:
            return Connection(self.shared, stream, listener)
        secured = TlsStream(
            stream,
            tls.context,
            server_side=True,
            scratch=scratch_of(self._node),
            soon=self.owner.soon,
            turns=self.shared.unauthenticated,
        )
        connection = Connection(self.shared, secured, listener)
        self.shared.logins.begin(connection)

        def opened(stream: TlsStream) -> None:
            connection.client.principal = tls.opened(stream) or connection.client.principal
            if listener.login_terms is None:
                self.shared.logins.end(connection)

        secured.on_open = opened
        return connection

    def other_quotas(self, quotas: ClientQuotas) -> None:
        """Applies new quotas: a client that waits because of an altered quota no longer does."""
        self.shared.quotas = quotas if quotas.table.limits_clients else None
        self.admission.table = quotas.table if quotas.table.limits_addresses else None
        self.shared.mutes.look_again(quotas.limits)

    def _handshake_rate(self) -> int:
        return self._config().max_tls_handshake_rate_per_ip

    def _handshake_patience_s(self) -> float:
        return HANDSHAKE_WAIT_SHARE * self._config().connection_login_timeout_ms / 1000

    def _host_limit(self, host: str) -> int:
        config = self._config()
        for pair in config.max_connections_per_ip_overrides.split(","):
            named, _, count = pair.strip().rpartition(":")
            if named == host and count.isdigit():
                return int(count)
        return config.max_connections_per_ip

    def _refuse(self, stream: Stream, why: str) -> None:
        self._refused.value += 1
        self._warn("connection refused", stream, why)
        stream.close()

    def _accept_failed(self, error: OSError) -> None:
        self._refused.value += 1
        before, self._accept_failed_at = self._accept_failed_at, self._monotonic()
        if self._accept_failed_at - before >= ACCEPT_LOG_S:
            self._log.warning("the broker accepts no connections for now; the open ones stay open", why=error)

    # --- for connections

    def start_task(self, work: Coroutine[Any, Any, None], handler: Coroutine[Any, Any, Any]) -> None:
        """Runs the task that awaits a handler. If the server ends in the same turn of the loop, the task never starts,
        so the handler's coroutine is closed."""
        self.owner.spawn(work).add_done_callback(lambda _: handler.close())

    def defect(self, connection: ServedConnection, key: int, version: int, error: BaseException) -> None:
        """Reports an unexpected error of a request, and closes the connection."""
        self.shared.request_errors.count(key, ErrorCode.UNKNOWN_SERVER_ERROR)
        peer = f"{connection.client.peer_host}:{connection.client.peer_port}"
        self._node.defects.report(error, "a request", api=APIS[key].name, version=version, client=peer)
        connection.close("its request met a defect")

    def defect_beside(self, connection: ServedConnection, error: BaseException) -> None:
        """Reports an unexpected error that belongs to no request, and closes the connection."""
        peer = f"{connection.client.peer_host}:{connection.client.peer_port}"
        self._node.defects.report(error, "a connection", client=peer)
        connection.close("it met a defect")

    def end(self, connection: ServedConnection, reason: CloseConnectionError) -> None:
        """Closes a connection whose handler raised CloseConnectionError."""
        if isinstance(reason, UnknownVersionError):
            self.old_clients.end(connection, str(reason))
        else:
            connection.close(str(reason))

    def connection_closed(self, connection: ServedConnection, why: str) -> None:
        """Forgets a closed connection; logs `why` unless it is empty."""
        assert isinstance(connection, Connection), "this server made it"
        self.connections.pop(connection, None)
        self.shared.send_queue.forget(connection)
        self.shared.mutes.forget(connection)
        self.shared.logins.end(connection)
        self.handshakes.forget(connection)
        host = connection.stream.peer_host
        left = self._per_host.get(host, 1) - 1
        if left:
            self._per_host[host] = left
        else:
            self._per_host.pop(host, None)
        self.admission.went(connection.listener)
        if why:
            self._bad.value += 1
            self._warn("connection closed", connection.stream, why)

    def _warn(self, event: str, stream: Stream, why: str) -> None:
        """Logs one line about a connection; limited to LINES_PER_S, as clients may cause any number."""
        now = self._monotonic()
        unsaid: dict[str, int] = {}
        if now - self._lines_since >= 1:
            if self._lines > LINES_PER_S:
                unsaid["unsaid"] = self._lines - LINES_PER_S
            self._lines_since, self._lines = now, 0
        self._lines += 1
        if self._lines <= LINES_PER_S:
            self._log.warning(event, client=f"{stream.peer_host}:{stream.peer_port}", why=why, **unsaid)

    # --- time

    def _sweep(self) -> None:
        """Closes idle connections, and connections that make no progress while they hold memory that others wait
        for."""
        idle_ms = self._config().connections_max_idle_ms
        idle_s = idle_ms / 1000 if idle_ms >= 0 else float("inf")
        now = self._monotonic()
        if self.shared.quotas is not None:
            self.shared.quotas.expire()
        self.admission.expire()
        self.handshakes.expire()
        self.admission.look()
        contended, scarce = self.requests_budget.contended, self.responses_budget.contended
        for connection in list(self.connections):
            if scarce and connection.stalled_s(now) >= STALLED_OUTPUT_S:
                connection.close("does not take its answers while memory for them is short")
                continue
            if connection.active:
                connection.active = False
                connection.idle_since = now
                continue
            silent_s = now - connection.idle_since
            if contended and silent_s >= STALLED_FRAME_S and connection.holds_partial_frame:
                connection.close("stopped half-way through a request while memory is short")
            elif silent_s >= idle_s and not connection.is_waited_for:
                connection.close("")
        self.owner.later(min(SWEEP_S_MAX, max(0.05, idle_s / 4)), self._sweep)

    def _look_for_hangups(self) -> None:
        """Closes connections whose clients have hung up while a request of theirs is at work."""
        for connection in list(self.connections):
            if connection.has_left():
                connection.close("")
        self.owner.later(HANGUP_S, self._look_for_hangups)

    # --- ending

    def stop_listening(self) -> None:
        """Stops accepting connections."""
        for opened in self.listeners:
            assert opened.listener is not None
            opened.accepts = False
            opened.listener.close()
            opened.close_sources()

    def stop_serving_clients(self) -> None:
        """Closes all listeners except the controllers', and their connections."""
        self.shared.send_queue.send_all()
        for opened in self.listeners:
            if not opened.is_controller:
                assert opened.listener is not None
                opened.accepts = False
                opened.listener.close()
        for connection in list(self.connections):
            if not connection.listener.is_controller:
                connection.close("")

    async def close(self) -> None:
        """Closes every listener and connection, and ends waiting handlers."""
        self.stop_listening()
        self.shared.send_queue.send_all()
        self.admission.close()
        for connection in list(self.connections):
            connection.close("")
        await self.owner.closed()
