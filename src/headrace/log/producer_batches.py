"""Adds batches to the state of producers: data of idempotent and transactional producers, and transaction markers."""

from __future__ import annotations

from collections.abc import Callable

from headrace.log.producers import Producers
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.batch import BatchHeader
from headrace.wire.markers import ABORT, marker_of
from headrace.wire.primitives import Buffer


def note_producer(producers: Producers, header: BatchHeader, batch: Callable[[], Buffer]) -> AbortedTransaction | None:
    """Takes in a batch of a producer that is in the log; see `stage_producer`."""
    aborted = stage_producer(producers, header, batch)
    producers.commit()
    return aborted


def stage_producer(producers: Producers, header: BatchHeader, batch: Callable[[], Buffer]) -> AbortedTransaction | None:
    """Stages a batch of a producer; returns the entry that the transaction index gets with it, if any.

    `batch` returns the whole batch, and is called for markers alone.
    """
    if not header.is_control:
        producers.stage(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.is_transactional,
        )
        return None
    if not header.record_count:
        return None  # the cleaner dropped the marker with its transaction
    marker = marker_of(header, batch())
    if marker is None:
        return None
    kind, coordinator_epoch, timestamp = marker
    return producers.stage_marker(
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
        header.base_offset,
        timestamp,
        abort=kind == ABORT,
    )


def marker_kind(header: BatchHeader, batch: Buffer) -> int | None:
    """Returns `ABORT` or `COMMIT` for a control batch that ends a transaction, None for others."""
    marker = marker_of(header, batch) if header.record_count else None
    return None if marker is None else marker[0]
