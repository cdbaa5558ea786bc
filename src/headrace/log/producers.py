"""What a partition knows of its producers: sequences for idempotence, open and aborted transactions.

Kept for each producer id: its epoch, its last five batches, and where its open transaction begins. Written to
`.snapshot` files (see `producer_snapshot.py`) and rebuilt from them and the log behind them.
"""

from __future__ import annotations

import heapq
from typing import Literal, NamedTuple

from headrace.log.producer_snapshot import SnapshotEntry
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.errors import ErrorCode

Origin = Literal["client", "coordinator", "controller", "replica"]

BATCHES_MAX = 5
"""Batches that are remembered of a producer (and most requests that an idempotent producer may have in flight)."""

PRODUCERS_MAX = 10_000
"""Producers that a partition remembers when nothing else is configured; those idle longest go first."""

EXPIRATION_MS = 86_400_000
"""How long an idle producer is remembered when nothing else is configured (producer.id.expiration.ms)."""

SEQUENCE_MODULUS = 1 << 31


class SequencedBatch(NamedTuple):
    """One remembered batch of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Producer:
    """One producer id on one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_first_offset")

    def __init__(self, epoch: int = -1) -> None:
        self.epoch = epoch
        self.batches: list[SequencedBatch] = []
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_first_offset = -1  # -1 when no transaction is open


class Refusal(NamedTuple):
    """Why a batch was refused, or (DUPLICATE_SEQUENCE_NUMBER) which batch it repeats."""

    error: ErrorCode
    message: str
    duplicate: SequencedBatch | None = None


