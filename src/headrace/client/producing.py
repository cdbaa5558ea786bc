"""An idempotent producer without I/O: batches by partition, pipelined to the leaders, retried in order.

Records are gathered into a batch a partition; a full batch is queued and leaves when its leader has room (five requests
in flight a connection). Every batch gets its producer id, epoch and sequence when it is queued and keeps them through
every retry, so that the broker appends it once (KIP-98). Methods named `..._steps` are conversations (see
`conversation`): `Producer` and `AsyncProducer` run them.

A broker that has lost what it knew of us (an unclean election, a log cut back) finds our sequences out of order. Once
nothing of the partition is in flight, its epoch is raised and what was refused goes again from sequence 0 (KIP-360).
Not so where the answer to an earlier attempt is missing: that batch may have been written, and would be doubled.

A batch that the broker finds too large goes again in parts, with its sequences, in its place (KIP-126); batches for the
topic are closed below their size from then on, and ready-made ones as large are split before they are sent. That is
forgotten ten minutes after the last refusal (`batch_limits`).

The producer stops at the first batch that it cannot deliver: what follows in that partition must not overtake it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client.conversation import Await, BrokerConnection, Pause, PendingCall, Steps
from headrace.client.deliveries import IN_FLIGHT_MAX, Batch, Delivery, OpenBatch, PartitionQueue
from headrace.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    TimedOutError,
    UnknownTopicError,
    UnreachableError,
)
from headrace.client.metadata import TopicPartition
from headrace.client.partitioner import partition_for_key
from headrace.client.producer_options import (
    BATCH_SIZE,
    BUFFER_SIZE,
    DELIVERY_TIMEOUT_S,
    LINGER_MS,
    REQUEST_TIMEOUT_S,
    ProducerOptions,
)
from headrace.client.ready_batches import record_size, records_size, split_batch, stamp_producer
from headrace.client.retry import PAUSE_FIRST_S, PAUSE_LAST_S, WARN_AFTER_S, WARN_AGAIN_S
from headrace.client.routing import Router
from headrace.wire import uuids
from headrace.wire.apis import ApiKey
from headrace.wire.batch import BATCH_OVERHEAD, CorruptBatch, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.records import Compression, Record, build_batch

_log = logging.getLogger("headrace.client")

REQUEST_SIZE = 8 << 20
"""Batches put into one request, at most (a single larger batch goes alone)."""

SEQUENCE_LIMIT = 1 << 31
EPOCH_LIMIT = 1 << 15

SEQUENCE_LOST = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""What a broker answers that does not know the batches before this one."""


@dataclass(slots=True, eq=False)
class _Flight:
    """A request under way. `names` are its topics by id: answers have ids that the client may have forgotten since."""

    call: PendingCall[ProduceResponse]
    names: dict[bytes, str]
    node_id: int
    batches: list[tuple[PartitionQueue, Batch]]
    deadline: float


