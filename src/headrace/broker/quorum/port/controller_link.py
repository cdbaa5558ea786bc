"""The way of a node to the active controller: one connection, to the voter that leads as far as this node knows.

A node has two of them: for what it asks itself, heartbeats among it, and for what it forwards (see `cluster_node`).

A node whose metadata log cannot be written hears of no election. It asks the voters in turn, and stays with the one
that does not send it away.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.client.async_connection import AsyncConnection
from headrace.client.channel import Request, Response
from headrace.client.errors import ConnectionLostError, UnreachableError
from headrace.client.security import PLAIN_CONNECTION

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.client.node_security import NodeSecurity
    from headrace.env import Node
    from headrace.raft.control import VoterEndpoint

R = TypeVar("R", bound=Response)

LINGER_S: Final = 1.0
"""How long a controller that no longer leads may still answer: it answers for committed decisions, but a new leader may
be known before the answer arrives.
"""


class ControllerLocator:
    """Finds the active controller, by what this node knows of the quorum."""

    def __init__(self, driver: QuorumDriver) -> None:
        self._driver = driver

    def endpoint(self) -> VoterEndpoint | None:
        """Returns the address of the active controller; None if no voter is known to lead."""
        leader = self._driver.raft.known_leader
        return None if leader is None else self._driver.addresses.endpoint(leader)

    def candidates(self) -> list[VoterEndpoint]:
        """Returns the addresses of all other voters while this node takes no part in the quorum, to be asked in turn;
        else none, since this node knows then who leads as soon as the others do."""
        driver = self._driver
        if not driver.waits_for_room:
            return []
        others = [driver.addresses.endpoint(voter.id) for voter in driver.voters if voter.id != driver.node_id]
        return [endpoint for endpoint in others if endpoint is not None]

    def why_unknown(self) -> str:
        """Returns why no controller may be known; empty if that is not known either."""
        return "" if self._driver.links is None else self._driver.links.denial


class ControllerLink:
    """A connection to the active controller, which `locator` finds. `security` says how it is protected."""

    def __init__(
        self, node: Node, locator: ControllerLocator, security: NodeSecurity | None, *, name: str, timeout_s: float
    ) -> None:
        """`name` is what the controller's log calls this client; `timeout_s`: how long a connection may take."""
        self._node = node
        self._locator = locator
        self._turn = 0
        self._name = name
        self._timeout_s = timeout_s
        self._security = security
        self._owner = node.owner("controller link")
        self._opening = asyncio.Lock()
        self._link: AsyncConnection | None = None
        self._to: VoterEndpoint | None = None
        self._left: set[AsyncConnection] = set()
        self._repeatable: set[Future[Any]] = set()

    async def ask(
        self, request: Request, response_class: type[R], *, timeout_s: float, is_repeatable: bool = False
    ) -> R:
        """The active controller's answer. Raises ClientError; whether the request took effect is unknown then, unless
        it is an UnreachableError. What `is_repeatable` does not wait for a controller when another one is known."""
        link = await self._connected()
        answer = link.ask(request, response_class, timeout_s=timeout_s)
        if is_repeatable:
            self._repeatable.add(answer)
            answer.add_done_callback(self._repeatable.discard)
        return await answer

    def moved(self) -> None:
        """Another controller is known: the last one may be stopped or cut off, and its answers may never come."""
        for answer in tuple(self._repeatable):
            if not answer.done():
                answer.set_exception(ConnectionLostError("another controller is known by now"))

    def sent_away(self) -> None:
        """The node that was asked is not the active controller, or cannot be reached."""
        self._turn += 1

    def _where(self) -> VoterEndpoint | None:
        others = self._locator.candidates()
        return others[self._turn % len(others)] if others else self._locator.endpoint()

    async def _connected(self) -> AsyncConnection:
        async with self._opening:
            endpoint = self._where()
            if endpoint is None:
                why = self._locator.why_unknown()
                raise UnreachableError("no active controller is known" + (f": {why}" if why else ""))
            link = self._link
            if link is not None and not link.closed and self._to == endpoint:
                return link
            self._link = None
            if link is not None:
                self._leave(link)
            self._link = await AsyncConnection.open(
                self._node,
                self._owner,
                endpoint.host,
                endpoint.port,
                client_id=self._name,
                timeout_s=self._timeout_s,
                security=PLAIN_CONNECTION if self._security is None else self._security.to_controllers(),
            )
            self._to = endpoint
            return self._link

    def _leave(self, link: AsyncConnection) -> None:
        self._left = {each for each in self._left if not each.closed}
        if link.outstanding and not link.closed:
            self._left.add(link)
            self._owner.later(LINGER_S, link.close)
        else:
            link.close()

    def close(self) -> None:
        """Ends the connections; what waits for an answer fails."""
        for link in self._left:
            link.close()
        if self._link is not None:
            self._link.close()
        self._owner.close()
