"""The blocking client: runs conversations (see `conversation`) over sockets of its own, without an event loop.

The commands, the scan and the Spark workers use it. A client belongs to one thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Self, TypeVar

from headrace.client.channel import R, Request
from headrace.client.connection import Connection, move
from headrace.client.conversation import Await, BrokerConnection, Connect, Step, Steps
from headrace.client.errors import ClientError
from headrace.client.metadata import Node, PartitionInfo, TopicInfo, TopicPartition
from headrace.client.operations import BlockingShell
from headrace.client.profiles import reach
from headrace.client.routing import GROUP, Patience, Router
from headrace.client.security import Protection
from headrace.wire.address import parse_addresses

T = TypeVar("T")


class Client(BlockingShell):
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
    ) -> None:
        """Nothing is connected before the first call. `timeout_s` bounds every operation, retries included.

        `request_timeout_s` bounds one attempt at an answer: the connection is then made again (no bound if None).
        As long as nothing is known of the cluster, an operation fails when no bootstrap address answers; with
        `await_bootstrap` it tries them until its time is over. `security` protects its connections, given as Kafka's
        client properties or the path of a file of them. `profile` names a profile of the user's, which has both if
        they are not given. Raises ValueError, in one line, for an error in them, and OSError for the file.
        """
        brokers, self.security = reach(bootstrap, security, profile)
        self.client_id = client_id
        patience = Patience(timeout_s, request_timeout_s, await_bootstrap)
        self.router = Router(parse_addresses(brokers), patience, time, Random())
        self.batch_limits = self.router.batch_limits

    def __repr__(self) -> str:
        """The addresses and, once something was asked, the cluster."""
        addresses = ",".join(f"{host}:{port}" for host, port in self.router.brokers.bootstrap)
        known = f", cluster {self.cluster_id}, brokers {sorted(self.nodes)}" if self.nodes else ""
        return f"<Client of {addresses}{known}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection. Idempotent; a later call would connect again."""
        self.router.brokers.close()

    # -- conversations

    def run(self, steps: Steps[T]) -> T:
        """Runs a conversation. Returns its result, and raises its failure."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = self.perform(step)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            found: T = stop.value
            return found

    def perform(self, step: Step) -> BrokerConnection | None:
        """Waits for what a conversation waits for. Raises `ClientError`, and ConfigError for unusable settings."""
        if isinstance(step, Await):
            self._wait(step)
        elif isinstance(step, Connect):
            return self._connect(step)
        else:
            time.sleep(step.seconds)
        return None

    def _connect(self, step: Connect) -> BrokerConnection:
        return Connection(
            step.host, step.port, client_id=self.client_id, timeout_s=step.timeout_s, security=self.security
        )

    def _wait(self, step: Await) -> None:
        """Moves bytes on all connections, at least once."""
        connections: list[Any] = self.router.brokers.connections()
        while True:
            remaining_s = step.until - time.monotonic()
            move(connections, remaining_s)
            if remaining_s <= 0:
                return
            for call in step.calls:
                if call.done:
                    return

    # -- requests

    def call(
        self, request: Request, response_class: type[R], *, node_id: int | None = None, timeout_s: float | None = None
    ) -> R:
        """Sends a request to one broker (any one if `node_id` is None) and waits; a lost connection is made again.

        Only for requests that may be repeated. Raises `UnreachableError`, `ConnectionLostError`, `TimedOutError`,
        `ProtocolMismatchError`.
        """
        return self.run(self.router.call(request, response_class, node_id=node_id, timeout_s=timeout_s))

    def supports(self, api_key: int, version: int = 0) -> bool:
        """Whether the broker we happen to talk to serves this API at this version or a newer one."""
        return self.run(self.router.supports(api_key, version))

    def coordinator(self, key: str, *, kind: int = GROUP) -> int:
        """Finds the broker that coordinates a group, or a transactional id."""
        return self.run(self.router.coordinator(key, kind=kind))

    # -- metadata

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The addresses to ask first."""
        return self.router.brokers.bootstrap

    @property
    def timeout_s(self) -> float:
        """How long an operation may take, retries included."""
        return self.router.timeout_s

    @property
    def request_timeout_s(self) -> float | None:
        """How long one attempt at an answer may take; no bound if None."""
        return self.router.request_timeout_s

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, once it is known."""
        return self.router.cluster_id

    @property
    def controller_id(self) -> int:
        """The broker that acts for the controller; -1 if it is not known."""
        return self.router.controller_id

    @property
    def nodes(self) -> dict[int, Node]:
        """The brokers that are known, by id."""
        return self.router.brokers.nodes

    def refresh(self, topics: Iterable[str] | None, *, auto_create: bool = False) -> dict[str, int]:
        """Fetches the metadata of these topics (of all if None, of none if empty) and keeps it.

        Returns the error codes of the topics that have one.
        """
        return self.run(self.router.refresh(topics, auto_create=auto_create))

    def topics(self, names: Iterable[str] | None = None, *, auto_create: bool = False) -> list[TopicInfo]:
        """Fetches topics as the cluster has them now, sorted by name; all if `names` is None.

        With `auto_create` a broker creates what is missing if its `auto.create.topics.enable` is true. Raises
        `UnknownTopicError` for a name that the cluster keeps denying, `BrokerError` for other errors.
        """
        return self.run(self.router.topics(names, auto_create=auto_create))

    def topic(self, name: str) -> TopicInfo:
        """Finds a topic in the cache, or fetches it. Raises as `topics` does."""
        return self.run(self.router.topic(name))

    def partitions(self, name: str) -> list[TopicPartition]:
        """Finds the topic's partitions. Raises as `topics` does."""
        return self.run(self.router.partitions(name))

    def leader(self, topic: str, partition: int) -> PartitionInfo | None:
        """Finds the partition with its leader; None while it has none or its leader is not in the metadata.

        Raises `UnknownTopicError` for a topic that has no such partition.
        """
        return self.router.known_leader(topic, partition) or self.run(self.router.leader(topic, partition))

    def topic_name(self, topic_id: bytes) -> str | None:
        """Returns the name of a topic that is in the cache, by its id."""
        return self.router.topic_name(topic_id)

    def forget(self, names: Iterable[str]) -> None:
        """Drops topics from the cache: their next use fetches them."""
        self.router.forget(names)
