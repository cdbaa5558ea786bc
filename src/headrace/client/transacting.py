"""A transactional producer without I/O: records of many partitions and groups' offsets, seen together or never.

Methods named `..._steps` are conversations (see `conversation`): `TransactionalProducer` and
`AsyncTransactionalProducer` run them.

What goes wrong is one of three things, by Kafka's own table (`class_of`): it is tried again; it ends the transaction
(`abort`, then begin another); or it ends the producer, as when a newer one has its id. `commit` has a fourth answer,
`InDoubtError`: the request left and nothing that came back says what became of it. The next `initialize` returns when
that transaction is over, so a client that has put a mark among the offsets reads it then.

Where the cluster has `transaction.version` 2 or later, partitions and groups join with the first write to them and
every end raises the epoch (KIP-890). Elsewhere they are added first, and the epoch stays: a request of an old
transaction that arrives late could end the next one, so after an end that was asked for twice the producer takes a new
epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, NoReturn, TypeVar, cast

from headrace.client.channel import R, Request
from headrace.client.conversation import Steps
from headrace.client.deliveries import Delivery
from headrace.client.describe import describe_features
from headrace.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    FencedError,
    InDoubtError,
    ProtocolMismatchError,
    TimedOutError,
    UnreachableError,
    code_name,
    is_retriable,
)
from headrace.client.groups import Committed
from headrace.client.metadata import TopicPartition
from headrace.client.producer_options import (
    REQUEST_TIMEOUT_S,
    BatchOptions,
    ProducerOptions,
    RecordOptions,
    Transaction,
)
from headrace.client.producing import ProducerMachine
from headrace.client.routing import GROUP, TRANSACTION, Router
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

TIMEOUT_MS: Final = 60_000
"""Kafka's own default: a transaction open for longer is aborted by its coordinator."""

_NEWEST: Final = (1 << 15) - 1

T = TypeVar("T")


class ErrorClass(Enum):
    """What an error code asks of a transactional producer."""

    RETRIABLE = auto()
    ABORTABLE = auto()
    FATAL = auto()


_ABORTABLE: Final[dict[int, frozenset[int]]] = {
    ApiKey.INIT_PRODUCER_ID: frozenset((31, 53)),
    ApiKey.ADD_PARTITIONS_TO_TXN: frozenset((29, 30, 59)),
    ApiKey.ADD_OFFSETS_TO_TXN: frozenset((29, 30, 59)),
    ApiKey.END_TXN: frozenset((29, 30, 59)),
    ApiKey.TXN_OFFSET_COMMIT: frozenset((22, 25, 30, 82)),
    ApiKey.HEADRACE_GROUP_END_TXN: frozenset((10, 18, 29, 30, 35, 55, 59)),
}
_PRODUCE_FATAL: Final = frozenset((31, 35, 49, 53, 90))
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_UNDECIDED: Final = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
"""Retriable answers of a coordinator that has not taken the request. After others it may have: a record of which too
few replicas are known to have a copy can be in the log all the same."""


def class_of(api_key: int, code: int) -> ErrorClass:
    """How Kafka's Java client takes this code in an answer to this API."""
    if code == ErrorCode.TRANSACTION_ABORTABLE:
        return ErrorClass.ABORTABLE
    if is_retriable(code):
        return ErrorClass.RETRIABLE
    if api_key == ApiKey.PRODUCE:
        return ErrorClass.FATAL if code in _PRODUCE_FATAL else ErrorClass.ABORTABLE
    return ErrorClass.ABORTABLE if code in _ABORTABLE[api_key] else ErrorClass.FATAL


def _leaves_open(api_key: int, error: ClientError) -> bool:
    """Whether a commit that failed so was refused, and the transaction is there to be aborted; or was never asked for,
    as the coordinator does not serve groups."""
    if isinstance(error, BrokerError):
        return class_of(api_key, error.code) is ErrorClass.ABORTABLE
    return isinstance(error, ProtocolMismatchError)


class State(Enum):
    """The state of a producer. `NEW` has no epoch yet, or must get another one."""

    NEW = auto()
    READY = auto()
    OPEN = auto()
    FAILED = auto()
    DEAD = auto()


