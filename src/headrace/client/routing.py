"""What a client knows of a cluster, and how a request finds the right broker: without I/O.

A `Router` has the bootstrap addresses, the metadata, the coordinators and the connections of one client. Its methods
are conversations (see `conversation`): they ask any broker, one broker, the leaders of partitions, or the coordinator
of a key. What a cluster recovers from by itself (a leader that moves, a connection that breaks, a coordinator that
loads) is retried with growing pauses until the time allowed is over; every other error is raised at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final, TypeVar

from headrace.client.batch_limits import BatchLimits
from headrace.client.brokers import Address, Brokers
from headrace.client.channel import R, Request
from headrace.client.conversation import Await, BrokerConnection, Clock, PendingCall, Steps
from headrace.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    ProtocolMismatchError,
    TimedOutError,
    UnknownTopicError,
    UnreachableError,
    is_retriable,
)
from headrace.client.metadata import Node, PartitionInfo, TopicInfo, TopicPartition, topic_info
from headrace.client.retry import MISSING_TOPIC_PATIENCE_S, Retry
from headrace.wire import uuids
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

CREATION_PATIENCE_S: Final = 5.0
"""How long a client asks again for a topic that a broker may create by itself: a loaded cluster takes seconds."""

METADATA_MAX_AGE_S: Final = 300.0
"""How long a topic is known before it is fetched again although nothing failed: a leader that was deposed and does not
know it goes on answering fetches. Kafka's clients call it `metadata.max.age.ms`."""

