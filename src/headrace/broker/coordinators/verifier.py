"""Asks transaction coordinators, for partition leaders, whether a partition is in a transaction, or to add it
(KIP-890).

Each coordinator's broker has one queue and one request in flight: later questions go together into the next request,
and one producer's questions about several partitions are merged. This broker's own coordinator is asked at once, for
each question. Retries are made only for CONCURRENT_TRANSACTIONS, because the markers of the previous transaction are
then being written, and for partitions that were not checked because of errors of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from headrace.client.async_connection import AsyncConnection
from headrace.client.errors import ClientError, UnreachableError
from headrace.client.security import ConnectionSecurity
from headrace.env.completion import Completion
from headrace.transactions.asks import Partitions, TopicPartition, Verdicts
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.sharding import partition_of

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env import Node
    from headrace.env.clock import Clock
    from headrace.metadata.image import ClusterImage, Endpoint

TRANSACTIONS_TOPIC: Final = "__transaction_state"
QUEUED_MAX: Final = 10_000
"""Bound on the transactions that wait for one coordinator's broker."""
TRANSACTIONS_AT_ONCE: Final = 1_000
"""Bound on the transactions of one request."""

_FIRST_PAUSE_SHARE: Final = 1 / 16

PartitionErrors: TypeAlias = Mapping[TopicPartition, ErrorCode]
"""NONE for a partition that is in its transaction, or the error why that is not known."""

_FOR_BROKERS_FROM: Final = 4
_LEFT_OUT: Final = {ErrorCode.OPERATION_NOT_ATTEMPTED}
"""Errors of partitions that were not checked, because others in the same question had errors."""
_KNOWN: Final = frozenset(ErrorCode)
_PRODUCE_ERRORS: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}
"""Replacements for errors that a producer would misread, because they concern this broker or a request that it did not
send."""


class LocalTransactions(Protocol):
    """The transaction coordinator of this broker."""

    def add_partitions(self, ask: Partitions, verify_only: bool) -> Completion[Verdicts]:
        """Adds partitions to a transaction, or (`verify_only`) checks whether they are in it, with the errors of the
        newest version of AddPartitionsToTxn. The completion is done already if nothing has to be replicated."""
        ...


class Patience:
    """The time and the pauses for retrying CONCURRENT_TRANSACTIONS."""

    __slots__ = ("_clock", "_longest_s", "_pause_s", "_until")

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        """The first pause is a small part of the configured one, because markers take a few milliseconds; each further
        pause is twice as long, up to the configured one."""
        self._clock = clock
        self._longest_s = config.add_partitions_to_txn_retry_backoff_ms / 1000
        self._pause_s = self._longest_s * _FIRST_PAUSE_SHARE
        self._until = clock.monotonic() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000

    def pause_s(self) -> float | None:
        """Returns the next pause in seconds; None if it would end too late."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, self._longest_s)
        return pause_s if self._clock.monotonic() + pause_s <= self._until else None


class _Question:
    """A question about one producer's partitions, and the requests that wait for its answer."""

    __slots__ = ("ask", "verify_only", "waiting")

    def __init__(self, ask: Partitions, verify_only: bool) -> None:
        self.ask = ask
        self.verify_only = verify_only
        self.waiting: list[tuple[Partitions, Future[PartitionErrors]]] = []

    def takes(self, ask: Partitions, verify_only: bool) -> bool:
        """Returns whether one question can cover both."""
        return verify_only is self.verify_only and ask._replace(partitions=self.ask.partitions) == self.ask

    def wait(self, ask: Partitions, answer: Future[PartitionErrors]) -> None:
        """Adds a request and its partitions to the question."""
        self.ask = self.ask._replace(partitions=self.ask.partitions | ask.partitions)
        self.waiting.append((ask, answer))

    def tell(self, verdicts: Verdicts) -> None:
        """Gives each waiting request the coordinator's verdicts on its partitions."""
        for ask, answer in self.waiting:
            if not answer.done():
                answer.set_result(_errors_for(ask, verdicts))

    def fail(self, error: BaseException) -> None:
        """Raises a defect in the waiting requests."""
        for _, answer in self.waiting:
            if not answer.done():
                answer.set_exception(error)