class OpenTransaction(NamedTuple):
    """A transaction whose writes are all acknowledged, for somebody else to end: see `transaction_groups`."""

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionalOptions(BatchOptions, total=False):
    """The options of a transactional producer; `timeout_ms` is that of a transaction."""

    timeout_ms: int
    request_timeout_s: float


class TransactionalMachine:
    """One transactional id's writer; what waits is a conversation."""

    def __init__(self, router: Router, transactional_id: str, options: TransactionalOptions) -> None:
        """Nothing is asked before the first transaction begins."""
        self.router = router
        self.transactional_id = transactional_id
        self.timeout_ms = options.pop("timeout_ms", TIMEOUT_MS)
        self.request_timeout_s = options.pop("request_timeout_s", REQUEST_TIMEOUT_S)
        self.state = State.NEW
        self.records_committed = 0
        self.bytes_committed = 0
        self._options: BatchOptions = options
        self._joins_by_writing: bool | None = None
        """Whether the cluster has `transaction.version` 2; None if it is not known yet."""
        self._identity = (-1, -1)
        self._writer: ProducerMachine | None = None
        self._joined: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._has_ended = False
        """Whether a transaction has ended since the id was taken."""
        self._taken_on = False
        """Whether another producer wrote what this one is to end."""
        self._undecided = False
        """Whether a request has left, of those that the last call sent, of which it is not known what it did."""

    def __repr__(self) -> str:
        done = f"records committed: {self.records_committed}"
        return f"<{type(self).__name__} {self.transactional_id!r}, {self.state.name.lower()}, {done}>"

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction to end."""
        return self.state in (State.OPEN, State.FAILED)

    # -- the life of a transaction

    def initialize_steps(self) -> Steps[None]:
        """Takes the id over: earlier producers are fenced, and what they had open is over when this returns.

        Raises `BrokerError` where the cluster has no transactions, or not for us, and `ProtocolMismatchError`.
        """
        from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

        self.state = State.NEW
        self._has_ended = False
        self._forget()
        yield from self._find_version()
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        answer = yield from self._ask(request, InitProducerIdResponse, lambda r: r.error_code)
        self._identity = (answer.producer_id, answer.producer_epoch)
        self.state = State.READY

    def begin_steps(self) -> Steps[None]:
        """Begins a transaction; the cluster hears of it with the first write. Takes the id over if need be."""
        if self.state is State.NEW:
            yield from self.initialize_steps()
        if self.state is not State.READY:
            raise ValueError(f"transactional id {self.transactional_id}: {self.state.name.lower()}, not ready to begin")
        self._joined.clear()
        self._groups.clear()
        self._taken_on = False
        self.state = State.OPEN

    def take_on_steps(self, opened: OpenTransaction) -> Steps[None]:
        """Goes on where the producer stopped that has handed this transaction over: to end it, not to write."""
        if opened.transactional_id != self.transactional_id:
            raise ValueError(f"transactional id {self.transactional_id}: cannot take on {opened.transactional_id}")
        self._forget()
        self._joined.clear()
        self._groups.clear()
        if self._joins_by_writing is None:
            yield from self._find_version()
        self._taken_on = True
        self._identity = (opened.producer_id, opened.epoch)
        self.state = State.OPEN

    def _find_version(self) -> Steps[None]:
        features = yield from describe_features.steps(self.router)
        self._joins_by_writing = features.get("transaction.version", 0) >= 2

    @property
    def _has_begun(self) -> bool:
        """Whether the cluster may know of the transaction."""
        return bool(self._joined or self._groups) or self._taken_on

    def commit_steps(self, others: Sequence[OpenTransaction]) -> Steps[None]:
        """Commits: all of it becomes visible, a moment after this has returned, and all of `others`, which other
        producers have handed over: together or not at all. Their ids must be of the same partition of
        `__transaction_state` (see `transaction_groups`), and something must be written here, an offset for one.

        Raises `InDoubtError` where that is not known, `FencedError`, or what made a write fail: then it is not.
        """
        writer = yield from self._flushed()
        delivered, size = (0, 0) if writer is None else (writer.records_delivered, writer.bytes_delivered)
        if self._has_begun:
            yield from self._end_all(others) if others else self._end(committed=True)
        elif others:
            raise ValueError(f"transactional id {self.transactional_id}: nothing is written that others could end with")
        self.state = State.READY if self._identity != (-1, -1) else State.NEW
        self.records_committed += delivered
        self.bytes_committed += size
        if writer is not None:
            writer.records_delivered = writer.bytes_delivered = 0

    def abort_steps(self) -> Steps[None]:
        """Aborts: nothing of it is ever visible to `read_committed` readers. Raises `FencedError`."""
        if not self.is_open:
            raise ValueError(f"transactional id {self.transactional_id}: no transaction to abort")
        self._writer = None
        if self._has_begun:
            yield from self._end(committed=False)
        if not self._joins_by_writing:
            self._identity = (-1, -1)  # the sequences that brokers have seen are not known, and the epoch stays
        self.state = State.READY if self._identity != (-1, -1) else State.NEW

    def hand_over_steps(self) -> Steps[OpenTransaction | None]:
        """Waits until what was written is acknowledged, and leaves it for another producer to end; None if nothing
        was. This producer is at its end. The epoch must be this transaction's alone: below `transaction.version` 2 only
        the first one after `initialize` can be handed over.
        """
        yield from self._flushed()
        if not self._joins_by_writing and self._has_ended:
            raise ProtocolMismatchError("a second transaction can be handed over from transaction.version 2 on")
        opened = OpenTransaction(self.transactional_id, *self._identity) if self._has_begun else None
        self.state = State.DEAD
        self._forget()
        return opened

    def _end(self, *, committed: bool) -> Steps[None]:
        yield from self._decide(committed, ApiKey.END_TXN, self._ask_for_one(committed))

    def _end_all(self, others: Sequence[OpenTransaction]) -> Steps[None]:
        yield from self._decide(True, ApiKey.HEADRACE_GROUP_END_TXN, self._ask_for_all(others))

    def _decide(self, committed: bool, api_key: int, ask: Steps[tuple[int, int]]) -> Steps[None]:
        """Ends the transaction by `ask`, which returns the producer's id and epoch from now on."""
        try:
            identity = yield from ask
        except ClientError as error:
            if committed and not self._undecided and _leaves_open(api_key, error):
                self.state = State.FAILED
                raise
            self.state = State.DEAD
            self._forget()
            if committed and self._undecided:
                what = f"transactional id {self.transactional_id}: whether the transaction was committed is not known"
                raise InDoubtError(f"{what} ({error})") from error
            raise
        self._has_ended = True
        if self._joins_by_writing:
            self._identity = identity
            self._writer = None
        elif self._undecided:
            self._forget()

    def _ask_for_one(self, committed: bool) -> Steps[tuple[int, int]]:
        """EndTxn; returns the producer's id and epoch from now on."""
        from headrace.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

        request = EndTxnRequest(self.transactional_id, *self._identity, committed)
        answer = yield from self._ask(
            request, EndTxnResponse, lambda r: r.error_code, 5 if self._joins_by_writing else 4
        )
        return answer.producer_id, answer.producer_epoch

    def _ask_for_all(self, others: Sequence[OpenTransaction]) -> Steps[tuple[int, int]]:
        """The same of this transaction and others; the error names the one that is to blame."""
        from headrace.wire.messages import k19900_headrace_group_end_txn as k19900

        children = [k19900.GroupEndTxnChild(*each) for each in others]
        request = k19900.HeadraceGroupEndTxnRequest(self.transactional_id, *self._identity, True, children)
        named = ""

        def code_of(answer: k19900.HeadraceGroupEndTxnResponse) -> int:
            nonlocal named
            wrong = next((each for each in answer.children if each.error_code), None)
            named = "" if wrong is None else f"{wrong.transactional_id} of the group: {code_name(wrong.error_code)}"
            return answer.error_code

        try:
            answer = yield from self._ask(request, k19900.HeadraceGroupEndTxnResponse, code_of)
        except BrokerError as error:
            if error.code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                raise
            raise BrokerError(error.code, f"transactional id {self.transactional_id}", named) from error
        return answer.producer_id, answer.producer_epoch

    def _forget(self) -> None:
        self._identity = (-1, -1)
        self._writer = None

    @property
    def renews_epoch(self) -> bool:
        """Whether every transaction has an epoch of its own, as `initialize` has found: a fenced one gets an error."""
        return bool(self._joins_by_writing)

    # -- writes

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
        """Queues one record, as `ProducerMachine.send_steps`. Raises what ends the transaction or the producer."""
        writer = self._writing()
        if partition is None:
            partition = writer.known_choice(topic, key)
        if partition is None or not self._has_joined((topic, partition)):
            return self._sent_after_joining(
                writer,
                topic,
                value,
                {"key": key, "headers": headers, "timestamp_ms": timestamp_ms, "partition": partition},
            )
        try:
            steps = writer.send_steps(
                topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
            )
        except ClientError as error:
            self._fail(error)
        return None if steps is None else self._guarded(steps)

    def _has_joined(self, at: TopicPartition) -> bool:
        """Whether nothing needs to be asked before a write to this partition, which is noted."""
        if self._joins_by_writing:
            self._joined.add(at)
        return at in self._joined

    def _sent_after_joining(
        self, writer: ProducerMachine, topic: str, value: bytes | None, options: RecordOptions
    ) -> Steps[None]:
        partition = options["partition"]
        if partition is None:
            partition = options["partition"] = yield from writer.choose_steps(topic, options["key"])
        yield from self.join_steps([(topic, partition)])
        self._joined.add((topic, partition))
        steps = self.send_steps(topic, value, **options)
        if steps is not None:
            yield from steps

    def send_batch_steps(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> Steps[Delivery]:
        """Queues one ready-made batch, as `ProducerMachine.send_batch_steps`."""
        writer = self._writing()
        yield from self.join_steps([(topic, partition)])
        self._joined.add((topic, partition))
        return (yield from self._guarded(writer.send_batch_steps(topic, partition, batch)))

    def join_steps(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Adds the partitions that will be written to: one request for all, instead of one before the first write to
        each."""
        self._writing()
        fresh = [at for at in dict.fromkeys(partitions) if at not in self._joined]
        if fresh and not self._joins_by_writing:
            self._joined.update(fresh)
            yield from self._in_transaction(self._add(fresh))

    def _add(self, fresh: list[TopicPartition]) -> Steps[None]:
        from headrace.wire.messages import k24_add_partitions_to_txn as k24

        topics: dict[str, k24.AddPartitionsToTxnTopic] = {}
        for name, index in fresh:
            topics.setdefault(name, k24.AddPartitionsToTxnTopic(name=name)).partitions.append(index)
        producer_id, epoch = self._identity
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=list(topics.values()),
        )

        def code_of(answer: k24.AddPartitionsToTxnResponse) -> int:
            topics = answer.results_by_topic_v3_and_below
            found = {each.partition_error_code for topic in topics for each in topic.results_by_partition}
            found -= {ErrorCode.NONE}
            # one partition's fault fails all, and the others say that they were not tried
            return min(found - {ErrorCode.OPERATION_NOT_ATTEMPTED} or found or {ErrorCode.NONE})

        yield from self._ask(request, k24.AddPartitionsToTxnResponse, code_of, 3)

    def send_offsets_steps(self, group: str, offsets: Mapping[TopicPartition, int | Committed]) -> Steps[None]:
        """Commits a group's offsets with the transaction, from outside the group, whatever members it has."""
        from headrace.wire.messages import k25_add_offsets_to_txn as k25
        from headrace.wire.messages import k28_txn_offset_commit as k28

        yield from self._flushed()
        producer_id, epoch = self._identity
        if group not in self._groups and not self._joins_by_writing:
            add = k25.AddOffsetsToTxnRequest(self.transactional_id, producer_id, epoch, group)
            yield from self._in_transaction(self._ask(add, k25.AddOffsetsToTxnResponse, lambda r: r.error_code))
        self._groups.add(group)
        topics: dict[str, k28.TxnOffsetCommitRequestTopic] = {}
        for (name, index), given in offsets.items():
            place = given if isinstance(given, Committed) else Committed(given)
            topics.setdefault(name, k28.TxnOffsetCommitRequestTopic(name=name)).partitions.append(
                k28.TxnOffsetCommitRequestPartition(index, place.offset, place.leader_epoch, place.metadata)
            )
        request = k28.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=list(topics.values()),
        )

        def code_of(answer: k28.TxnOffsetCommitResponse) -> int:
            return max((p.error_code for topic in answer.topics for p in topic.partitions), key=abs, default=0)

        # version 6 names topics by id, and Kafka has it since 4.4 alone
        highest = 5 if self._joins_by_writing else 4
        yield from self._in_transaction(self._ask(request, k28.TxnOffsetCommitResponse, code_of, highest, group=group))

    def flush_steps(self) -> Steps[None]:
        """Waits until all that was sent is acknowledged, without a decision."""
        yield from self._flushed()

    def _writing(self) -> ProducerMachine:
        if self.state is not State.OPEN:
            raise ValueError(f"transactional id {self.transactional_id}: no transaction to write in")
        if self._writer is None:
            newest = _NEWEST if self._joins_by_writing else 11
            transaction = Transaction(self.transactional_id, *self._identity, newest)
            own = {"request_timeout_s": self.request_timeout_s, "transaction": transaction}
            options = cast("ProducerOptions", {**self._options, **own})
            self._writer = ProducerMachine(self.router, options)
        return self._writer

    def _flushed(self) -> Steps[ProducerMachine | None]:
        if self.state is not State.OPEN:
            raise ValueError(f"transactional id {self.transactional_id}: no transaction to write in")
        if self._writer is not None:
            yield from self._guarded(self._writer.flush_steps())
        return self._writer

    def _guarded(self, write: Steps[T]) -> Steps[T]:
        """Does a write, and takes what its partitions answered as the table says."""
        try:
            return (yield from write)
        except ClientError as error:
            self._fail(error)

    def _fail(self, error: ClientError) -> NoReturn:
        """Takes note of a write that failed. Raises its error, `FencedError` if a newer producer has the id."""
        if not isinstance(error, BrokerError) or class_of(ApiKey.PRODUCE, error.code) is not ErrorClass.FATAL:
            self.state = State.FAILED
            raise error
        self.state = State.DEAD
        self._forget()
        if error.code in _FENCED:
            raise FencedError(self.transactional_id, error.code) from error
        raise error

    def _in_transaction(self, ask: Steps[object]) -> Steps[None]:
        """Asks a coordinator; if that cannot be done the transaction has failed, unless the producer has."""
        try:
            yield from ask
        except ClientError:
            if self.state is State.OPEN:
                self.state = State.FAILED
            raise

    # -- coordinators

    def _ask(
        self,
        request: Request,
        response_class: type[R],
        code_of: Callable[[R], int],
        highest: int = _NEWEST,
        *,
        group: str | None = None,
    ) -> Steps[R]:
        """Asks the coordinator of the id, or of a group, until it answers with something else than to ask again."""
        key, kind = (self.transactional_id, TRANSACTION) if group is None else (group, GROUP)
        router = self.router
        retry = router.retry()
        self._undecided = False
        while True:
            try:
                patience_s = max(0.0, retry.remaining_s)
                connection = yield from router.coordinator_connection(key, kind=kind, timeout_s=patience_s)
                version = min(connection.channel.version_for(request.API_KEY), highest)
                call = connection.send(request, response_class, version=version)
            except (UnreachableError, ConnectionLostError) as error:
                router.forget_coordinator(key, kind=kind)
                yield from retry.pause(error)
                continue
            try:
                until = min(retry.deadline, router.clock.monotonic() + self.request_timeout_s)
                answer = yield from router.wait(call, until)
            except (ConnectionLostError, TimedOutError) as error:
                connection.close()  # an answer that comes late would block those behind it
                self._undecided = True
                router.forget_coordinator(key, kind=kind)
                yield from retry.pause(error)
                continue
            code = code_of(answer)
            if code == ErrorCode.NONE:
                return answer
            refused = self._refused(request.API_KEY, code, group)
            if class_of(request.API_KEY, code) is not ErrorClass.RETRIABLE:
                raise refused
            if code not in _UNDECIDED:
                self._undecided = True
                router.forget_coordinator(key, kind=kind)
            yield from retry.pause(refused)

    def _refused(self, api_key: int, code: int, group: str | None) -> BrokerError:
        """The answer as an exception, and the state that it leaves."""
        if api_key != ApiKey.END_TXN and self.state is State.OPEN and class_of(api_key, code) is ErrorClass.FATAL:
            self.state = State.DEAD
            self._forget()
        if code in _FENCED and api_key != ApiKey.INIT_PRODUCER_ID:
            return FencedError(self.transactional_id, code)
        of_group = "" if group is None else f", offsets of group {group}"
        return BrokerError(code, f"transactional id {self.transactional_id}{of_group}")
