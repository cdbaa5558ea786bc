"""A client machine of the simulator, with one connection at a time that it restores, and the checker of its answers."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.client.async_connection import AsyncConnection
from headrace.client.channel import Request, Response
from headrace.client.errors import ClientError, TimedOutError
from headrace.sim.disk import SimDisk
from headrace.sim.machine import PORT
from headrace.sim.node import SimNode

if TYPE_CHECKING:
    from headrace.sim.checkers.history import Place
    from headrace.sim.world import World

R = TypeVar("R", bound=Response)

OF_GROUPS: Final = 0
OF_TRANSACTIONS: Final = 1
"""Key types of FindCoordinator."""
ANSWER_S: Final = 30.0
"""How long a client waits for an answer; long polls of these runs are far shorter."""
CONNECT_S: Final = 5.0
RETRY_S: Final = (0.01, 0.3)


class SimClient:
    """A client machine with one connection at a time. Tasks of a workload run as its node's: they end with it."""

    def __init__(self, world: World, host: str, broker: str, port: int = PORT) -> None:
        self.world = world
        self.host = host
        self.rng = world.rng(host)
        self.node = SimNode(world, host, SimDisk(world.rng(f"{host} disk")), world.rng(f"{host} chance"))
        world.add(self.node)
        self.owner = self.node.owner(host)
        self._broker = broker
        self.port = port
        self._connection: AsyncConnection | None = None
        self._asked_at: float | None = None

    @property
    def waits_s(self) -> float:
        """How long it has waited for the answer that it waits for; 0.0 where it waits for none."""
        return 0.0 if self._asked_at is None else self.world.loop.time() - self._asked_at

    async def ask(self, request: Request, response_class: type[R], version: int | None = None) -> R:
        """One request, and its answer. Raises ClientError: what came of it is unknown then."""
        return await self._exchange(await self.connection(), request, response_class, version)

    async def _exchange(
        self, connection: AsyncConnection, request: Request, response_class: type[R], version: int | None = None
    ) -> R:
        calm_since = self.world.calm_since
        self._asked_at = self.world.loop.time()
        try:
            return await connection.ask(request, response_class, timeout_s=ANSWER_S, version=version)
        except TimedOutError:
            if calm_since is not None and self.world.calm_since == calm_since:
                self.world.object(f"{self.host}: {type(request).__name__} was not answered, and nothing is broken")
            raise
        finally:
            self._asked_at = None

    async def connection(self, _place: Place | None = None) -> AsyncConnection:
        """The connection for what concerns a partition, made where there is none. Raises ClientError."""
        if self._connection is None or self._connection.closed:
            self._connection = await AsyncConnection.open(
                self.node, self.owner, self._broker, self.port, client_id=self.host, timeout_s=CONNECT_S
            )
        return self._connection

    async def epoch_of(self, _place: Place) -> int:
        """The epoch of the leader that it would ask for a partition, as far as it knows one; else -1."""
        return -1

    def coordinator(self, _key_type: int) -> str | None:
        """Where the coordinator is that it would ask, as far as it knows one."""
        return self._broker

    def moved(self, _place: Place | None) -> None:
        """A request was refused: another broker may have to be asked, where there are several."""

    async def insist(self, request: Any, response_class: type[R], version: int | None = None) -> R:
        """Asks until an answer comes: for what may be done twice."""
        while True:
            try:
                return await self.ask(request, response_class, version)
            except ClientError:
                await self.rest()

    async def rest(self) -> None:
        """A moment before the next try."""
        await sleep(self.rng.uniform(*RETRY_S))

    def leave(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()

    def die(self) -> None:
        """The client's process ends without notice."""
        self.world.trace.note("client dies", self.host)
        self.node.kill()
        self.world.network.gone(self.node, power=False)
