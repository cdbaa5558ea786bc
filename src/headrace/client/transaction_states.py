"""Transactions from outside: list, describe, find those that hang, and end one. Taking part in one is `transactions`.

A transaction hangs where a partition holds its records and its coordinator does not know of it, or not any more: nobody
ends it, and `read_committed` readers wait (KIP-664). With verification (KIP-890) none can begin to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.client.conversation import Steps
from headrace.client.errors import BrokerError
from headrace.client.metadata import TopicPartition
from headrace.client.operations import operation
from headrace.client.routing import TRANSACTION, Router
from headrace.wire.errors import ErrorCode

HANGS_AFTER_MS: Final = 900_000
"""No transaction is open for longer: Kafka's default of `transaction.max.timeout.ms`."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator describes it. `start_ms` is -1 before the first transaction; `partitions`
    are those that the transaction, or its end, still concerns."""

    transactional_id: str
    coordinator: int
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer as the leader of a partition knows it. `start_offset` is where its open transaction begins, or -1."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_sequence: int
    last_ms: int


@operation
def list_transactions(
    router: Router,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> Steps[list[TransactionListing]]:
    """The transactional ids of the cluster, sorted; each broker is asked for those that it coordinates.

    Empty filters let everything pass. `longer_than_ms` needs ListTransactions v1, `pattern` (RE2, of the whole id) v2.
    Raises `BrokerError`: UNSUPPORTED_VERSION from older brokers, INVALID_REGULAR_EXPRESSION.
    """
    from headrace.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

    request = ListTransactionsRequest(list(states), list(producer_ids), longer_than_ms, pattern)
    yield from router.refresh([])
    found: list[TransactionListing] = []
    for node_id in sorted(router.brokers.nodes):
        response = yield from router.checked(
            request,
            ListTransactionsResponse,
            lambda r: (r.error_code, None),
            f"transactions of broker {node_id}",
            node_id=node_id,
        )
        found += [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
            for each in response.transaction_states
        ]
    return sorted(found, key=lambda each: each.transactional_id)


@operation
def describe_transaction(router: Router, transactional_id: str) -> Steps[TransactionDescription]:
    """A transactional id. Raises `BrokerError`: TRANSACTIONAL_ID_NOT_FOUND."""
    from headrace.wire.messages.k65_describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )

    response = yield from router.at_coordinator(
        transactional_id,
        DescribeTransactionsRequest([transactional_id]),
        DescribeTransactionsResponse,
        lambda r: r.transaction_states[0].error_code,
        kind=TRANSACTION,
    )
    described = response.transaction_states[0]
    return TransactionDescription(
        transactional_id,
        (yield from router.coordinator(transactional_id, kind=TRANSACTION)),
        described.transaction_state,
        described.transaction_timeout_ms,
        described.transaction_start_time_ms,
        described.producer_id,
        described.producer_epoch,
        tuple(sorted((topic.topic, index) for topic in described.topics for index in topic.partitions)),
    )


@operation
def describe_producers(router: Router, partitions: Iterable[TopicPartition]) -> Steps[list[ActiveProducer]]:
    """The producers that the leaders of these partitions know, by partition and id. Raises `BrokerError`."""
    from headrace.wire.messages.k61_describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponse,
        ProducerState,
        TopicRequest,
    )

    def request_of(part: dict[TopicPartition, None]) -> DescribeProducersRequest:
        topics: dict[str, list[int]] = {}
        for topic, index in part:
            topics.setdefault(topic, []).append(index)
        return DescribeProducersRequest([TopicRequest(name, indexes) for name, indexes in topics.items()])

    def results_of(response: DescribeProducersResponse) -> Iterator[tuple[TopicPartition, int, list[ProducerState]]]:
        for topic in response.topics:
            for each in topic.partitions:
                yield (topic.name, each.partition_index), each.error_code, each.active_producers

    found = yield from router.at_leaders(dict.fromkeys(partitions), request_of, DescribeProducersResponse, results_of)
    return [
        ActiveProducer(
            at,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.current_txn_start_offset,
            each.last_sequence,
            each.last_timestamp,
        )
        for at, producers in sorted(found.items())
        for each in sorted(producers, key=lambda each: each.producer_id)
    ]


@operation
def find_hanging(
    router: Router, partitions: Iterable[TopicPartition], *, longer_than_ms: int = HANGS_AFTER_MS
) -> Steps[list[ActiveProducer]]:
    """Open transactions of these partitions whose producers were silent for so long and that no coordinator knows."""
    before_ms = router.clock.time_ns() // 1_000_000 - longer_than_ms
    silent = [
        each
        for each in (yield from describe_producers.steps(router, partitions))
        if each.start_offset >= 0 and each.last_ms < before_ms
    ]
    if not silent:
        return []
    ids = sorted({each.producer_id for each in silent})
    known: dict[int, TransactionDescription] = {}
    for listed in (yield from list_transactions.steps(router, producer_ids=ids)):
        try:
            known[listed.producer_id] = yield from describe_transaction.steps(router, listed.transactional_id)
        except BrokerError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return [
        each
        for each in silent
        if (described := known.get(each.producer_id)) is None or each.partition not in described.partitions
    ]


@operation
def abort(router: Router, hanging: ActiveProducer) -> Steps[None]:
    """Ends the open transaction of a producer in one partition, for all readers and for good, whatever its coordinator
    says. Raises `BrokerError`: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED where it is not open any more."""
    from headrace.wire.messages.k27_write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

    def request_of(part: dict[TopicPartition, None]) -> WriteTxnMarkersRequest:
        marker = WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(topic, [index]) for topic, index in part],
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
        )
        return WriteTxnMarkersRequest([marker])

    def results_of(response: WriteTxnMarkersResponse) -> Iterator[tuple[TopicPartition, int, None]]:
        for topic in response.markers[0].topics:
            for each in topic.partitions:
                yield (topic.name, each.partition_index), each.error_code, None

    yield from router.at_leaders({hanging.partition: None}, request_of, WriteTxnMarkersResponse, results_of)
