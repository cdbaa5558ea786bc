"""The brokers that a client knows, and its connections to them: without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from headrace.client.conversation import BrokerConnection, Connect, Steps
from headrace.client.errors import ClientError, HungUpError, UnreachableError
from headrace.client.metadata import Node

CONNECT_TIMEOUT_S: Final = 5.0
OTHER_CONNECT_TIMEOUT_S: Final = 1.0
"""How long a connection may take to a broker that is asked for metadata only because another was asked before."""

Address = tuple[str, int]
"""A host and a port."""


class Brokers:
    """The bootstrap addresses, the brokers of the newest metadata, and a connection to each that is in use."""

    def __init__(self, bootstrap: Sequence[Address], random: Random, timeout_s: float) -> None:
        """Nothing is connected before the first conversation. A connection takes no longer than `timeout_s`."""
        self.bootstrap = list(bootstrap)
        self.nodes: dict[int, Node] = {}
        """By id; `update` replaces them."""
        self._random = random
        self._timeout_s = timeout_s
        self._connections: dict[int, BrokerConnection] = {}
        self._seed: BrokerConnection | None = None
        self._informant: Address | None = None
        """The broker that was asked last who leads and who coordinates."""

    def update(self, nodes: dict[int, Node]) -> None:
        """Takes the brokers of newer metadata. Closes connections to brokers that have moved."""
        self.nodes = nodes
        for node_id, connection in list(self._connections.items()):
            node = nodes.get(node_id)
            if connection.closed or (node is not None and (node.host, node.port) != (connection.host, connection.port)):
                connection.close()
                del self._connections[node_id]

    def add(self, node: Node) -> None:
        """Adds a broker that the metadata did not have."""
        self.nodes[node.id] = node

    # -- connections that there are

    def connections(self) -> list[BrokerConnection]:
        """Returns every connection of this client."""
        seed = [] if self._seed is None else [self._seed]
        return seed + list(self._connections.values())

    def close(self) -> None:
        """Closes every connection. Idempotent; a later conversation connects again."""
        for connection in self.connections():
            connection.close()
        self._connections.clear()
        self._seed = None

    def open_connection(self, node_id: int) -> BrokerConnection | None:
        """Returns the connection to a broker, if there is one."""
        connection = self._connections.get(node_id)
        return None if connection is None or connection.closed else connection

    def close_node(self, node_id: int) -> None:
        """Closes the connection to a broker, if there is one: calls under way fail."""
        connection = self._connections.get(node_id)
        if connection is not None:
            connection.close()

    # -- new connections

    def connect_to(self, node: Node, timeout_s: float | None = None) -> Steps[BrokerConnection]:
        """Connects to a broker. Raises `UnreachableError`."""
        seed = self._seed
        if seed is not None and not seed.closed and (seed.host, seed.port) == (node.host, node.port):
            self._seed = None
            connection = seed
        else:
            connection = yield from self._connect(node.host, node.port, timeout_s)
        self._connections[node.id] = connection
        return connection

    def any_connection(self) -> Steps[BrokerConnection]:
        """Connects to some broker: one with an open connection, else a known one, else a bootstrap address."""
        for connection in self.connections():
            if not connection.closed:
                return connection
        return (yield from self._new_connection())

    def informed_connection(self) -> Steps[BrokerConnection]:
        """Connects to a broker that is asked who leads and who coordinates: to another one than the last time, if that
        is possible soon. The one of the last time may have lost the controllers, and answers what was true before."""
        opened = [connection for connection in self.connections() if not connection.closed]
        others = [each for each in opened if (each.host, each.port) != self._informant]
        if not opened:
            connection = yield from self._new_connection()
        elif others:
            connection = self._random.choice(others)
        else:
            connection = opened[0]
            if len(self.nodes) > 1:
                known = [node for node in self.nodes.values() if (node.host, node.port) != self._informant]
                try:
                    connection = yield from self.connect_to(self._random.choice(known), OTHER_CONNECT_TIMEOUT_S)
                except ClientError:
                    pass  # the one that was asked the last time has to do
        self._informant = (connection.host, connection.port)
        return connection

    def _new_connection(self) -> Steps[BrokerConnection]:
        known = [(node.host, node.port) for node in self.nodes.values()]
        self._random.shuffle(known)
        tried: list[UnreachableError] = []
        for host, port in dict.fromkeys(known + self.bootstrap):
            try:
                connection = yield from self._connect(host, port)
            except UnreachableError as error:
                tried.append(error)
                continue
            self._seed = connection
            return connection
        why = "; ".join(str(error).removeprefix("cannot connect to ") for error in tried)
        kind = HungUpError if all(isinstance(error, HungUpError) for error in tried) else UnreachableError
        raise kind(f"no broker answers: {why}")

    def _connect(self, host: str, port: int, timeout_s: float | None = None) -> Steps[BrokerConnection]:
        connection = yield Connect(host, port, min(timeout_s or CONNECT_TIMEOUT_S, self._timeout_s))
        assert connection is not None, "the result of a Connect is a connection"
        return connection