class Verifier:
    """Asks coordinators about transactions. `local` is this broker's own coordinator, or None."""

    def __init__(
        self,
        node: Node,
        node_id: int,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        metrics: Registry,
        local: LocalTransactions | None = None,
        security: Callable[[], ConnectionSecurity] = ConnectionSecurity,
    ) -> None:
        """`security` returns the security of connections to other brokers."""
        self.local = local
        self.security = security
        self.node = node
        self.node_id = node_id
        self.owner = node.owner("verifier")
        self.config = config
        self._image = image
        self._lanes: dict[int, _Lane] = {}
        self._is_closed = False
        self.requests = metrics.counter("transactions.verification_requests")
        self.failures = metrics.counter("transactions.verification_failures")
        metrics.gauge("transactions.verifications_wait", lambda: sum(len(lane) for lane in self._lanes.values()))

    def join(self, ask: Partitions, *, verify_only: bool) -> PartitionErrors | Coroutine[Any, Any, PartitionErrors]:
        """Asks the transaction's coordinator about each partition; without `verify_only` it adds them. Returns the
        errors at once if this broker is the coordinator and nothing has to be replicated, else a coroutine.

        Errors are those of AddPartitionsToTxn, with INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED, and also
        NETWORK_EXCEPTION if there is no answer and COORDINATOR_NOT_AVAILABLE if no coordinator is known.
        """
        here = self._ask_here(ask, verify_only)
        if here is not None and here.done:
            errors = _errors_for(ask, here.take())
            if not _is_worth_retrying(errors, verify_only):
                return self._counted(errors)
        return self._join(ask, verify_only, here)

    async def _join(self, ask: Partitions, verify_only: bool, here: Completion[Verdicts] | None) -> PartitionErrors:
        """Asks until the verdict is final. `here` is a pending question to this broker's own coordinator."""
        patience = Patience(self.config(), self.node.clock)
        while True:
            errors = await self._ask(ask, verify_only) if here is None else _errors_for(ask, await here)
            if not _is_worth_retrying(errors, verify_only):
                break
            pause_s = patience.pause_s()
            if pause_s is None:
                errors = _all(ask, ErrorCode.NETWORK_EXCEPTION) if _is_left_out(errors) else errors
                break
            await asyncio.sleep(pause_s)
            here = self._ask_here(ask, verify_only)
        return self._counted(errors)

    def _counted(self, errors: PartitionErrors) -> PartitionErrors:
        self.failures.value += sum(error is not ErrorCode.NONE for error in errors.values())
        return errors

    def _ask_here(self, ask: Partitions, verify_only: bool) -> Completion[Verdicts] | None:
        """Asks this broker's own coordinator; returns None if it is not this transaction's."""
        if self.local is None or self._is_closed or self._coordinator_of(ask.transactional_id) != self.node_id:
            return None
        self.requests.value += 1
        return self.local.add_partitions(ask, verify_only)

    async def _ask(self, ask: Partitions, verify_only: bool) -> PartitionErrors:
        """Asks another broker."""
        coordinator = self._coordinator_of(ask.transactional_id)
        if self._is_closed:
            return _all(ask, ErrorCode.NETWORK_EXCEPTION)
        if coordinator is None or coordinator == self.node_id:
            return _all(ask, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        lane = self._lanes.get(coordinator)
        if lane is None:
            lane = self._lanes[coordinator] = _Lane(self, coordinator)
        return await lane.ask(ask, verify_only)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        """Returns the broker that leads the transactional id's partition; None if it is not known."""
        image = self._image()
        topic = image.topics.by_name(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader
        is_known = leader == self.node_id or self.endpoint_of(leader) is not None
        return leader if is_known else None

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """Returns a broker's endpoint for other brokers, if it is known."""
        broker = self._image().brokers.get(node_id)
        return None if broker is None else broker.endpoint(self.config().inter_broker_listener)

    def close(self) -> None:
        """Closes all connections; waiting requests get NETWORK_EXCEPTION."""
        self._is_closed = True
        self.owner.close()
        for lane in self._lanes.values():
            lane.close()


def _is_left_out(errors: PartitionErrors) -> bool:
    return set(errors.values()) == _LEFT_OUT


def _is_worth_retrying(errors: PartitionErrors, verify_only: bool) -> bool:
    """Returns whether a retry may soon get another answer."""
    return (not verify_only and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()) or _is_left_out(errors)


class _Lane:
    """The queue of questions to the coordinator on another broker."""

    def __init__(self, verifier: Verifier, coordinator: int) -> None:
        self._verifier = verifier
        self._coordinator = coordinator
        self._queued: dict[str, _Question] = {}
        """Waiting questions by transactional id, in order of arrival."""
        self._in_flight: list[_Question] = []
        self._is_running = False
        self._link: AsyncConnection | None = None
        self._to: Endpoint | None = None

    def __len__(self) -> int:
        return len(self._queued) + len(self._in_flight)

    async def ask(self, ask: Partitions, verify_only: bool) -> PartitionErrors:
        """Queues a question. It is merged with a waiting one of the same producer, and replaces one of an older
        producer epoch."""
        before = self._queued.get(ask.transactional_id)
        if before is not None and before.ask.producer_epoch > ask.producer_epoch:
            return _all(ask, ErrorCode.INVALID_PRODUCER_EPOCH)
        if before is None and len(self._queued) >= QUEUED_MAX:
            return _all(ask, ErrorCode.NETWORK_EXCEPTION)
        if before is None or not before.takes(ask, verify_only):
            if before is not None:
                is_same = before.ask.producer_epoch == ask.producer_epoch
                error = ErrorCode.NETWORK_EXCEPTION if is_same else ErrorCode.INVALID_PRODUCER_EPOCH
                before.tell(Verdicts(error, {}))
            before = self._queued[ask.transactional_id] = _Question(ask, verify_only)
        answer: Future[PartitionErrors] = self._verifier.node.future()
        before.wait(ask, answer)
        if not self._is_running:
            self._is_running = True
            self._verifier.owner.spawn(self._run())
        return await answer

    async def _run(self) -> None:
        while self._queued:
            first = list(self._queued)[:TRANSACTIONS_AT_ONCE]
            self._in_flight = questions = [self._queued.pop(each) for each in first]
            self._verifier.requests.value += 1
            try:
                await self._ask_there(questions)
            except Exception as error:  # raised in the waiting requests
                for question in questions:
                    question.fail(error)
            self._in_flight = []
        self._is_running = False

    async def _ask_there(self, questions: list[_Question]) -> None:
        try:
            link = await self._connected()
            newest = link.channel.versions.get(ApiKey.ADD_PARTITIONS_TO_TXN, (0, -1))[1]
            if 0 <= newest < _FOR_BROKERS_FROM:
                # The broker would take the question for a client's and add the partitions; as in Kafka, nothing is
                # verified.
                _tell_all((each for each in questions if each.verify_only), ErrorCode.NONE)
                _tell_all((each for each in questions if not each.verify_only), ErrorCode.UNSUPPORTED_VERSION)
                return
            timeout_s = self._verifier.config().request_timeout_ms / 1000
            response = await link.ask(request_of(questions), AddPartitionsToTxnResponse, timeout_s=timeout_s)
        except ClientError:
            _tell_all(questions, ErrorCode.NETWORK_EXCEPTION)
            return
        verdicts = _verdicts_of(response)
        error = _code(response.error_code)
        missing = Verdicts(error, {})
        for question in questions:
            verdict = missing if error else verdicts.get(question.ask.transactional_id, missing)
            question.tell(verdict)

    async def _connected(self) -> AsyncConnection:
        verifier = self._verifier
        endpoint = verifier.endpoint_of(self._coordinator)
        if endpoint is None:
            raise UnreachableError(f"broker {self._coordinator} is not in the cluster any more")
        link = self._link
        if link is not None and not link.closed and self._to == endpoint:
            return link
        if link is not None:
            link.close()
        self._link = await AsyncConnection.open(
            verifier.node,
            verifier.owner,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{verifier.node_id}-verifier",
            timeout_s=verifier.config().socket_connection_setup_timeout_ms / 1000,
            security=verifier.security(),
        )
        self._to = endpoint
        return self._link

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        _tell_all([*self._in_flight, *self._queued.values()], ErrorCode.NETWORK_EXCEPTION)
        self._queued.clear()


def request_of(questions: Iterable[_Question]) -> AddPartitionsToTxnRequest:
    """Returns one request for all questions."""
    transactions = []
    for question in questions:
        ask = question.ask
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(ask.partitions):
            by_topic.setdefault(topic, []).append(index)
        topics = [AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in by_topic.items()]
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=ask.transactional_id,
                producer_id=ask.producer_id,
                producer_epoch=ask.producer_epoch,
                verify_only=question.verify_only,
                topics=topics,
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def _verdicts_of(response: AddPartitionsToTxnResponse) -> dict[str, Verdicts]:
    return {
        result.transactional_id: Verdicts(
            ErrorCode.NONE,
            {
                (topic.name, each.partition_index): _code(each.partition_error_code)
                for topic in result.topic_results
                for each in topic.results_by_partition
            },
        )
        for result in response.results_by_transaction
    }


def _errors_for(ask: Partitions, verdicts: Verdicts) -> PartitionErrors:
    """Returns the error of each asked partition; a partition without a verdict is in no transaction."""
    error = _PRODUCE_ERRORS.get(verdicts.error, verdicts.error)
    if error:
        return _all(ask, error)
    found = {each: verdicts.partitions.get(each, ErrorCode.INVALID_TXN_STATE) for each in ask.partitions}
    return {each: _PRODUCE_ERRORS.get(error, error) for each, error in found.items()}


def _all(ask: Partitions, error: ErrorCode) -> PartitionErrors:
    return dict.fromkeys(ask.partitions, error)


def _tell_all(questions: Iterable[_Question], error: ErrorCode) -> None:
    for question in questions:
        question.tell(Verdicts(error, _all(question.ask, error)))


def _code(code: int) -> ErrorCode:
    return ErrorCode(code) if code in _KNOWN else ErrorCode.UNKNOWN_SERVER_ERROR
