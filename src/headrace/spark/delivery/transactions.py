"""The sink's transactional producers, and how transactions are filled, aborted and abandoned."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.client.cluster import Client
from headrace.client.deliveries import Delivery
from headrace.client.errors import ClientError, FencedError
from headrace.client.transacting import TIMEOUT_MS, OpenTransaction, State
from headrace.client.transaction_groups import abandon, end_leftovers
from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery import commit_records
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.encoding import SourceRange, span_of
from headrace.spark.delivery.messages import TaskMessage
from headrace.spark.options import SinkOptions


def producer_of(
    options: SinkOptions, client: Client, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS
) -> TransactionalProducer:
    """Returns a transactional producer with the sink's settings. Unless these say for how long a transaction may be
    open, `timeout_ms` does."""
    return TransactionalProducer(
        client,
        transactional_id,
        timeout_ms=options.produce.transaction_timeout_ms or timeout_ms,
        request_timeout_s=options.cluster.request_timeout_ms / 1000,
        delivery_timeout_s=options.produce.delivery_timeout_ms / 1000,
        compression=options.compression,
    )


def send_parts(producer: TransactionalProducer, parts: Sequence[TaskMessage]) -> list[Span]:
    """Sends everything that the tasks have encoded, and returns where it is once it is acknowledged."""
    producer.join((topic, partition) for part in parts for topic, partition, _, _ in part.batches)
    sent: list[tuple[Delivery, SourceRange]] = []
    for part in parts:
        for place, (topic, partition, batch, _) in enumerate(part.batches):
            sources = part.sources[place] if part.sources else None
            sent.append((producer.send_batch(topic, partition, batch), sources))
    producer.flush()
    return commit_records.joined(span_of(done, sources) for done, sources in sent)


@contextmanager
def aborted_on_error(producer: TransactionalProducer) -> Iterator[None]:
    """Aborts the producer's transaction if the block fails, so that readers do not wait for its timeout. Raises
    `FencedError` instead if a newer producer has the id."""
    try:
        yield
    except BaseException as error:
        if producer.state in (State.OPEN, State.FAILED):
            try:
                producer.abort()
            except FencedError as fenced:
                raise fenced from error
            except ClientError as second:
                error.add_note(f"the transaction could not be aborted and ends by its timeout: {second}")
        raise


def opened_by(parts: Sequence[TaskMessage]) -> list[OpenTransaction]:
    """Returns the open transactions in which tasks have written."""
    return [part.opened for part in parts if part.opened is not None]


def abandon_tasks(client: Client, parts: Sequence[TaskMessage]) -> None:
    """Aborts what tasks have written and nobody commits, so that readers do not wait for its timeout; what is decided
    stays."""
    try:
        abandon(client, opened_by(parts))
    except ClientError as error:  # nobody is asked twice: the timeout does the same
        warnings.warn(f"What tasks have written stays open until its timeout: {error}.", RuntimeWarning, stacklevel=2)


def end_others(client: Client, group: str, parts: Sequence[TaskMessage]) -> None:
    """Aborts what other tasks of the query have left open: those that failed, were killed, or lost to another attempt,
    and those of runs that are over. The batch is committed, whatever comes of this."""
    try:
        end_leftovers(client, group, keep={each.transactional_id for each in opened_by(parts)})
    except ClientError as error:
        what = "What other tasks of the query have left open stays so until its timeout"
        warnings.warn(f"{what}: {error}.", RuntimeWarning, stacklevel=2)
