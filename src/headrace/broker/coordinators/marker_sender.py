"""Sends the ends of transactions to the leaders of their partitions (WriteTxnMarkers).

The transactions that end in one turn of the loop are sent together in the next, after the answers to their clients.
Each broker has one connection with one request in flight; later markers go into the next request. Markers of partitions
that this broker leads are written without a socket.

A leader of Apache Kafka answers a request when all its partitions have their markers, and reads nothing more from the
connection until then. So such a leader has a connection for each set of in-sync followers, and partitions do not wait
for followers of others. Also, a request that is unanswered after `HELD_AFTER_MS` moves aside: markers of partitions
that it does not name go over a second connection. A partition that its leader has not written in time stays aside until
it is. Partitions in an unanswered request are not sent again beside it: their answers end the transaction, and a
duplicate marker that arrives later would end the producer's next transaction, unless each has its own epoch
(`transaction.version` 2) and the request says so (WriteTxnMarkers v2).

A marker is sent until its partition holds it. After a failure the leader is looked up again, after a pause or when the
metadata change. A marker whose answer was lost is written again, without effect.

A transaction is dropped here if a partition fences its marker, or if its coordinator resigns: the new coordinator sends
the markers again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.broker.telemetry.pace import PacedLines
from headrace.client.async_connection import AsyncConnection
from headrace.client.errors import ClientError, TimedOutError, UnreachableError, code_name
from headrace.client.security import ConnectionSecurity
from headrace.env.completion import Completion, when_known
from headrace.machine.outcome import Ending
from headrace.transactions.transaction import RAISES_EPOCH_FROM
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import EndMarker
from headrace.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from asyncio import Task

    from headrace.broker.coordinators.door import Metadata
    from headrace.broker.coordinators.local_markers import PartitionEnding
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env.node import Node
    from headrace.env.owner import Owner, Timer
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage, Endpoint, Partition
    from headrace.transactions.asks import Marking, TopicPartition

BACKOFF_MS: Final = 20
"""First pause before a marker is sent again; each further pause is twice as long."""
BACKOFF_MAX_MS: Final = 1_000
HELD_AFTER_MS: Final = 200
"""Longest time a request may delay other partitions' markers; leaders of ours are always faster."""
ANSWER_MARGIN_MS: Final = 1_000
"""Time after `request.timeout.ms`, when a leader of Apache Kafka reports unwritten partitions, for its answer to
arrive."""
LANES_MAX: Final = 16
"""Bound on a leader's connections for sets of followers; further sets share them."""
HEARD_AT_ONCE: Final = 100
"""Transactions of an answer handled in one turn: writing each as completed takes some 100 us."""
REQUEST_MARKERS_MAX: Final = 1_000
"""Bound on the transactions of one request; the others wait for the next."""

