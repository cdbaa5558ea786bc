"""A cluster seen from outside: bootstrap, metadata, connections by broker, and calls that find the right one.

`Client` is the blocking face that the commands, the scan and the Spark workers share. It belongs to one thread. What
the cluster can recover from by itself (a leader that moves, a connection that breaks, a coordinator that loads) is
retried with growing pauses until the time allowed is over; everything else is raised at once, typed, in one line.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from headrace.client.batch_limits import BatchLimits
from headrace.client.channel import Call, R, Request
from headrace.client.connection import Connection, move, wait
from headrace.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    HungUpError,
    ProtocolMismatchError,
    TimedOutError,
    UnknownTopicError,
    UnreachableError,
    is_retriable,
)
from headrace.client.profiles import reach
from headrace.client.security import Protection
from headrace.wire import uuids
from headrace.wire.address import parse_addresses
from headrace.wire.errors import ErrorCode

TopicPartition = tuple[str, int]


_log = logging.getLogger("headrace.client")

PAUSE_FIRST_S = 0.02
PAUSE_LAST_S = 1.0

WARN_AFTER_S = 5.0
WARN_AGAIN_S = 30.0
"""How long attempts fail before a line in the log says so, and how often it is said again."""

MISSING_TOPIC_PATIENCE_S = 1.0
"""How long a topic that the cluster denies is asked for again: long enough for a creation to reach every broker, short
enough for a mistyped name."""

CREATION_PATIENCE_S = 5.0
"""How long a topic that a broker may create by itself is asked for again: a loaded cluster takes seconds."""

CONNECT_TIMEOUT_S = 5.0

GROUP, TRANSACTION = 0, 1
"""What a coordinator is asked for by: FindCoordinator's kinds of key."""

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients reach it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition in the cluster's metadata. `leader` is -1 while there is none."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int = 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic in the cluster's metadata; partitions by index. `id` is 16 bytes, zero from brokers without ids."""

    name: str
    id: bytes
    internal: bool
    partitions: tuple[PartitionInfo, ...]

    def __repr__(self) -> str:
        which = f"name={self.name!r}, id={uuids.to_text(self.id)}, internal={self.internal}"
        return f"TopicInfo({which}, partitions={self.partitions!r})"


class Retry:
    """Patience with an end: growing, jittered pauses until the deadline, then the error that they were for."""

    def __init__(self, timeout_s: float) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + timeout_s
        self.error: ClientError | None = None
        """The error that the last pause was for."""
        self._pause_s = PAUSE_FIRST_S
        self._warns_at = self.started + WARN_AFTER_S

    def leave_out(self, seconds: float) -> None:
        """Move the end by time that was spent on something else."""
        self.started += seconds
        self.deadline += seconds
        self._warns_at += seconds

    def pause(self, error: ClientError, *, at_most_s: float | None = None) -> None:
        """Sleep before another attempt, or raise `error` when there is no time for one. Log a warning where attempts
        have failed for long, so that somebody who waits for a program sees why."""
        self.error = error
        deadline = self.deadline if at_most_s is None else min(self.deadline, self.started + at_most_s)
        pause_s = self._pause_s * random.uniform(0.8, 1.2)
        now = time.monotonic()
        if now + pause_s >= deadline:
            raise error
        if now >= self._warns_at:
            self._warns_at = now + WARN_AGAIN_S
            tried_s, left_s = now - self.started, deadline - now
            _log.warning("Retrying for %.0f s, and for up to %.0f s more: %s", tried_s, left_s, error)
        time.sleep(pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_LAST_S)

    def pause_or_raise(self, error: BrokerError, *, missing_topic_s: float = MISSING_TOPIC_PATIENCE_S) -> None:
        """Pauses after a retriable error, for `missing_topic_s` in all if a topic is unknown; raises any other."""
        if not error.retriable:
            raise error
        unknown = error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        self.pause(error, at_most_s=missing_topic_s if unknown else None)


class Client:
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

        `request_timeout_s` bounds one attempt at an answer: the connection is then made again (no bound where None).
        As long as nothing is known of the cluster, an operation fails when no bootstrap address answers; with
        `await_bootstrap` it tries them until its time is over. `security`: how its connections are protected, as
        Kafka's client properties or the path of a file of them. `profile` names a profile of the user's, which says
        both where they are not given. Raises ValueError, in one line, for what is wrong with them, and OSError for
        the file.
        """
        brokers, self.security = reach(bootstrap, security, profile)
        self.bootstrap = parse_addresses(brokers)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.request_timeout_s = request_timeout_s
        self.await_bootstrap = await_bootstrap
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.batch_limits = BatchLimits()
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[bytes, str] = {}
        self._connections: dict[int, Connection] = {}
        self._seed: Connection | None = None
        self._coordinators: dict[tuple[int, str], int] = {}

    def __repr__(self) -> str:
        """The addresses and, once something was asked, the cluster."""
        addresses = ",".join(f"{host}:{port}" for host, port in self.bootstrap)
        known = f", cluster {self.cluster_id}, brokers {sorted(self.nodes)}" if self.nodes else ""
        return f"<Client of {addresses}{known}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. May be called twice; a later call would connect again."""
        for connection in self.connections():
            connection.close()
        self._connections.clear()
        self._seed = None

    # -- connections

    def connections(self) -> list[Connection]:
        """Every connection that this client holds."""
        seed = [] if self._seed is None else [self._seed]
        return seed + list(self._connections.values())

    def node_connection(self, node_id: int) -> Connection:
        """The connection to a broker by id, made if need be. Raises `UnreachableError`."""
        connection = self._connections.get(node_id)
        if connection is not None and not connection.closed:
            return connection
        node = self.nodes.get(node_id)
        if node is None:
            self.refresh([])
            node = self.nodes.get(node_id)
            if node is None:
                raise UnreachableError(f"broker {node_id} is not in the cluster's metadata")
        seed = self._seed
        if seed is not None and not seed.closed and (seed.host, seed.port) == (node.host, node.port):
            self._seed = None
            connection = seed
        else:
            connection = self._connect(node.host, node.port)
        self._connections[node_id] = connection
        return connection

    def any_connection(self) -> Connection:
        """A connection to some broker: one that is open, else a known broker, else a bootstrap address."""
        for connection in self.connections():
            if not connection.closed:
                return connection
        known = [(node.host, node.port) for node in self.nodes.values()]
        random.shuffle(known)
        tried: list[UnreachableError] = []
        for host, port in dict.fromkeys(known + self.bootstrap):
            try:
                self._seed = self._connect(host, port)
            except UnreachableError as error:
                tried.append(error)
                continue
            return self._seed
        why = "; ".join(str(error).removeprefix("cannot connect to ") for error in tried)
        kind = HungUpError if all(isinstance(error, HungUpError) for error in tried) else UnreachableError
        raise kind(f"no broker answers: {why}")

    def _connect(self, host: str, port: int) -> Connection:
        patience_s = min(CONNECT_TIMEOUT_S, self.timeout_s)
        return Connection(host, port, client_id=self.client_id, timeout_s=patience_s, security=self.security)

    # -- single calls

    def send(self, node_id: int, request: Request, response_class: type[R], *, version: int | None = None) -> Call[R]:
        """Queue a request to a broker without waiting.

        Raises `UnreachableError`, `ConnectionLostError`, `ProtocolMismatchError`.
        """
        return self.node_connection(node_id).send(request, response_class, version=version)

    def wait(self, call: Call[R], deadline: float) -> R:
        """The call's response. Raises its error, or `TimedOutError` at `deadline` (of `time.monotonic`)."""
        if not call.done:
            wait(call, self.connections(), deadline)
        return call.result()

    def move(self, timeout_s: float) -> None:
        """Move bytes on all connections, waiting at most `timeout_s` for something to happen."""
        move(self.connections(), timeout_s)

    def call(
        self, request: Request, response_class: type[R], *, node_id: int | None = None, timeout_s: float | None = None
    ) -> R:
        """Ask one broker (any one where `node_id` is None) and wait; a lost connection is made again.

        Only for requests that may be repeated. Raises `UnreachableError`, `ConnectionLostError`, `TimedOutError`,
        `ProtocolMismatchError`.
        """
        retry = Retry(self.timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                connection = self.any_connection() if node_id is None else self.node_connection(node_id)
                call = connection.send(request, response_class)
                return self._wait_or_drop(connection, call, self._attempt_ends(retry))
            except UnreachableError as error:
                if node_id is None and self.nodes == {} and not self.await_bootstrap:
                    raise
                retry.pause(error)
            except (ConnectionLostError, TimedOutError) as error:
                retry.pause(error)

    def _attempt_ends(self, retry: Retry) -> float:
        """Until when one attempt may take, of those that `retry` allows."""
        if self.request_timeout_s is None:
            return retry.deadline
        return min(retry.deadline, time.monotonic() + self.request_timeout_s)

    def _wait_or_drop(self, connection: Connection, call: Call[R], deadline: float) -> R:
        """A call that does not end in time blocks those after it, so its connection goes too."""
        try:
            return self.wait(call, deadline)
        except TimedOutError:
            connection.close()
            raise TimedOutError(f"no answer from {connection.peer} within the time allowed") from None

    def checked(
        self,
        request: Request,
        response_class: type[R],
        error_of: Callable[[R], tuple[int, str | None]],
        about: str,
        *,
        node_id: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """`call`, with the answer's error code looked at: retriable ones are retried, others a `BrokerError`."""
        retry = Retry(self.timeout_s if timeout_s is None else timeout_s)
        while True:
            remaining = retry.deadline - time.monotonic()
            response = self.call(request, response_class, node_id=node_id, timeout_s=remaining)
            code, detail = error_of(response)
            if code == ErrorCode.NONE:
                return response
            error = BrokerError(code, about, detail)
            retry.pause_or_raise(error)

    def supports(self, api_key: int, version: int = 0) -> bool:
        """Whether the broker we happen to talk to serves this API at this version or a newer one."""
        return self.any_connection().channel.supports(api_key, version)

    # -- metadata

    def refresh(self, topics: Iterable[str] | None, *, auto_create: bool = False) -> dict[str, int]:
        """Ask for metadata of these topics (all where None, none where empty) and keep it.

        Returns the error codes of the topics that have one.
        """
        from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create)
        response = self.call(request, MetadataResponse)
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        for node_id, connection in list(self._connections.items()):
            node = self.nodes.get(node_id)
            if connection.closed or (node is not None and (node.host, node.port) != (connection.host, connection.port)):
                connection.close()
                del self._connections[node_id]
        errors = {}
        if wanted is None:
            self._topics.clear()
            self._names.clear()
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code != ErrorCode.NONE:
                errors[topic.name] = topic.error_code
                self.forget([topic.name])
                continue
            self._keep(topic)
        return errors

    def _keep(self, topic: Any) -> None:
        partitions = tuple(
            PartitionInfo(
                topic.name,
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
                p.error_code,
            )
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        )
        self._topics[topic.name] = TopicInfo(topic.name, topic.topic_id, topic.is_internal, partitions)
        if topic.topic_id != uuids.ZERO:
            self._names[topic.topic_id] = topic.name

    def topics(self, names: Iterable[str] | None = None, *, auto_create: bool = False) -> list[TopicInfo]:
        """Topics as the cluster has them now, sorted by name; all where `names` is None.

        With `auto_create` a broker creates what is missing if its `auto.create.topics.enable` is true. Raises
        `UnknownTopicError` for a name that the cluster keeps denying, `BrokerError` for other errors.
        """
        retry = Retry(self.timeout_s)
        wanted = None if names is None else list(dict.fromkeys(names))
        while True:
            errors = self.refresh(wanted, auto_create=auto_create)
            if wanted is None:
                # one of the list may be gone by now, or not be ours to see; one that is not ready yet is waited for
                gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                errors = {name: code for name, code in errors.items() if code != gone and is_retriable(code)}
            if not errors:
                return [self._topics[name] for name in sorted(self._topics if wanted is None else wanted)]
            name, code = min(errors.items())
            unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            error = UnknownTopicError(name) if unknown else BrokerError(code, f"topic {name}")
            retry.pause_or_raise(
                error, missing_topic_s=CREATION_PATIENCE_S if auto_create else MISSING_TOPIC_PATIENCE_S
            )

    def topic(self, name: str) -> TopicInfo:
        """A topic from the cache, asked for if it is not there. Raises as `topics`."""
        cached = self._topics.get(name)
        return cached if cached is not None else self.topics([name])[0]

    def partitions(self, name: str) -> list[TopicPartition]:
        """The topic's partitions."""
        return [(name, partition.index) for partition in self.topic(name).partitions]

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic that is in the cache, by its id."""
        return self._names.get(topic_id)

    def forget(self, names: Iterable[str]) -> None:
        """Drop topics from the cache: their next use asks the cluster."""
        for name in names:
            topic = self._topics.pop(name, None)
            if topic is not None:
                self._names.pop(topic.id, None)

    def leader(self, topic: str, partition: int) -> PartitionInfo | None:
        """The partition with its leader; None while it has none or its leader is not in the metadata.

        Raises `UnknownTopicError` where the topic has no such partition.
        """
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            partitions = self._partitions_with(topic, partition)
        info = partitions[partition]
        return info if info.leader in self.nodes else None

    def _partitions_with(self, topic: str, partition: int) -> tuple[PartitionInfo, ...]:
        """A topic's partitions once this one is among them: it may have been added since they were asked for, and the
        broker that is asked may not have heard of it. Raises `UnknownTopicError`."""
        retry = Retry(self.timeout_s)
        while partition >= 0:
            partitions = self.topics([topic])[0].partitions
            if partition < len(partitions):
                return partitions
            retry.pause_or_raise(UnknownTopicError(topic, partition))
        raise UnknownTopicError(topic, partition)

    # -- calls that go to the leaders of partitions

    def at_leaders(
        self,
        items: Mapping[TopicPartition, T],
        request_of: Callable[[dict[TopicPartition, T]], Request],
        response_class: type[R],
        results_of: Callable[[R], Iterator[tuple[TopicPartition, int, V]]],
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, V]:
        """Ask every partition's leader, one request a broker, and collect one value a partition.

        Retriable errors are retried for the partitions concerned; the first other one is raised as `BrokerError`.
        """
        retry = Retry(self.timeout_s if timeout_s is None else timeout_s)
        pending = dict(items)
        done: dict[TopicPartition, V] = {}
        while pending:
            failed: dict[TopicPartition, ClientError] = {}
            calls = [
                (*sent, part)
                for node_id, part in self._by_leader(pending, failed).items()
                if (sent := self._send_part(node_id, part, request_of, response_class, failed)) is not None
            ]
            for connection, call, part in calls:
                try:
                    response = self._wait_or_drop(connection, call, self._attempt_ends(retry))
                except (ConnectionLostError, TimedOutError) as error:
                    failed.update(dict.fromkeys(part, error))
                    continue
                for at, code, value in results_of(response):
                    if code == ErrorCode.NONE:
                        done[at] = value
                        pending.pop(at, None)
                    else:
                        failed[at] = BrokerError(code, f"topic {at[0]} partition {at[1]}")
            self._recover(retry, pending, failed)
        return done

    def _send_part(
        self,
        node_id: int,
        part: dict[TopicPartition, T],
        request_of: Callable[[dict[TopicPartition, T]], Request],
        response_class: type[R],
        failed: dict[TopicPartition, ClientError],
    ) -> tuple[Connection, Call[R]] | None:
        try:
            connection = self.node_connection(node_id)
            return connection, connection.send(request_of(part), response_class)
        except (UnreachableError, ConnectionLostError) as error:
            failed.update(dict.fromkeys(part, error))
            return None

    def _by_leader(
        self, pending: dict[TopicPartition, T], failed: dict[TopicPartition, ClientError]
    ) -> dict[int, dict[TopicPartition, T]]:
        parts: dict[int, dict[TopicPartition, T]] = {}
        for (topic, partition), item in pending.items():
            info = self.leader(topic, partition)
            if info is None:
                failed[topic, partition] = BrokerError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic} partition {partition}"
                )
            else:
                parts.setdefault(info.leader, {})[topic, partition] = item
        return parts

    def _recover(
        self, retry: Retry, pending: dict[TopicPartition, T], failed: dict[TopicPartition, ClientError]
    ) -> None:
        """After a round: raise what cannot be retried, else forget the metadata concerned and pause."""
        for error in failed.values():
            if isinstance(error, BrokerError) and not error.retriable:
                raise error
        if not pending:
            return
        at = min(pending)
        cause = failed.get(at)
        if cause is None:
            raise ProtocolMismatchError(f"the broker's answer leaves out topic {at[0]} partition {at[1]}")
        retry.pause(cause)
        self.forget({topic for topic, _ in pending})

    # -- calls that go to the coordinator of a group, or of a transactional id

    def coordinator(self, key: str, *, kind: int = GROUP, timeout_s: float | None = None) -> int:
        """The broker that coordinates a group, or a transactional id; from the cache or asked for."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        def error_of(response: FindCoordinatorResponse) -> tuple[int, str | None]:
            found = response.coordinators[0] if response.coordinators else response
            return found.error_code, found.error_message

        from headrace.wire.apis import ApiKey

        connection = self.any_connection()
        batched = connection.channel.version_for(ApiKey.FIND_COORDINATOR) >= 4
        request = FindCoordinatorRequest(key_type=kind)
        if batched:
            request.coordinator_keys = [key]
        else:
            request.key = key
        about = f"coordinator of {'group' if kind == GROUP else 'transactional id'} {key}"
        response = self.checked(request, FindCoordinatorResponse, error_of, about, timeout_s=timeout_s)
        found = response.coordinators[0] if response.coordinators else response
        self.nodes.setdefault(found.node_id, Node(found.node_id, found.host, found.port))
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    def forget_coordinator(self, key: str, *, kind: int = GROUP) -> None:
        self._coordinators.pop((kind, key), None)

    def at_coordinator(
        self,
        key: str,
        request: Request,
        response_class: type[R],
        error_of: Callable[[R], int],
        *,
        kind: int = GROUP,
        about: str | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Ask the coordinator of a group, or of a transactional id; one that moved or is loading is looked for again.

        Errors that cannot be retried are raised as `BrokerError`.
        """
        retry = Retry(self.timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                node_id = self.coordinator(key, kind=kind, timeout_s=max(0.0, retry.deadline - time.monotonic()))
                connection = self.node_connection(node_id)
                call = connection.send(request, response_class)
                response = self._wait_or_drop(connection, call, retry.deadline)
            except (UnreachableError, ConnectionLostError) as lost:
                self.forget_coordinator(key, kind=kind)
                retry.pause(lost)
                continue
            code = error_of(response)
            if code == ErrorCode.NONE:
                return response
            error = BrokerError(code, about or f"{'group' if kind == GROUP else 'transactional id'} {key}")
            self.forget_coordinator(key, kind=kind)
            retry.pause_or_raise(error)