class ProducerMachine:
    """Writes records or ready-made batches to topics; what waits is a conversation."""

    def __init__(self, router: Router, options: ProducerOptions) -> None:
        """Idempotence, which is the default, needs acks=-1 (the default) and is dropped otherwise. The cluster is not
        asked before the first send.

        `acknowledged` is called with each batch that a broker has acknowledged, as it was sent, within the calls of the
        producer. In a `transaction`, which another begins and ends, a lost sequence ends the producer too.
        """
        self.router = router
        self.acks = options.get("acks", -1)
        self.compression = options.get("compression", Compression.NONE)
        self.idempotent = options.get("idempotent", True) and self.acks == -1
        self.linger_s = options.get("linger_ms", LINGER_MS) / 1000
        self.batch_size = options.get("batch_size", BATCH_SIZE)
        self.buffer_size = options.get("buffer_size", BUFFER_SIZE)
        self.delivery_timeout_s = options.get("delivery_timeout_s", DELIVERY_TIMEOUT_S)
        self.request_timeout_s = options.get("request_timeout_s", REQUEST_TIMEOUT_S)
        self.records_delivered = 0
        self.bytes_delivered = 0
        self.transaction = transaction = options.get("transaction")
        self.acknowledged = options.get("acknowledged")
        self._producer_id = -1 if transaction is None else transaction.producer_id
        self._producer_epoch = -1 if transaction is None else transaction.epoch
        self._open: dict[TopicPartition, OpenBatch] = {}
        self._partitions: dict[TopicPartition, PartitionQueue] = {}
        self._sticky: dict[str, int] = {}
        self._flights: list[_Flight] = []
        self._buffered = 0
        self._order = 0
        self._failure: ClientError | None = None
        self._clock = router.clock

    def __repr__(self) -> str:
        why = "" if self._failure is None else f", stopped: {self._failure}"
        done = f"records delivered: {self.records_delivered}, bytes waiting: {self._buffered}"
        return f"<{type(self).__name__}, {done}{why}>"

    # -- records

    def send_steps(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Steps[None] | None:
        """Queues one record. Returns a conversation if there is something to wait for: it must be run then.

        Raises what made the producer stop.
        """
        if self._failure is not None:
            raise self._failure
        if partition is None:
            partition = self.known_choice(topic, key)
            if partition is None:
                return self._sent_after_choice(topic, value, key, headers, timestamp_ms)
        at = (topic, partition)
        now = self._clock.monotonic()
        if timestamp_ms is None:
            timestamp_ms = self._clock.time_ns() // 1_000_000
        record = Record(0, timestamp_ms, key, value, list(headers))
        size = record_size(record)
        batch = self._open.get(at)
        if batch is not None and batch.size + size > self.router.batch_limits.records(topic):
            return self._sent_after_closing(at, record, size, now)
        return self._append(at, record, size, now)

    def _append(self, at: TopicPartition, record: Record, size: int, now: float) -> Steps[None] | None:
        """Puts a record into the partition's open batch. Returns the action if a batch is due then."""
        batch = self._open.get(at)
        if batch is None:
            batch = self._open[at] = OpenBatch(since=now)
        batch.records.append(record)
        batch.size += size
        if batch.size >= self.batch_size:
            return self._close_and_pump([at])
        if now - batch.since >= self.linger_s:
            return self._close_and_pump(self._lingering(now))
        return None

    def _sent_after_closing(self, at: TopicPartition, record: Record, size: int, now: float) -> Steps[None]:
        yield from self._close_and_pump([at])
        steps = self._append(at, record, size, now)
        if steps is not None:
            yield from steps

    def _sent_after_choice(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int | None,
    ) -> Steps[None]:
        partition = yield from self.choose_steps(topic, key)
        steps = self.send_steps(topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        if steps is not None:
            yield from steps

    def _close_and_pump(self, closing: list[TopicPartition]) -> Steps[None]:
        for at in closing:
            yield from self._close_batch(at)
        yield from self._pump(0.0)

    def known_choice(self, topic: str, key: bytes | None) -> int | None:
        """Chooses by the key's hash; without a key, one partition at random until its batch is full (KIP-480). None if
        the topic is not in the cache."""
        if key is None and (sticky := self._sticky.get(topic)) is not None:
            return sticky
        info = self.router.known_topics.get(topic)
        if info is None:
            return None
        if key is not None:
            return partition_for_key(key, len(info.partitions))
        chosen = self._sticky[topic] = self.router.random.randrange(len(info.partitions))
        return chosen

    def choose_steps(self, topic: str, key: bytes | None) -> Steps[int]:
        """Chooses a partition for a record, as `send_steps` does. Raises as `Router.topics` does."""
        yield from self.router.topic(topic)
        chosen = self.known_choice(topic, key)
        assert chosen is not None, "the topic is in the cache"
        return chosen

    def _lingering(self, now: float) -> list[TopicPartition]:
        return [at for at, batch in self._open.items() if now - batch.since >= self.linger_s]

    def _close_batch(self, at: TopicPartition) -> Steps[None]:
        batch = self._open.pop(at, None)
        if batch is None:
            return  # another task has closed it
        if self._sticky.get(at[0]) == at[1]:
            del self._sticky[at[0]]
        data = bytearray(build_batch(batch.records, compression=self.compression))
        yield from self._queue(at, data, len(batch.records))

    # -- batches

    def send_batch_steps(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> Steps[Delivery]:
        """Queues one ready-made batch (magic 2, compressed or not) as it is, but for its producer fields.

        Waits while the buffer is full. The batch belongs to the producer from here on. Records that were queued
        for the same partition go first. Raises what made the producer stop, `ValueError` for what is not one batch.
        """
        self._raise_failure()
        if len(batch) < BATCH_OVERHEAD or (header := read_header(batch)).magic != 2 or header.size != len(batch):
            raise ValueError("not one whole record batch of magic 2")
        at = (topic, partition)
        if at in self._open:
            yield from self._close_batch(at)
        data = bytearray(batch) if isinstance(batch, bytes) or memoryview(batch).readonly else batch
        delivery = yield from self._queue(at, data, header.record_count)
        yield from self._pump(0.0)
        return delivery

    def _queue(self, at: TopicPartition, data: bytearray | memoryview, record_count: int) -> Steps[Delivery]:
        while self._buffered and self._buffered + len(data) > self.buffer_size:
            self._raise_failure()
            yield from self._pump(1.0)
        self._raise_failure()
        if self.idempotent and self._producer_id < 0:
            yield from self._begin()
        state = self._partitions.get(at)
        if state is None:
            state = self._partitions[at] = PartitionQueue(at, self._producer_epoch)
        if self.idempotent:
            self._stamp_next(state, data, record_count)
        delivery = Delivery(at[0], at[1], record_count, len(data))
        self._order += 1
        state.queue.append(Batch(data, delivery, (self._order,), self._clock.monotonic() + self.delivery_timeout_s))
        self._buffered += len(data)
        return delivery

    def _stamp_next(self, state: PartitionQueue, data: bytearray | memoryview, record_count: int) -> None:
        """The next sequence of the partition."""
        self._stamp(state, data, state.next_sequence)
        state.next_sequence = (state.next_sequence + record_count) % SEQUENCE_LIMIT

    def _stamp(self, state: PartitionQueue, data: bytearray | memoryview, sequence: int) -> None:
        transactional = self.transaction is not None
        stamp_producer(data, self._producer_id, state.epoch, sequence, transactional=transactional)

    def _raise_epoch(self, state: PartitionQueue, refused: BrokerError) -> None:
        """A higher epoch, and sequences from 0 for all that is not acknowledged (KIP-360)."""
        if any(batch.unsure for batch in state.queue):
            detail = "the broker has lost the sequence, and may or may not have written a batch sent before"
            self._fail(BrokerError(refused.code, refused.about, detail))
            return
        state.epoch += 1
        state.next_sequence, state.known, state.lost = 0, False, None
        for batch in state.queue:
            self._stamp_next(state, batch.data, batch.delivery.record_count)

    def _begin(self) -> Steps[None]:
        """Asks for a producer id."""
        from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        response = yield from self.router.checked(
            request, InitProducerIdResponse, lambda answer: (answer.error_code, None), "producer id"
        )
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch

    # -- waiting

    def poll_steps(self, timeout_s: float) -> Steps[None]:
        """Sends due batches and takes in responses, waiting at most `timeout_s`. Raises what made the producer
        stop."""
        for at in self._lingering(self._clock.monotonic()):
            yield from self._close_batch(at)
        yield from self._pump(timeout_s)
        self._raise_failure()

    def flush_steps(self) -> Steps[None]:
        """Waits until everything queued so far is acknowledged. Raises what made the producer stop."""
        for at in list(self._open):
            yield from self._close_batch(at)
        while self._buffered and self._failure is None:
            yield from self._pump(1.0)
        self._raise_failure()

    @property
    def buffered(self) -> int:
        """Bytes queued or in flight, without the batches that still take records."""
        return self._buffered

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: ClientError) -> None:
        if self._failure is None:
            self._failure = error
        for state in self._partitions.values():
            for batch in (*state.flying, *state.queue):
                for each in (batch, batch.whole or batch):
                    each.delivery.error, each.delivery.done = self._failure, True
            state.flying.clear()
            state.queue.clear()
        self._flights.clear()
        self._buffered = 0

    def _pump(self, timeout_s: float) -> Steps[None]:
        """Sends what can leave, waits at most `timeout_s` for an answer, takes in answers, sends again."""
        if self._failure is not None:
            return
        yield from self._launch()
        if self._flights:
            calls = [flight.call for flight in self._flights]
            if not any(call.done for call in calls):
                yield Await(calls, self._clock.monotonic() + timeout_s)
            self._land()
            yield from self._launch()
        elif timeout_s > 0 and self._buffered:
            yield Pause(min(timeout_s, PAUSE_FIRST_S))

    # -- requests

    def _launch(self) -> Steps[None]:
        now = self._clock.monotonic()
        ready: dict[int, list[PartitionQueue]] = {}
        for state in self._partitions.values():
            if state.lost is not None and not state.flying:
                self._raise_epoch(state, state.lost)
                if self._failure is not None:
                    return
            if state.not_before > now or not state.may_fly:
                continue
            if state.queue[0].deadline < now:
                why = f": {state.trouble}" if state.trouble else ""
                self._fail(TimedOutError(f"topic {state.at[0]} partition {state.at[1]} took no batch in time{why}"))
                return
            try:
                info = self.router.known_leader(*state.at) or (yield from self.router.leader(*state.at))
            except ClientError as error:
                if isinstance(error, UnknownTopicError) or (isinstance(error, BrokerError) and not error.retriable):
                    self._fail(error)
                    return
                self._hold(state, error)
                continue
            if info is None:
                self._hold(state, "it has no leader")
                self.router.forget([state.at[0]])
                continue
            ready.setdefault(info.leader, []).append(state)
        for node_id, states in ready.items():
            yield from self._launch_at(node_id, states)

    def _launch_at(self, node_id: int, states: list[PartitionQueue]) -> Steps[None]:
        """Requests to one leader, a batch a partition in each, as long as there is room in flight."""
        room = IN_FLIGHT_MAX - sum(flight.node_id == node_id for flight in self._flights)
        while room > 0 and states:
            picked: list[tuple[PartitionQueue, Batch]] = []
            size = 0
            for state in states:
                if state.may_fly:
                    self._split_large(state)
                    length = len(state.queue[0].data)
                    if picked and size + length > REQUEST_SIZE:
                        continue
                    picked.append((state, state.queue[0]))
                    size += length
            if not picked:
                return
            try:
                connection = self.router.brokers.open_connection(node_id)
                if connection is None:
                    connection = yield from self.router.node_connection(node_id)
                for state, _ in picked:
                    if state.at[0] not in self.router.known_topics:
                        yield from self.router.topic(state.at[0])
                call, names = self._request(connection, picked)
            except (UnreachableError, ConnectionLostError) as error:
                for state in states:
                    self._hold(state, error)
                self.router.forget({state.at[0] for state in states})
                return
            for state, batch in picked:
                state.flying.append(state.queue.popleft())
                assert state.flying[-1] is batch
            deadline = self._clock.monotonic() + self.request_timeout_s + 5
            self._flights.append(_Flight(call, names, node_id, picked, deadline))
            room -= 1

    def _request(
        self, connection: BrokerConnection, picked: list[tuple[PartitionQueue, Batch]]
    ) -> tuple[PendingCall[ProduceResponse], dict[bytes, str]]:
        topics: dict[str, TopicProduceData] = {}
        for state, batch in picked:
            name, index = state.at
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicProduceData(name=name, topic_id=self.router.known_topics[name].id)
            topic.partition_data.append(PartitionProduceData(index=index, records=batch.data))
        request = ProduceRequest(
            acks=self.acks, timeout_ms=int(self.request_timeout_s * 1000), topic_data=list(topics.values())
        )
        version = None
        if self.transaction is not None:
            request.transactional_id = self.transaction.transactional_id
            highest = connection.channel.version_for(ApiKey.PRODUCE)
            version = min(highest, self.transaction.produce_version_max)
        call = connection.send(request, ProduceResponse, version=version, expect_reply=self.acks != 0)
        return call, {topic.topic_id: name for name, topic in topics.items()}

    # -- answers

    def _land(self) -> None:
        still: list[_Flight] = []
        flights, self._flights = self._flights, still
        for flight in flights:
            if flight.call.done:
                self._take(flight)
            elif self._clock.monotonic() > flight.deadline:
                self.router.brokers.close_node(flight.node_id)
                self._take(flight)
            else:
                still.append(flight)
            if self._failure is not None:
                return

    def _take(self, flight: _Flight) -> None:
        if self.acks == 0 and flight.call.error is None:
            for state, batch in flight.batches:
                self._delivered(state, batch, -1, -1)
            return
        try:
            response = flight.call.result()
        except ConnectionLostError as error:
            for state, batch in flight.batches:
                batch.unsure = True
                self._again(state, batch, error)
            return
        except ClientError as error:
            self._fail(error)
            return
        answers: dict[TopicPartition, PartitionProduceResponse] = {}
        for topic in response.responses:
            name = topic.name if topic.topic_id == uuids.ZERO else flight.names.get(topic.topic_id, topic.name)
            for answer in topic.partition_responses:
                answers[name, answer.index] = answer
        for state, batch in flight.batches:
            if self._failure is not None:
                # what one partition was answered has ended the batches of all
                return
            given = answers.get(state.at)
            if given is None:
                batch.unsure = True
                self._again(state, batch, "the broker left it out of its answer")
            else:
                self._take_answer(state, batch, given)

    def _take_answer(self, state: PartitionQueue, batch: Batch, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._delivered(state, batch, answer.base_offset, answer.log_append_time_ms)
            return
        about = f"topic {state.at[0]} partition {state.at[1]}"
        detail = answer.error_message
        if answer.record_errors and answer.record_errors[0].batch_index_error_message:
            # The message of the whole lists every record again.
            detail = answer.record_errors[0].batch_index_error_message
        error = BrokerError(code, about, detail)
        if error.retriable:
            batch.unsure = True
            self._again(state, batch, error)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.delivery.record_count > 1:
            self._split_refused(state, batch, error)
        elif code not in SEQUENCE_LOST or not self.idempotent:
            self._fail(error)
        elif any(other.order < batch.order for other in (*state.queue, *state.flying)):
            # the gap is a batch before this one, still to be acknowledged
            self._again(state, batch, error)
        elif self.transaction is None and state.known and state.epoch + 1 < EPOCH_LIMIT:
            state.lost = error
            self._again(state, batch, error)
        else:
            self._fail(error)

    def _delivered(self, state: PartitionQueue, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        if batch in state.flying:
            state.flying.remove(batch)
        delivery = batch.delivery
        delivery.base_offset, delivery.log_append_time_ms, delivery.done = base_offset, log_append_time_ms, True
        if batch.whole is not None:
            batch.whole.part_delivered(batch)
        self._buffered -= delivery.size
        self.records_delivered += delivery.record_count
        self.bytes_delivered += delivery.size
        state.newest = max(state.newest, batch.order)
        state.known, state.not_before, state.pause_s = True, 0.0, PAUSE_FIRST_S
        state.trouble = ""
        if self.acknowledged is not None:
            self.acknowledged(delivery, batch.data)

    def _split_large(self, state: PartitionQueue) -> None:
        """Splits the next batch if the broker has refused one as large. One that may be in the log goes as it is, so
        that it is known as a duplicate."""
        topic, limits = state.at[0], self.router.batch_limits
        batch = state.queue[0]
        while batch.delivery.record_count > 1 and not batch.unsure and limits.is_refused(topic, len(batch.data)):
            try:
                self._split(state, batch)
            except CorruptBatch:
                # goes as it is, for the broker to judge
                return
            batch = state.queue[0]

    def _split_refused(self, state: PartitionQueue, batch: Batch, error: BrokerError) -> None:
        """Makes batches for the topic smaller, and splits this one. The producer stops if it cannot be read."""
        try:
            size = records_size(batch.data)
        except CorruptBatch:
            self._fail(error)
            return
        self.router.batch_limits.refuse(state.at[0], len(batch.data), size)
        self._split(state, batch)

    def _split(self, state: PartitionQueue, batch: Batch) -> None:
        """Puts the parts of a batch that is too large in its place. Raises CorruptBatch, and then changes nothing."""
        sequence = read_header(batch.data).base_sequence
        for part in state.replace(batch, split_batch(batch.data, self.router.batch_limits.wanted(state.at[0]))):
            if self.idempotent:
                self._stamp(state, part.data, sequence)
                sequence = (sequence + part.delivery.record_count) % SEQUENCE_LIMIT
            self._buffered += part.delivery.size
        self._buffered -= batch.delivery.size

    def _again(self, state: PartitionQueue, batch: Batch, why: object) -> None:
        """Queue a batch once more, in front of everything that came after it."""
        state.put_back(batch)
        self.router.forget([state.at[0]])
        self._hold(state, why)

    def _hold(self, state: PartitionQueue, why: object) -> None:
        """Leaves a partition alone for a while, longer each time. Logs a warning if that goes on for long."""
        now = self._clock.monotonic()
        state.trouble = str(why)
        if not state.not_before:
            state.warns_at = now + WARN_AFTER_S
        elif now >= state.warns_at:
            state.warns_at = now + WARN_AGAIN_S
            _log.warning("Topic %s partition %d takes no batch, and is tried again: %s", *state.at, why)
        state.not_before = now + state.pause_s * self.router.random.uniform(0.8, 1.2)
        state.pause_s = min(state.pause_s * 2, PAUSE_LAST_S)