_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""Codes of partitions that hold the marker, or cannot hold transactions."""
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Codes of partitions that know a newer producer or coordinator, so that this one may not end the transaction."""
_RETRIED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Codes after which a retry may succeed: the leader may change, or replicas may return."""


class _Delivery:
    """The end of one transaction, until every partition holds its marker."""

    __slots__ = ("coordinator_epoch", "done", "failures", "is_over", "key", "marking", "timer", "waiting")

    def __init__(
        self, key: tuple[Hashable, str], marking: Marking, coordinator_epoch: int, done: Callable[[], None]
    ) -> None:
        self.key = key
        self.marking = marking
        self.coordinator_epoch = coordinator_epoch
        self.done = done
        self.is_over = False
        """Whether it is delivered or dropped; later answers have no effect."""
        self.failures = 0
        self.waiting: set[TopicPartition] = set()
        """Partitions whose leader has to be looked up again."""
        self.timer: Timer | None = None

    def end(self) -> None:
        self.is_over = True
        self.waiting.clear()
        if self.timer is not None:
            self.timer.cancel()


_Batch: TypeAlias = dict[int, tuple[_Delivery, set["TopicPartition"]]]
"""Content of one request, by producer id, as its answer names it."""


_Route: TypeAlias = tuple[int, frozenset[int]]
"""A leader, and the followers that it waits for; none if it does not wait, or that is not known yet."""


class MarkerSender:
    """Delivers transaction markers. Bounded: each transactional id has one end in delivery, with the partitions of its
    transaction."""

    def __init__(
        self,
        node: Node,
        metrics: Registry,
        *,
        config: Callable[[], BrokerConfig],
        node_id: int,
        write_local: Callable[[Sequence[PartitionEnding]], list[Completion[ErrorCode]]],
        security: Callable[[], ConnectionSecurity] = ConnectionSecurity,
    ) -> None:
        """`write_local` is `LocalMarkers.write`; `security` returns the security of connections to leaders."""
        self.security = security
        self._owner = node.owner("markers")
        self._lines = PacedLines(node.logger("transactions"), node.clock.monotonic)
        self._node = node
        self._config = config
        self._node_id = node_id
        self._write_local = write_local
        self._metadata: Metadata | None = None
        self._deliveries: dict[tuple[Hashable, str], _Delivery] = {}
        self._lanes: dict[_Route, _Lane] = {}
        self._aside: dict[_Route, _Lane] = {}
        """Lanes of partitions that delay others."""
        self._all_or_none: set[int] = set()
        """Leaders that answer for all partitions of a request together, even if one takes long."""
        self._held: dict[TopicPartition, int] = {}
        """Partitions that delay others, each with the broker that has not written them in time."""
        self._fresh: list[_Delivery] = []
        """Deliveries that are not routed yet."""
        self._written = metrics.counter("transactions.markers_written")
        self._sent_again = metrics.counter("transactions.markers_sent_again")
        metrics.gauge("transactions.ending", lambda: self.deliveries)

    @property
    def deliveries(self) -> int:
        """Number of transactions with unwritten markers."""
        return len(self._deliveries)

    def start(self, metadata: Metadata) -> None:
        """Follows the cluster image."""
        self._metadata = metadata
        metadata.on_image(self._image_changed)

    async def stop(self) -> None:
        """Sends nothing more."""
        for delivery in self._deliveries.values():
            delivery.end()
        self._deliveries.clear()
        await self._owner.closed()
        for lane in self._every_lane():
            lane.hang_up()

    def send(self, origin: Hashable, marking: Marking, coordinator_epoch: int, done: Callable[[], None]) -> None:
        """Sends the markers of a transaction's end until every partition in `marking.left` holds its own, removing each
        that does; then calls `done`. An earlier end of the same id and `origin` is dropped (KAFKA-16352)."""
        key = (origin, marking.transactional_id)
        older = self._deliveries.get(key)
        if older is not None:
            older.end()
        delivery = self._deliveries[key] = _Delivery(key, marking, coordinator_epoch, done)
        if not self._fresh:
            self._owner.soon(self._send_fresh)
        self._fresh.append(delivery)

    def _send_fresh(self) -> None:
        fresh, self._fresh = self._fresh, []
        self._route((each, each.marking.left) for each in fresh if not each.is_over)

    def drop(self, origin: Hashable) -> None:
        """Drops the transactions of a coordinator that is no longer this one."""
        for delivery in [each for each in self._deliveries.values() if each.key[0] == origin]:
            self._forget(delivery)

    def _forget(self, delivery: _Delivery) -> None:
        delivery.end()
        if self._deliveries.get(delivery.key) is delivery:
            del self._deliveries[delivery.key]

    # --- routing to the leaders --------------------------------------------------------------------------------------

    def _route(self, deliveries: Iterable[tuple[_Delivery, Iterable[TopicPartition]]]) -> None:
        """Queues markers for the leaders of their partitions, and writes those of local partitions together."""
        here: list[tuple[_Delivery, TopicPartition]] = []
        markers: list[PartitionEnding] = []
        for delivery, partitions in deliveries:
            led = self._queue(delivery, partitions)
            if led:
                ending = ending_of(delivery)
                here += [(delivery, each) for each in led]
                markers += [(each, ending) for each in led]
            self._look(delivery)
        if not here:
            return
        for (delivery, partition), answer in zip(here, self._write_local(markers), strict=True):
            when_known(answer, partial(self._ended_here, delivery, partition))

    def _ended_here(self, delivery: _Delivery, partition: TopicPartition, error: ErrorCode) -> None:
        """Handles the result of a marker of a partition that this broker leads."""
        if not delivery.is_over and not self._settled(delivery, partition, error):
            self._failed(delivery, {partition})
        self._look(delivery)

    def _queue(self, delivery: _Delivery, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Queues markers for other leaders; returns the partitions that this broker leads.

        A deleted partition needs no marker.
        """
        assert self._metadata is not None
        image = self._metadata.image
        here: list[TopicPartition] = []
        by_route: dict[_Route, set[TopicPartition]] = {}
        for each in sorted(partitions):
            partition = image.topics.partition(*each)
            if self._held.get(each) != (partition and partition.leader):
                self._held.pop(each, None)
            if partition is None:
                delivery.marking.left.discard(each)
            elif partition.leader == self._node_id:
                here.append(each)
            else:
                by_route.setdefault(self._route_to(partition), set()).add(each)
        for route, led in by_route.items():
            if self.endpoint_of(route[0]) is None:
                self._again(delivery, led)
                continue
            held = led & self._held.keys()
            for lanes, partitions_there in ((self._lanes, led - held), (self._aside, held)):
                if partitions_there:
                    self._lane(lanes, route).add(delivery, partitions_there)
        return here

    def _route_to(self, partition: Partition) -> _Route:
        waits = partition.leader in self._all_or_none
        return partition.leader, frozenset(partition.isr) - {partition.leader} if waits else frozenset()

    def _lane(self, lanes: dict[_Route, _Lane], route: _Route) -> _Lane:
        """Returns the lane of a route.

        At the limit it replaces an idle lane, or else shares the one with the shortest queue.
        """
        lane = lanes.get(route)
        if lane is not None:
            return lane
        others = _lanes_to(route[0], lanes)
        if len(others) >= LANES_MAX:
            resting = next((each for each in others if not each.is_busy), None)
            if resting is None:
                return min(others, key=lambda each: each.waiting)
            resting.hang_up()
            del lanes[resting.route]
        lane = lanes[route] = _Lane(self, self._node, self._owner, route)
        return lane

    def met(self, leader: int, link: AsyncConnection) -> bool:
        """Notes which kind of leader a connection reached; returns whether it turned out to be one of Apache Kafka,
        whose markers must be divided."""
        if link.channel.supports(ApiKey.HEADRACE_GROUP_END_TXN):
            self._all_or_none.discard(leader)
            return False
        is_news = leader not in self._all_or_none
        self._all_or_none.add(leader)
        return is_news

    def _every_lane(self) -> list[_Lane]:
        return [*self._lanes.values(), *self._aside.values()]

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """Returns the endpoint of a broker; None if it is unknown, or the broker is fenced."""
        assert self._metadata is not None
        broker = self._metadata.image.brokers.get(node_id)
        if broker is None or broker.fenced:
            return None
        return broker.endpoint(self._config().inter_broker_listener)

    @property
    def config(self) -> BrokerConfig:
        """Settings in force."""
        return self._config()

    # --- what holds others up ----------------------------------------------------------------------------------------

    def late(self, lane: _Lane, batch: _Batch) -> None:
        """Moves a lane with an unanswered request aside, unless one is aside already: a route has two connections."""
        aside = self._aside.get(lane.route)
        if aside is not None and (aside is lane or aside.is_busy):
            return
        if aside is not None:
            aside.hang_up()
        elif len(_lanes_to(lane.leader, self._aside)) >= LANES_MAX:
            return
        self._aside[lane.route] = self._lanes.pop(lane.route)
        self._held.update(dict.fromkeys(_partitions_of(batch), lane.leader))
        self.reroute(lane)

    def reroute(self, lane: _Lane) -> None:
        """Routes the waiting markers of a lane again, as they may now belong in another one."""
        self._route(lane.drained())

    def heard(self, leader: int, batch: _Batch, response: WriteTxnMarkersResponse) -> None:
        """Handles another broker's answer."""
        late = {
            (topic.name, each.partition_index)
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.REQUEST_TIMED_OUT
        }
        self._keep_held(leader, batch, late)
        self.answered(batch, response)

    def unheard(self, leader: int, batch: _Batch, error: ClientError) -> None:
        """Handles a request without an answer, whose markers may not be written."""
        self._keep_held(leader, batch, _partitions_of(batch) if isinstance(error, TimedOutError) else set())
        for delivery, partitions in batch.values():
            self._failed(delivery, partitions)

    def _keep_held(self, leader: int, batch: _Batch, late: set[TopicPartition]) -> None:
        for each in _partitions_of(batch):
            if each in late:
                self._held[each] = leader
            else:
                self._held.pop(each, None)

    # --- answers -----------------------------------------------------------------------------------------------------

    def answered(self, batch: _Batch, response: WriteTxnMarkersResponse) -> None:
        """Handles a leader's answer to a request."""
        codes = {
            (marker.producer_id, topic.name, each.partition_index): each.error_code
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }
        self._hear(deque(batch.items()), codes)

    def _hear(
        self,
        batch: deque[tuple[int, tuple[_Delivery, set[TopicPartition]]]],
        codes: Mapping[tuple[int, str, int], int],
    ) -> None:
        for _ in range(min(len(batch), HEARD_AT_ONCE)):
            producer_id, (delivery, partitions) = batch.popleft()
            again: set[TopicPartition] = set()
            for partition in sorted(partitions):
                if delivery.is_over:
                    break
                if not self._settled(delivery, partition, codes.get((producer_id, *partition))):
                    again.add(partition)
            self._failed(delivery, again)
            self._look(delivery)
        if batch:
            self._owner.soon(self._hear, batch, codes)

    def _settled(self, delivery: _Delivery, partition: TopicPartition, code: int | None) -> bool:
        """Handles the error code of a marker (None: no answer); returns whether the marker is settled."""
        if code in _WRITTEN:
            self._written.value += 1
            delivery.marking.left.discard(partition)
            return True
        topic, index = partition
        if code in _FENCED:
            self._give_up(delivery, topic, index, code)
            return True
        if code not in _RETRIED:
            named = "no answer" if code is None else code_name(code)
            self._lines.warning(
                partition, "a marker is not taken", topic=topic, partition=index, error=named,
                transactional_id=delivery.marking.transactional_id,
            )  # fmt: skip
        return False

    def _failed(self, delivery: _Delivery, partitions: set[TopicPartition]) -> None:
        if partitions and not delivery.is_over:
            self._sent_again.value += len(partitions)
            self._again(delivery, partitions)

    def _give_up(self, delivery: _Delivery, topic: str, index: int, code: int | None) -> None:
        self._forget(delivery)
        self._lines.warning(
            (topic, index),
            "the end of a transaction is not this coordinator's any more",
            transactional_id=delivery.marking.transactional_id,
            topic=topic,
            partition=index,
            error=code_name(code or 0),
        )

    def _look(self, delivery: _Delivery) -> None:
        if not delivery.is_over and not delivery.marking.left:
            self._forget(delivery)
            delivery.done()

    # --- once more ---------------------------------------------------------------------------------------------------

    def _again(self, delivery: _Delivery, partitions: set[TopicPartition]) -> None:
        delivery.waiting |= partitions
        if delivery.timer is None:
            pause_ms = min(BACKOFF_MS << min(delivery.failures, 16), BACKOFF_MAX_MS)
            delivery.failures += 1
            delivery.timer = self._owner.later(pause_ms / 1000, self._retry, delivery)

    def _retry(self, delivery: _Delivery) -> None:
        delivery.timer = None
        if not delivery.is_over:
            waiting, delivery.waiting = delivery.waiting, set()
            self._route([(delivery, waiting)])

    def _image_changed(self, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        """Routes waiting markers again whose leader has changed or moved, or whose topic is gone."""
        if not (delta.topics or delta.deleted_topics or delta.changed_brokers):
            return
        if delta.changed_brokers:
            for lane in self._every_lane():
                lane.look_at_address()
        routed = []
        for delivery in self._deliveries.values():
            moved = set()
            for each in delivery.waiting:
                now = new.topics.partition(*each)
                if now is not old.topics.partition(*each) or (now is not None and now.leader in delta.changed_brokers):
                    moved.add(each)
            if moved:
                delivery.waiting -= moved
                delivery.failures = 0
                routed.append((delivery, moved))
        self._route(routed)


class _Lane:
    """A queue of markers for one route, and the connection to its broker."""

    def __init__(self, sender: MarkerSender, node: Node, owner: Owner, route: _Route) -> None:
        self._sender = sender
        self._node = node
        self._owner = owner
        self.route = route
        self.leader = route[0]
        self._queue: dict[_Delivery, set[TopicPartition]] = {}
        self._task: Task[None] | None = None
        self._link: AsyncConnection | None = None
        self._address: tuple[str, int] | None = None

    def add(self, delivery: _Delivery, partitions: set[TopicPartition]) -> None:
        """Queues markers of one transaction."""
        self._queue.setdefault(delivery, set()).update(partitions)
        if self._task is None:
            self._task = self._owner.spawn(self._send_all())

    @property
    def is_busy(self) -> bool:
        """Whether a request is in flight or markers wait."""
        return self._task is not None

    @property
    def waiting(self) -> int:
        """Number of transactions whose markers wait for a later request."""
        return len(self._queue)

    def drained(self) -> list[tuple[_Delivery, set[TopicPartition]]]:
        """Removes and returns the waiting markers."""
        waiting, self._queue = self._queue, {}
        return [(delivery, partitions) for delivery, partitions in waiting.items() if not delivery.is_over]

    async def _send_all(self) -> None:
        try:
            while batch := self._take():
                try:
                    link = await self._connected()
                    if self._sender.met(self.leader, link):
                        self._put_back(batch)
                    else:
                        self._sender.heard(self.leader, batch, await self._ask(link, batch))
                except ClientError as error:
                    self._sender.unheard(self.leader, batch, error)
                self._sender.reroute(self)
        finally:
            self._task = None

    async def _ask(self, link: AsyncConnection, batch: _Batch) -> WriteTxnMarkersResponse:
        late = self._owner.later(HELD_AFTER_MS / 1000, self._sender.late, self, batch)
        timeout_s = (self._sender.config.request_timeout_ms + ANSWER_MARGIN_MS) / 1000
        try:
            return await link.ask(request_of(batch), WriteTxnMarkersResponse, timeout_s=timeout_s)
        finally:
            late.cancel()

    def _take(self) -> _Batch:
        """Takes the content of the next request: each producer once, because the answer identifies transactions by
        producer id."""
        batch: _Batch = {}
        for delivery in list(self._queue):
            producer_id = delivery.marking.producer_id
            if delivery.is_over:
                del self._queue[delivery]
            elif producer_id not in batch:
                batch[producer_id] = (delivery, self._queue.pop(delivery))
                if len(batch) >= REQUEST_MARKERS_MAX:
                    break
        return batch

    def _put_back(self, batch: _Batch) -> None:
        for delivery, partitions in batch.values():
            self._queue.setdefault(delivery, set()).update(partitions)

    async def _connected(self) -> AsyncConnection:
        link = self._link
        if link is not None and not link.closed:
            return link
        endpoint = self._sender.endpoint_of(self.leader)
        if endpoint is None:
            raise UnreachableError(f"nobody knows where broker {self.leader} is")
        config = self._sender.config
        self._address = (endpoint.host, endpoint.port)
        self._link = await AsyncConnection.open(
            self._node,
            self._owner,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{config.node_id}-txn-marker-sender",
            timeout_s=config.socket_connection_setup_timeout_ms / 1000,
            security=self._sender.security(),
        )
        return self._link

    def look_at_address(self) -> None:
        """Closes the connection if the broker has moved or is fenced: requests on it would not be answered soon."""
        endpoint = self._sender.endpoint_of(self.leader)
        if endpoint is None or (endpoint.host, endpoint.port) != self._address:
            self.hang_up()

    def hang_up(self) -> None:
        """Closes the connection."""
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _lanes_to(leader: int, lanes: Mapping[_Route, _Lane]) -> list[_Lane]:
    return [each for each in lanes.values() if each.leader == leader]


def _partitions_of(batch: _Batch) -> set[TopicPartition]:
    return {each for _, partitions in batch.values() for each in partitions}


def ending_of(delivery: _Delivery) -> Ending:
    """Returns the end of a transaction as its marker records it."""
    marking = delivery.marking
    end = EndMarker(marking.producer_id, marking.producer_epoch, delivery.coordinator_epoch, marking.committed)
    return Ending(end, marking.transaction_version >= RAISES_EPOCH_FROM)


def request_of(batch: _Batch) -> WriteTxnMarkersRequest:
    """Returns the request for these markers."""
    markers = []
    for delivery, partitions in batch.values():
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            topics.setdefault(topic, []).append(index)
        marking = delivery.marking
        markers.append(
            WritableTxnMarker(
                producer_id=marking.producer_id,
                producer_epoch=marking.producer_epoch,
                transaction_result=marking.committed,
                topics=[WritableTxnMarkerTopic(name, indexes) for name, indexes in topics.items()],
                coordinator_epoch=delivery.coordinator_epoch,
                transaction_version=marking.transaction_version,
            )
        )
    return WriteTxnMarkersRequest(markers=markers)
