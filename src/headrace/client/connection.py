"""The socket under a channel, and waiting on several of them at once.

A `Connection` is a non-blocking TCP socket with a `Channel`: requests are pipelined, and `move` carries bytes on every
connection of a client that has some to carry. Nothing runs in the background: bytes move only while somebody waits. A
connection belongs to one thread.
"""

from __future__ import annotations

import math
import os
import random
import select
import socket
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.client.channel import Call, Channel, R, Request
from headrace.client.errors import (
    BrokerError,
    ConnectionLostError,
    HungUpError,
    TimedOutError,
    UnreachableError,
    UntrustedError,
)
from headrace.client.link import BLOCKED, Link, PlainLink
from headrace.client.security import PLAINTEXT, Security, Tls
from headrace.version import __version__
from headrace.wire.address import address_text
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.client.login import Begun, Login, LoginRequest
    from headrace.security.credentials import AnyCredentials

SEND_PARTS_MAX = 64
"""Buffers handed to one `sendmsg`; below every system's IOV_MAX."""

RENEWAL_S = 30.0
"""How long a reauthentication may take."""

RECEIVES_MAX = 16
"""Reads from one socket before the others get their turn."""


class Connection:
    """A connection to one broker, versions negotiated."""

    def __init__(
        self, host: str, port: int, *, client_id: str, timeout_s: float, security: Security = PLAINTEXT
    ) -> None:
        """Connect and ask for the API versions.

        Raises `UnreachableError` when nothing answers within `timeout_s`, `ProtocolMismatchError` when what answers is
        no broker, `UntrustedError` where its certificate is not believed, `NotLoggedInError` where it lets nobody in,
        and ConfigError where what `security` names cannot be used.
        """
        self.host = host
        self.port = port
        peer = address_text(host, port)
        opened = security.open()
        begun = None if opened.credentials is None else _begun(opened.credentials, host, peer)
        deadline = time.monotonic() + timeout_s
        try:
            connected = socket.create_connection((host, port), timeout=max(timeout_s, 0.001))
        except OSError as error:
            raise UnreachableError(f"cannot connect to {peer}: {error.strerror or error}") from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link: Link = PlainLink(connected) if opened.tls is None else _secured(connected, opened.tls, host, peer)
        self.channel = Channel(client_id, peer=peer)
        self._credentials = opened.credentials
        self._renewed_by = math.inf
        try:
            self._negotiate(deadline)
            if begun is not None:
                self._log_in(begun, deadline)
        except BaseException:
            self.close()
            raise

    @property
    def peer(self) -> str:
        return self.channel.peer

    @property
    def closed(self) -> bool:
        return self.channel.failure is not None

    def send(
        self, request: Request, response_class: type[R], *, version: int | None = None, expect_reply: bool = True
    ) -> Call[R]:
        """Queue a request and push what the socket takes at once.

        Reauthenticates first if the session ends soon, after the requests in flight. Raises what a login raises.
        """
        if time.monotonic() >= self._renewed_by:
            self._renew()
        call = self.channel.send(request, response_class, version=version, expect_reply=expect_reply)
        self.push()
        return call

    def push(self) -> None:
        """Write what the socket takes without blocking."""
        outgoing = self.channel.outgoing
        while outgoing:
            parts = [outgoing[i] for i in range(min(len(outgoing), SEND_PARTS_MAX))]
            try:
                size = self.link.send(parts)
            except OSError as error:
                self._lost(error.strerror or str(error))
                return
            if size == BLOCKED:
                return
            self.channel.sent(size)

    def pull(self) -> None:
        """Read what has arrived without blocking."""
        for _ in range(RECEIVES_MAX):
            if self.closed:
                return
            buffer = self.channel.receive_buffer()
            try:
                size = self.link.receive_into(buffer)
            except OSError as error:
                self._lost(error.strerror or str(error))
                return
            if size == BLOCKED:
                return
            if size == 0:
                self._lost("the broker closed the connection")
                return
            self.channel.received(size)
            if size < len(buffer):
                return

    def close(self) -> None:
        """Close the socket; calls outstanding fail with `ConnectionLostError`. May be called twice."""
        self.channel.fail(ConnectionLostError(f"the connection to {self.peer} is closed"))
        self.link.close()

    def _lost(self, why: str) -> None:
        self.channel.fail(ConnectionLostError(f"lost the connection to {self.peer}: {why}"))
        self.link.close()

    def _renew(self) -> None:
        assert self._credentials is not None
        self._renewed_by = math.inf
        begun = _begun(self._credentials, self.host, self.peer)
        deadline = time.monotonic() + RENEWAL_S
        while self.channel.outstanding and not self.closed:
            if time.monotonic() >= deadline:
                raise TimedOutError(f"{self.peer} does not answer, and the session ends")
            move([self], deadline - time.monotonic())
        if not self.closed:
            self._log_in(begun, deadline)

    def _log_in(self, begun: Begun, deadline: float) -> None:
        from headrace.client.login import renewal_s

        login, step = begun
        try:
            while not isinstance(step, int):
                request, response_class, version = step
                call = self.send(request, response_class, version=version)
                wait(call, [self], deadline)
                step = _moved(login, call.result())
        except BaseException:
            self.close()
            raise
        pause_s = renewal_s(step, random.Random())
        self._renewed_by = math.inf if pause_s is None else time.monotonic() + pause_s

    def _negotiate(self, deadline: float) -> None:
        """ApiVersions: newest first; a broker that lacks that version answers v0 with error 35 and its own list."""
        from headrace.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

        request = ApiVersionsRequest(client_software_name="headrace", client_software_version=__version__)
        version = 4
        while True:
            call = self.send(request, ApiVersionsResponse, version=version)
            try:
                wait(call, [self], deadline)
                response = call.result()
            except ConnectionLostError as error:
                # A broker that starts or stops just now; or a port that wants TLS and hangs up on anything else.
                raise HungUpError(f"cannot connect to {self.peer}: {error}") from error
            except TimedOutError as error:
                raise UnreachableError(f"cannot connect to {self.peer}: {error}") from error
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                version = 0
                continue
            break
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(response.error_code, f"ApiVersions at {self.peer}")
        self.channel.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert ApiKey.API_VERSIONS in self.channel.versions


