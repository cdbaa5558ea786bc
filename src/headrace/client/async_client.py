"""The asyncio client: runs conversations (see `conversation`) on the running event loop.

    async with AsyncClient("127.0.0.1:9092") as client:
        await admin.create_topic(client, "flights", partitions=3)

Every operation of `admin`, `describe`, `groups` and the modules beside them takes it, and is awaited then. Several
tasks may use one client at a time, on its loop. A broker answers the requests of one connection in order: a task that
waits
in a fetch or for a group's rebalance holds up the others, so each of these should have a client of its own.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headrace.client.async_calls import ConversingConnection
from headrace.client.async_connection import AsyncConnection
from headrace.client.channel import R, Request
from headrace.client.conversation import Await, BrokerConnection, Clock, Connect, Step, Steps
from headrace.client.errors import (
    ClientError,
    ConnectionLostError,
    HungUpError,
    TimedOutError,
    UnreachableError,
    UntrustedError,
)
from headrace.client.metadata import Node, TopicInfo, TopicPartition
from headrace.client.operations import AsyncShell
from headrace.client.profiles import reach
from headrace.client.routing import Patience, Router
from headrace.client.security import Protection
from headrace.config import ConfigError
from headrace.env.posix_node import PosixNode
from headrace.env.tls import reason_of
from headrace.wire.address import address_text, parse_addresses

if TYPE_CHECKING:
    from headrace.env import Node as Machine
    from headrace.env import Owner

T = TypeVar("T")


class AsyncClient(AsyncShell):
    """A cluster, from its bootstrap addresses on."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        client_id: str = "headrace",
        timeout_s: float = 30.0,
        request_timeout_s: float | None = None,
        await_bootstrap: bool = False,
        security: Protection | None = None,
        profile: str | None = None,
        machine: Machine | None = None,
    ) -> None:
        """Nothing is connected before the first call. The parameters are those of `Client`.

        `machine` has the network, the clock and the threads that the client uses; the running loop's if not given.
        """
        brokers, self.security = reach(bootstrap, security, profile)
        self.client_id = client_id
        patience = Patience(timeout_s, request_timeout_s, await_bootstrap)
        clock: Clock = time if machine is None else MachineClock(machine)
        random = Random() if machine is None else machine.entropy.random()
        self.router = Router(parse_addresses(brokers), patience, clock, random)
        self._given = machine
        self._machine: Machine | None = None
        self._owner: Owner | None = None
        self._connecting: dict[tuple[str, int], asyncio.Task[BrokerConnection | ClientError | ConfigError]] = {}

    def __repr__(self) -> str:
        """The addresses and, once something was asked, the cluster."""
        addresses = ",".join(f"{host}:{port}" for host, port in self.router.brokers.bootstrap)
        known = f", cluster {self.cluster_id}, brokers {sorted(self.nodes)}" if self.nodes else ""
        return f"<AsyncClient of {addresses}{known}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection. Idempotent; a later call would connect again."""
        self.router.brokers.close()
        machine, owner = self._machine, self._owner
        self._machine = self._owner = None
        if owner is not None:
            await owner.closed()
        if machine is not None and machine is not self._given:
            machine.kill()  # what its threads wait for concerns nobody any more

    # -- conversations

    async def run(self, steps: Steps[T]) -> T:
        """Runs a conversation. Returns its result, and raises its failure."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._perform(step)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            found: T = stop.value
            return found
        finally:
            steps.close()

    async def _perform(self, step: Step) -> BrokerConnection | None:
        if isinstance(step, Await):
            calls: Sequence[Any] = step.calls
            remaining_s = max(0.0, step.until - self.router.clock.monotonic())
            await asyncio.wait(
                [call.future for call in calls], timeout=remaining_s, return_when=asyncio.FIRST_COMPLETED
            )
        elif isinstance(step, Connect):
            return await self._connect(step)
        else:
            await asyncio.sleep(step.seconds)
        return None

    async def _connect(self, step: Connect) -> BrokerConnection:
        """Connects to an address, once for all tasks that wait for it at a time."""
        address = step.host, step.port
        connecting = self._connecting.get(address)
        if connecting is None:
            if self._owner is None:
                self._machine = self._given or PosixNode(handles_loop_errors=False)
                self._owner = self._machine.owner(f"client {self.client_id}")
            connecting = self._connecting[address] = self._owner.spawn(self._connection(step))
            connecting.add_done_callback(lambda _: self._connecting.pop(address))
        # a task that is cancelled leaves the connection to the others
        found = await asyncio.shield(connecting)
        if isinstance(found, Exception):
            raise found
        return found

    async def _connection(self, step: Connect) -> BrokerConnection | ClientError | ConfigError:
        machine, owner = self._machine, self._owner
        assert machine is not None and owner is not None
        try:
            security = await machine.workers.run(self.security.open)  # reads files
            connection = await AsyncConnection.open(
                machine,
                owner,
                step.host,
                step.port,
                client_id=self.client_id,
                timeout_s=step.timeout_s,
                security=security,
            )
        except (ConnectionLostError, TimedOutError) as error:
            return _unreachable(error, address_text(step.host, step.port))
        except (ClientError, ConfigError) as error:
            return error
        return ConversingConnection(connection, step.host, step.port)

    # -- requests

    async def call(
        self, request: Request, response_class: type[R], *, node_id: int | None = None, timeout_s: float | None = None
    ) -> R:
        """Sends a request to one broker (any one if `node_id` is None) and waits; a lost connection is made again.

        Only for requests that may be repeated. Raises `UnreachableError`, `ConnectionLostError`, `TimedOutError`,
        `ProtocolMismatchError`.
        """
        return await self.run(self.router.call(request, response_class, node_id=node_id, timeout_s=timeout_s))

    # -- metadata

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, once it is known."""
        return self.router.cluster_id

    @property
    def nodes(self) -> dict[int, Node]:
        """The brokers that are known, by id."""
        return self.router.brokers.nodes

    async def topics(self, names: Iterable[str] | None = None, *, auto_create: bool = False) -> list[TopicInfo]:
        """Fetches topics as the cluster has them now, sorted by name; all if `names` is None.

        With `auto_create` a broker creates what is missing if its `auto.create.topics.enable` is true. Raises
        `UnknownTopicError` for a name that the cluster keeps denying, `BrokerError` for other errors.
        """
        return await self.run(self.router.topics(names, auto_create=auto_create))

    async def topic(self, name: str) -> TopicInfo:
        """Finds a topic in the cache, or fetches it. Raises as `topics` does."""
        return await self.run(self.router.topic(name))

    async def partitions(self, name: str) -> list[TopicPartition]:
        """Finds the topic's partitions. Raises as `topics` does."""
        return await self.run(self.router.partitions(name))


def _unreachable(error: ConnectionLostError | TimedOutError, peer: str) -> ClientError:
    """Returns why a connection that ended before it could be used could not be made."""
    if isinstance(error, TimedOutError):
        return UnreachableError(f"cannot connect to {peer}: {error}")
    lost = error.__cause__
    cause = None if lost is None else lost.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return UntrustedError(f"cannot connect to {peer}: {reason_of(cause)}")
    if isinstance(cause, ssl.SSLError):
        return UnreachableError(f"cannot connect to {peer}: the TLS handshake failed: {reason_of(cause)}")
    return HungUpError(f"cannot connect to {peer}: {error}")


class MachineClock:
    """The clock of a machine, as the module `time` has it."""

    def __init__(self, machine: Machine) -> None:
        self._clock = machine.clock
        self.monotonic = self._clock.monotonic

    def time_ns(self) -> int:
        """Returns ns since 1970."""
        return self._clock.now_ms() * 1_000_000