GROUP, TRANSACTION = 0, 1
"""What has a coordinator: FindCoordinator's kinds of key."""

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client tries, in seconds; see `Client`."""

    timeout_s: float = 30.0
    request_timeout_s: float | None = None
    await_bootstrap: bool = False


class Router:
    """One client's view of a cluster, from its bootstrap addresses on."""

    def __init__(self, bootstrap: Sequence[Address], patience: Patience, clock: Clock, random: Random) -> None:
        """Nothing is connected before the first conversation."""
        self.brokers = Brokers(bootstrap, random, patience.timeout_s)
        self.timeout_s = patience.timeout_s
        self.request_timeout_s = patience.request_timeout_s
        self.await_bootstrap = patience.await_bootstrap
        self.clock = clock
        self.random = random
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.batch_limits = BatchLimits(clock.monotonic)
        self.known_topics: dict[str, TopicInfo] = {}
        """The topics in the cache, by name."""
        self._names: dict[bytes, str] = {}
        self._fetched_at: dict[str, float] = {}
        """When each topic in the cache was fetched."""
        self._leader_epochs: dict[tuple[bytes, int], int] = {}
        """The newest leader epoch of each partition, by topic id."""
        self._coordinators: dict[tuple[int, str], int] = {}

    def retry(self, timeout_s: float | None = None) -> Retry:
        """Returns attempts that begin now, for the time of an operation if none is given."""
        return Retry(self.clock, self.random, self.timeout_s if timeout_s is None else timeout_s)

    # -- connections

    def node_connection(self, node_id: int) -> Steps[BrokerConnection]:
        """Connects to a broker by id, unless there is a connection. Raises `UnreachableError`."""
        connection = self.brokers.open_connection(node_id)
        if connection is not None:
            return connection
        node = self.brokers.nodes.get(node_id)
        if node is None:
            yield from self.refresh([])
            node = self.brokers.nodes.get(node_id)
            if node is None:
                raise UnreachableError(f"broker {node_id} is not in the cluster's metadata")
        return (yield from self.brokers.connect_to(node))

    # -- single calls

    def send(
        self, node_id: int, request: Request, response_class: type[R], *, version: int | None = None
    ) -> Steps[PendingCall[R]]:
        """Queues a request to a broker, and does not wait for the response.

        Raises `UnreachableError`, `ConnectionLostError`, `ProtocolMismatchError`.
        """
        connection = self.brokers.open_connection(node_id) or (yield from self.node_connection(node_id))
        return connection.send(request, response_class, version=version)

    def wait(self, call: PendingCall[R], deadline: float) -> Steps[R]:
        """Waits for a response. Raises the call's error, or `TimedOutError` at `deadline` (of the clock)."""
        while not call.done:
            if self.clock.monotonic() >= deadline:
                raise TimedOutError("no answer in time")
            yield Await((call,), deadline)
        return call.result()

    def call(
        self, request: Request, response_class: type[R], *, node_id: int | None = None, timeout_s: float | None = None
    ) -> Steps[R]:
        """Sends a request to one broker (any one if `node_id` is None) and waits; a lost connection is made again.

        Only for requests that may be repeated. Raises `UnreachableError`, `ConnectionLostError`, `TimedOutError`,
        `ProtocolMismatchError`.
        """
        return (yield from self._call(self._to(node_id), lambda _: request, response_class, self.retry(timeout_s)))

    def _to(self, node_id: int | None) -> Callable[[], Steps[BrokerConnection]]:
        """Returns what connects to a broker; to any one if `node_id` is None."""
        return self.brokers.any_connection if node_id is None else partial(self.node_connection, node_id)

    def _call(
        self,
        connect: Callable[[], Steps[BrokerConnection]],
        request_for: Callable[[BrokerConnection], Request],
        response_class: type[R],
        retry: Retry,
    ) -> Steps[R]:
        while True:
            try:
                connection = yield from connect()
                call = connection.send(request_for(connection), response_class)
                return (yield from self._wait_or_close(connection, call, self._attempt_ends(retry)))
            except UnreachableError as error:
                if self.brokers.nodes == {} and not self.await_bootstrap:
                    raise
                yield from retry.pause(error)
            except (ConnectionLostError, TimedOutError) as error:
                yield from retry.pause(error)

    def _attempt_ends(self, retry: Retry) -> float:
        """Returns until when one attempt may take, of those that `retry` allows."""
        if self.request_timeout_s is None:
            return retry.deadline
        return min(retry.deadline, self.clock.monotonic() + self.request_timeout_s)

    def _wait_or_close(self, connection: BrokerConnection, call: PendingCall[R], deadline: float) -> Steps[R]:
        """Waits for a response. A call that times out blocks those after it, so its connection is closed."""
        try:
            return (yield from self.wait(call, deadline))
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
    ) -> Steps[R]:
        """Does `call`, and retries after a response with a retriable error; raises any other as `BrokerError`."""
        connect, retry = self._to(node_id), self.retry(timeout_s)
        return (yield from self._checked(connect, lambda _: request, response_class, error_of, about, retry))

    def _checked(
        self,
        connect: Callable[[], Steps[BrokerConnection]],
        request_for: Callable[[BrokerConnection], Request],
        response_class: type[R],
        error_of: Callable[[R], tuple[int, str | None]],
        about: str,
        retry: Retry,
    ) -> Steps[R]:
        while True:
            attempt = self.retry(retry.remaining_s)
            response = yield from self._call(connect, request_for, response_class, attempt)
            code, detail = error_of(response)
            if code == ErrorCode.NONE:
                return response
            yield from retry.pause_or_raise(BrokerError(code, about, detail))

    def supports(self, api_key: int, version: int = 0) -> Steps[bool]:
        """Whether the broker we happen to talk to serves this API at this version or a newer one."""
        return (yield from self.brokers.any_connection()).channel.supports(api_key, version)

    # -- metadata

    def refresh(self, topics: Iterable[str] | None, *, auto_create: bool = False) -> Steps[dict[str, int]]:
        """Fetches the metadata of these topics (of all if None, of none if empty) and keeps it.

        Returns the error codes of the topics that have one.
        """
        from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create)
        connect = self.brokers.informed_connection
        response = yield from self._call(connect, lambda _: request, MetadataResponse, self.retry())
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers.update({b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers})
        errors = {}
        if wanted is None:
            self.known_topics.clear()
            self._names.clear()
            self._fetched_at.clear()
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code != ErrorCode.NONE:
                errors[topic.name] = topic.error_code
                self.forget([topic.name])
                continue
            info = topic_info(topic)
            if topic.topic_id != uuids.ZERO:
                self._names[topic.topic_id] = topic.name
                info = replace(info, partitions=tuple(self._checked_leader(topic.topic_id, p) for p in info.partitions))
            self.known_topics[topic.name] = info
            self._fetched_at[topic.name] = self.clock.monotonic()
        return errors

    def _checked_leader(self, topic_id: bytes, partition: PartitionInfo) -> PartitionInfo:
        """Returns a partition without its leader if a newer leader epoch is known: the broker that was asked is behind
        (KIP-320)."""
        newest = self._leader_epochs.get((topic_id, partition.index), -1)
        if partition.leader_epoch < newest:
            return replace(partition, leader=-1)
        self._leader_epochs[topic_id, partition.index] = partition.leader_epoch
        return partition

    def topics(self, names: Iterable[str] | None = None, *, auto_create: bool = False) -> Steps[list[TopicInfo]]:
        """Fetches topics as the cluster has them now, sorted by name; all if `names` is None.

        With `auto_create` a broker creates what is missing if its `auto.create.topics.enable` is true. Raises
        `UnknownTopicError` for a name that the cluster keeps denying, `BrokerError` for other errors.
        """
        retry = self.retry()
        wanted = None if names is None else list(dict.fromkeys(names))
        while True:
            errors = yield from self.refresh(wanted, auto_create=auto_create)
            if wanted is None:
                # one of the list may be gone by now, or not be ours to see; one that is not ready yet is waited for
                gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                errors = {name: code for name, code in errors.items() if code != gone and is_retriable(code)}
            if not errors:
                return [self.known_topics[name] for name in sorted(self.known_topics if wanted is None else wanted)]
            name, code = min(errors.items())
            unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            error = UnknownTopicError(name) if unknown else BrokerError(code, f"topic {name}")
            patience_s = CREATION_PATIENCE_S if auto_create else MISSING_TOPIC_PATIENCE_S
            yield from retry.pause_or_raise(error, missing_topic_s=patience_s)

    def topic(self, name: str) -> Steps[TopicInfo]:
        """Finds a topic in the cache, or fetches it. Raises as `topics` does."""
        cached = self._cached(name)
        return cached if cached is not None else (yield from self.topics([name]))[0]

    def _cached(self, name: str) -> TopicInfo | None:
        """Returns a topic that was fetched not too long ago."""
        cached = self.known_topics.get(name)
        if cached is None or self.clock.monotonic() - self._fetched_at[name] > METADATA_MAX_AGE_S:
            return None
        return cached

    def partitions(self, name: str) -> Steps[list[TopicPartition]]:
        """Finds the topic's partitions. Raises as `topics` does."""
        return [(name, partition.index) for partition in (yield from self.topic(name)).partitions]

    def topic_name(self, topic_id: bytes) -> str | None:
        """Returns the name of a topic that is in the cache, by its id."""
        return self._names.get(topic_id)

    def forget(self, names: Iterable[str]) -> None:
        """Drops topics from the cache: their next use fetches them."""
        for name in names:
            topic = self.known_topics.pop(name, None)
            if topic is not None:
                self._names.pop(topic.id, None)
                del self._fetched_at[name]

    def known_leader(self, topic: str, partition: int) -> PartitionInfo | None:
        """Returns the partition with its leader, if both are in the cache."""
        info = self._cached(topic)
        if info is None or not 0 <= partition < len(info.partitions):
            return None
        found = info.partitions[partition]
        return found if found.leader in self.brokers.nodes else None

    def leader(self, topic: str, partition: int) -> Steps[PartitionInfo | None]:
        """Finds the partition with its leader; None while it has none or its leader is not in the metadata.

        Raises `UnknownTopicError` for a topic that has no such partition.
        """
        partitions = (yield from self.topic(topic)).partitions
        if not 0 <= partition < len(partitions):
            partitions = yield from self._partitions_with(topic, partition)
        info = partitions[partition]
        return info if info.leader in self.brokers.nodes else None

    def _partitions_with(self, topic: str, partition: int) -> Steps[tuple[PartitionInfo, ...]]:
        """Fetches a topic's partitions until this one is among them: it may have been added since, and the broker that
        is asked may not know of it yet. Raises `UnknownTopicError`."""
        retry = self.retry()
        while partition >= 0:
            partitions = (yield from self.topics([topic]))[0].partitions
            if partition < len(partitions):
                return partitions
            yield from retry.pause_or_raise(UnknownTopicError(topic, partition))
        raise UnknownTopicError(topic, partition)

    # -- calls to the leaders of partitions

    def at_leaders(
        self,
        items: Mapping[TopicPartition, T],
        request_of: Callable[[dict[TopicPartition, T]], Request],
        response_class: type[R],
        results_of: Callable[[R], Iterator[tuple[TopicPartition, int, V]]],
        *,
        timeout_s: float | None = None,
    ) -> Steps[dict[TopicPartition, V]]:
        """Asks every partition's leader, one request a broker, and collects one value a partition.

        Retriable errors are retried for the partitions concerned; the first other one is raised as `BrokerError`.
        """
        retry = self.retry(timeout_s)
        pending = dict(items)
        done: dict[TopicPartition, V] = {}
        while pending:
            failed: dict[TopicPartition, ClientError] = {}
            calls: list[tuple[BrokerConnection, PendingCall[R], dict[TopicPartition, T]]] = []
            for node_id, part in (yield from self._by_leader(pending, failed)).items():
                try:
                    connection = yield from self.node_connection(node_id)
                    calls.append((connection, connection.send(request_of(part), response_class), part))
                except (UnreachableError, ConnectionLostError) as error:
                    failed.update(dict.fromkeys(part, error))
            for connection, call, part in calls:
                try:
                    response = yield from self._wait_or_close(connection, call, self._attempt_ends(retry))
                except (ConnectionLostError, TimedOutError) as error:
                    failed.update(dict.fromkeys(part, error))
                    continue
                for at, code, value in results_of(response):
                    if code == ErrorCode.NONE:
                        done[at] = value
                        pending.pop(at, None)
                    else:
                        failed[at] = BrokerError(code, f"topic {at[0]} partition {at[1]}")
            yield from self._recover(retry, pending, failed)
        return done

    def _by_leader(
        self, pending: dict[TopicPartition, T], failed: dict[TopicPartition, ClientError]
    ) -> Steps[dict[int, dict[TopicPartition, T]]]:
        parts: dict[int, dict[TopicPartition, T]] = {}
        for (topic, partition), item in pending.items():
            info = self.known_leader(topic, partition) or (yield from self.leader(topic, partition))
            if info is None:
                failed[topic, partition] = BrokerError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic} partition {partition}"
                )
            else:
                parts.setdefault(info.leader, {})[topic, partition] = item
        return parts

    def _recover(
        self, retry: Retry, pending: dict[TopicPartition, T], failed: dict[TopicPartition, ClientError]
    ) -> Steps[None]:
        """After a round: raises what cannot be retried, else pauses and drops the metadata concerned."""
        for error in failed.values():
            if isinstance(error, BrokerError) and not error.retriable:
                raise error
        if not pending:
            return
        at = min(pending)
        cause = failed.get(at)
        if cause is None:
            raise ProtocolMismatchError(f"the broker's answer leaves out topic {at[0]} partition {at[1]}")
        yield from retry.pause(cause)
        self.forget({topic for topic, _ in pending})

    # -- calls to the coordinator of a group, or of a transactional id

    def coordinator(self, key: str, *, kind: int = GROUP, timeout_s: float | None = None) -> Steps[int]:
        """Finds the broker that coordinates a group, or a transactional id, in the cache or by asking."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        def error_of(response: FindCoordinatorResponse) -> tuple[int, str | None]:
            found = response.coordinators[0] if response.coordinators else response
            return found.error_code, found.error_message

        def request_for(connection: BrokerConnection) -> FindCoordinatorRequest:
            if connection.channel.version_for(ApiKey.FIND_COORDINATOR) >= 4:
                return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            return FindCoordinatorRequest(key_type=kind, key=key)

        about, retry = f"coordinator of {_key_name(key, kind)}", self.retry(timeout_s)
        connect = self.brokers.informed_connection
        response = yield from self._checked(connect, request_for, FindCoordinatorResponse, error_of, about, retry)
        found = response.coordinators[0] if response.coordinators else response
        if found.node_id not in self.brokers.nodes:
            self.brokers.add(Node(found.node_id, found.host, found.port))
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    def forget_coordinator(self, key: str, *, kind: int = GROUP) -> None:
        """Drops a coordinator from the cache: its next use asks for it."""
        self._coordinators.pop((kind, key), None)

    def coordinator_connection(
        self, key: str, *, kind: int = GROUP, timeout_s: float | None = None
    ) -> Steps[BrokerConnection]:
        """Connects to the coordinator of a key. Raises `UnreachableError`, `ConnectionLostError`, `BrokerError`."""
        return (yield from self.node_connection((yield from self.coordinator(key, kind=kind, timeout_s=timeout_s))))

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
    ) -> Steps[R]:
        """Asks the coordinator of a group, or of a transactional id; looks again for one that moved or loads.

        Errors that cannot be retried are raised as `BrokerError`.
        """
        retry = self.retry(timeout_s)
        while True:
            try:
                patience_s = max(0.0, retry.remaining_s)
                connection = yield from self.coordinator_connection(key, kind=kind, timeout_s=patience_s)
                call = connection.send(request, response_class)
                response = yield from self._wait_or_close(connection, call, retry.deadline)
            except (UnreachableError, ConnectionLostError) as lost:
                self.forget_coordinator(key, kind=kind)
                yield from retry.pause(lost)
                continue
            code = error_of(response)
            if code == ErrorCode.NONE:
                return response
            error = BrokerError(code, about or _key_name(key, kind))
            self.forget_coordinator(key, kind=kind)
            yield from retry.pause_or_raise(error)


def _key_name(key: str, kind: int) -> str:
    return f"{'group' if kind == GROUP else 'transactional id'} {key}"