def _begun(credentials: AnyCredentials, host: str, peer: str) -> Begun:
    from headrace.client.login import log_in

    login = log_in(credentials, host, peer, os.urandom)
    return login, _moved(login)


def _moved(login: Login, answer: Any = None) -> LoginRequest | int:
    """What a login asks next, once its errands are done."""
    from headrace.client.login import outcome_of
    from headrace.security.login import Errand

    step = login.send(answer)
    while isinstance(step, Errand):
        step = login.send(outcome_of(step))
    return step


def _secured(connected: socket.socket, tls: Tls, host: str, peer: str) -> Link:
    import ssl

    from headrace.client.tls_link import TlsLink
    from headrace.env.tls import reason_of

    try:
        return TlsLink(connected, tls, host)
    except OSError as error:
        connected.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise UntrustedError(f"cannot connect to {peer}: {reason_of(error)}") from error
        why = error.strerror or str(error)
        if isinstance(error, ssl.SSLError):
            why = f"the TLS handshake failed: {reason_of(error)}"
        raise UnreachableError(f"cannot connect to {peer}: {why}") from error


def move(connections: Iterable[Connection], timeout_s: float) -> None:
    """Move bytes on every connection that has some to move, waiting at most `timeout_s` for the first of them."""
    poller = select.poll()
    busy: dict[int, Connection] = {}
    arrived: list[Connection] = []
    for connection in connections:
        channel = connection.channel
        if channel.failure is None and (channel.outstanding or channel.outgoing):
            number = connection.link.fileno()
            if connection.link.has_arrived():
                timeout_s = 0.0
                arrived.append(connection)
            busy[number] = connection
            poller.register(number, select.POLLIN | (select.POLLOUT if channel.outgoing else 0))
    if not busy:
        return
    for connection in arrived:
        connection.pull()
    for number, event in poller.poll(max(0.0, timeout_s) * 1000):
        if event & select.POLLOUT:
            busy[number].push()
        if event & ~select.POLLOUT:
            busy[number].pull()


def wait(call: Call[Any], connections: Iterable[Connection], deadline: float) -> None:
    """Until the call is done; raises `TimedOutError` at the deadline (of `time.monotonic`)."""
    connections = list(connections)
    while not call.done:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimedOutError("no answer in time")
        move(connections, remaining)