class Producers:
    """All producers of one partition."""

    __slots__ = ("_by_id", "_completed", "_ongoing", "expiration_ms", "producers_max")

    def __init__(self, *, expiration_ms: int = EXPIRATION_MS, producers_max: int = PRODUCERS_MAX) -> None:
        self.expiration_ms = expiration_ms
        self.producers_max = producers_max
        self._by_id: dict[int, Producer] = {}
        self._ongoing: dict[int, int] = {}  # first offset of each open transaction, in rising order -> producer id
        self._completed: list[tuple[int, int]] = []  # (first offset, marker offset) not known to be replicated yet

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, producer_id: int) -> Producer | None:
        """What is known of a producer."""
        return self._by_id.get(producer_id)

    def items(self) -> list[tuple[int, Producer]]:
        """All producers by id."""
        return sorted(self._by_id.items())

    def clear(self) -> None:
        """Forgets everything."""
        self._by_id.clear()
        self._ongoing.clear()
        self._completed.clear()

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int, offset: int
    ) -> Refusal | None:
        """Whether a client's batch may be appended next; None when it may."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            return None  # nothing known (new, or expired): any sequence starts it (KIP-360)
        batches = producer.batches
        if epoch == producer.epoch:
            if batches:
                last = batches[-1].last_sequence
                if first_sequence == last + 1 or (first_sequence == 0 and last == SEQUENCE_MODULUS - 1):
                    return None
                for batch in batches:
                    if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                        return Refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "The batch is in the log already.", batch)
            else:
                # Known by a marker alone: its sequence starts afresh.
                last = -1
                if first_sequence == 0:
                    return None
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {producer_id} at offset {offset}: {first_sequence} "
                f"(incoming seq. number), {last} (current end sequence number)",
            )
        return self._check_other_epoch(producer_id, producer, epoch, first_sequence, offset)

    def _check_other_epoch(
        self, producer_id: int, producer: Producer, epoch: int, first_sequence: int, offset: int
    ) -> Refusal | None:
        refusal = self.check_epoch(producer_id, epoch, offset)
        if refusal is None and first_sequence != 0 and producer.epoch != -1:
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch of producer {producer_id} at offset {offset}: {epoch} "
                f"(request epoch), {first_sequence} (seq. number), {producer.epoch} (current producer epoch)",
            )
        return refusal

    def check_epoch(self, producer_id: int, epoch: int, offset: int) -> Refusal | None:
        """What is checked of coordinators too: a producer that a newer one has replaced may not write."""
        producer = self._by_id.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            return Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} at offset {offset} is {epoch}, which is smaller than the last seen "
                f"epoch {producer.epoch}",
            )
        return None

    def check_transaction(self, producer_id: int, is_transactional: bool, offset: int) -> Refusal | None:
        """A producer with an open transaction may write nothing outside of it."""
        producer = self._by_id.get(producer_id)
        if producer is not None and producer.transaction_first_offset >= 0 and not is_transactional:
            return Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id} at offset {offset}",
            )
        return None

    def append(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """Takes in a data batch that is in the log now."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            if len(self._by_id) >= self.producers_max:
                self._forget_idle()
            producer = self._by_id[producer_id] = Producer(epoch)
        batches = producer.batches
        if epoch != producer.epoch:
            producer.epoch = epoch
            batches.clear()
        elif len(batches) == BATCHES_MAX:
            del batches[0]
        last_sequence = first_sequence
        if first_sequence >= 0:
            last_sequence = (first_sequence + last_offset - first_offset) % SEQUENCE_MODULUS
        batches.append(SequencedBatch(first_sequence, last_sequence, first_offset, last_offset, timestamp))
        producer.last_timestamp = timestamp
        if is_transactional and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = first_offset
            self._ongoing[first_offset] = producer_id

    def take_back(self, end_offset: int) -> bool:
        """Forgets the batches at or above an offset, which could not be written; False where only the log can tell.

        A producer of which nothing is left may go on with any sequence, as one that is not known.
        """
        for producer_id, producer in list(self._by_id.items()):
            batches = producer.batches
            if producer.transaction_first_offset >= end_offset:
                return False
            if batches and batches[-1].last_offset >= end_offset:
                while batches and batches[-1].last_offset >= end_offset:
                    batches.pop()
                if not batches and producer.transaction_first_offset < 0:
                    del self._by_id[producer_id]
        return True

    def append_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, *, abort: bool
    ) -> AbortedTransaction | None:
        """Takes in an end-of-transaction marker; returns the entry for the transaction index where one was aborted."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._by_id[producer_id] = Producer(epoch)
        if epoch != producer.epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        first_offset = producer.transaction_first_offset
        if first_offset < 0:
            return None
        producer.transaction_first_offset = -1
        self._ongoing.pop(first_offset, None)
        last_stable_offset = min(self._ongoing, default=offset + 1)
        self._completed.append((first_offset, offset))
        if not abort:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins, None when none is open."""
        return next(iter(self._ongoing), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where read_committed may read: before the first transaction that is open or whose end may be lost."""
        if not self._ongoing and not self._completed:
            return high_watermark
        if self._completed:
            self._completed = [pair for pair in self._completed if pair[1] >= high_watermark]
        stable = min((first for first, _ in self._completed), default=high_watermark)
        undecided = self.first_undecided_offset
        return min(stable, high_watermark if undecided is None else undecided, high_watermark)

    def remove_expired(self, now_ms: int) -> None:
        """Forgets the producers that have been idle for `expiration_ms` and have no open transaction."""
        oldest = now_ms - self.expiration_ms
        expired = [
            producer_id
            for producer_id, producer in self._by_id.items()
            if producer.last_timestamp <= oldest and producer.transaction_first_offset < 0
        ]
        for producer_id in expired:
            del self._by_id[producer_id]

    def _forget_idle(self) -> None:
        """Makes room for one hundredth of the bound at once, so that a flood of producers stays cheap."""
        idle = (
            (producer.last_timestamp, producer_id)
            for producer_id, producer in self._by_id.items()
            if producer.transaction_first_offset < 0
        )
        for _, producer_id in heapq.nsmallest(max(1, self.producers_max // 100), idle):
            del self._by_id[producer_id]

    def to_snapshot(self) -> list[SnapshotEntry]:
        """The entries of a snapshot file: the last batch of each producer."""
        entries: list[SnapshotEntry] = []
        for producer_id, producer in self._by_id.items():
            last_sequence, last_offset, offset_delta = -1, -1, 0
            if producer.batches:
                last = producer.batches[-1]
                last_sequence, last_offset = last.last_sequence, last.last_offset
                offset_delta = last.last_offset - last.first_offset
            entries.append(
                SnapshotEntry(
                    producer_id,
                    producer.epoch,
                    last_sequence,
                    last_offset,
                    offset_delta,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                    producer.transaction_first_offset,
                )
            )
        return entries

    def load(self, entries: list[SnapshotEntry], now_ms: int) -> None:
        """Starts from a snapshot; producers that have expired since are left out."""
        self.clear()
        open_transactions: list[tuple[int, int]] = []
        for entry in entries:
            idle_ms = now_ms - entry.timestamp
            if entry.current_txn_first_offset < 0 and idle_ms >= self.expiration_ms:
                continue
            producer = Producer(entry.epoch)
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.last_timestamp = entry.timestamp
            producer.transaction_first_offset = entry.current_txn_first_offset
            if entry.last_offset >= 0:
                first_sequence = entry.last_sequence
                if first_sequence >= 0:
                    first_sequence = (entry.last_sequence - entry.offset_delta) % SEQUENCE_MODULUS
                producer.batches.append(
                    SequencedBatch(
                        first_sequence,
                        entry.last_sequence,
                        entry.last_offset - entry.offset_delta,
                        entry.last_offset,
                        entry.timestamp,
                    )
                )
            self._by_id[entry.producer_id] = producer
            if entry.current_txn_first_offset >= 0:
                open_transactions.append((entry.current_txn_first_offset, entry.producer_id))
        self._ongoing.update(sorted(open_transactions))
