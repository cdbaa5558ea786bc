"""The producers of a partition: sequences for idempotence, open and aborted transactions.

For each producer id: its epoch, its last five batches, and the start of its open transaction. Written to `.snapshot`
files (see `producer_snapshot.py`) and rebuilt from them and the log behind them.

A batch is checked and applied separately. `check` and `stage` use the log's state and the batches staged for the same
write; `commit` applies the staged batches once they are in the log, and `drop` discards them if they could not be
written. So a refused batch changes nothing of its producer, and a later one is not accepted in its place.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from struct import Struct
from typing import Final, Literal, NamedTuple

from headrace.log.guards import Guard, Guards
from headrace.log.producer_snapshot import SnapshotEntry
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import Buffer

Origin = Literal["client", "coordinator", "marker", "raising marker", "controller", "replica"]
"""Whose batches they are. Markers that end transactions come from a transaction's coordinator; a raising one carries an
epoch above that of the transaction that it ends (transaction.version 2: KIP-890)."""

BATCHES_MAX = 5
"""The number of remembered batches of a producer (and the most requests that an idempotent producer may have in
flight)."""

PRODUCERS_MAX = 10_000
"""The default limit of producers of a partition; those idle longest are dropped first."""

EXPIRATION_MS = 86_400_000
"""The default expiration of an idle producer (producer.id.expiration.ms)."""

SEQUENCE_MODULUS = 1 << 31

UNDECIDED: Final = (1 << 63) - 1
"""The marker offset of an open transaction: beyond every offset."""


class SequencedBatch(NamedTuple):
    """One remembered batch of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Producer(NamedTuple):
    """The state of one producer id on one partition, as an immutable value."""

    epoch: int = -1
    batches: tuple[SequencedBatch, ...] = ()
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    transaction_first_offset: int = -1
    """-1 if no transaction is open."""


class Owed(NamedTuple):
    """A refused batch (by a full disk, or before this log accepted its producer's batches) of a producer or an epoch
    that the log does not have yet.

    An unknown producer may start with any sequence, so a batch sent later would be accepted in its place.
    """

    epoch: int
    first_sequence: int
    timestamp: int


class Refusal(NamedTuple):
    """The reason why a batch was refused, or (DUPLICATE_SEQUENCE_NUMBER) the batch that it repeats."""

    error: ErrorCode
    message: str
    duplicate: SequencedBatch | None = None


_unpack_refused: Final = Struct(">qqhi").unpack_from  # largest timestamp, producer id, its epoch, first sequence
_REFUSED_AT: Final = 35 - 16
_new: Final = tuple.__new__
_NOBODY: Final = Producer()
_NONE_ONGOING: Final[dict[int, int]] = {}
_NOTHING_OWED: Final[dict[int, Owed]] = {}
"""Of the many partitions that have none: never changed."""
_OTHERS: Final = 1 - BATCHES_MAX
"""From here on a window stays when another batch comes."""


class Producers:
    """All producers of one partition."""

    __slots__ = (
        "_by_id",
        "_completed",
        "_ongoing",
        "_owed",
        "_staged_transactions",
        "expiration_ms",
        "guards",
        "producers_max",
        "staged",
        "unstable",
    )

    def __init__(self, *, expiration_ms: int = EXPIRATION_MS, producers_max: int = PRODUCERS_MAX) -> None:
        self.expiration_ms = expiration_ms
        self.producers_max = producers_max
        self._by_id: dict[int, Producer] = {}
        self._ongoing = _NONE_ONGOING  # first offset of each open transaction, in rising order -> producer id
        self._completed: tuple[tuple[int, int], ...] = ()  # (first offset, marker offset) maybe not replicated yet
        self._owed = _NOTHING_OWED  # at most `producers_max`
        self.unstable: tuple[tuple[int, int], ...] = ()
        """The transactions that may limit the last stable offset, as (first offset, marker offset): those that have
        ended, as long as the marker may be lost, and the oldest open one (`UNDECIDED`). Replaced, never changed: the
        same object means no change."""
        self.staged: dict[int, Producer] = {}
        """The state of producers after the next commit."""
        self.guards: Guards | None = None
        """The guards of transactions whose first batch waits to be verified; None: there never was one."""
        self._staged_transactions: tuple[dict[int, int], list[tuple[int, int]]] | None = None
        # `_ongoing` after it, and the additions to `_completed`; None: no transaction begins or ends with it

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, producer_id: int) -> Producer | None:
        """Returns the log's state of a producer, or None."""
        return self._by_id.get(producer_id)

    def items(self) -> list[tuple[int, Producer]]:
        """All producers by id."""
        return sorted(self._by_id.items())

    def empty(self) -> Producers:
        """Returns an empty object with the same limits."""
        return Producers(expiration_ms=self.expiration_ms, producers_max=self.producers_max)

    def clear(self) -> None:
        """Forgets everything."""
        self._by_id.clear()
        self._ongoing = _NONE_ONGOING
        self._completed = ()
        self._owed = _NOTHING_OWED
        self.unstable = ()
        self.guards = None
        self.drop()

    # Deciding

    def _latest(self, producer_id: int) -> Producer | None:
        """Returns the state of a producer with everything staged."""
        return self.staged.get(producer_id) or self._by_id.get(producer_id)

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int, offset: int
    ) -> Refusal | None:
        """Returns why a client's batch may not be appended next, or None."""
        if self._owed and producer_id in self._owed and producer_id not in self.staged:
            refusal = self._check_owed(producer_id, epoch, first_sequence, offset)
            if refusal is not None:
                return refusal
        producer = self.staged.get(producer_id) or self._by_id.get(producer_id)
        if producer is None:
            return None  # unknown (new, or expired): any sequence starts it (KIP-360)
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

    def _check_owed(self, producer_id: int, epoch: int, first_sequence: int, offset: int) -> Refusal | None:
        """Returns why a batch may not precede a refused one; None for that batch, or the first one of a newer epoch."""
        owed = self._owed[producer_id]
        if epoch < owed.epoch:
            return _stale_epoch(producer_id, epoch, owed.epoch, offset)
        next_sequence = owed.first_sequence if epoch == owed.epoch else 0
        if first_sequence != next_sequence:
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {producer_id} at offset {offset}: {first_sequence} "
                f"(incoming seq. number), the producer has not sent {next_sequence} again since its refusal",
            )
        return None

    def check_epoch(self, producer_id: int, epoch: int, offset: int) -> Refusal | None:
        """Refuses a fenced producer, for batches of coordinators too."""
        producer = self._latest(producer_id)
        if producer is not None and epoch < producer.epoch:
            return _stale_epoch(producer_id, epoch, producer.epoch, offset)
        return None

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, *, raises: bool
    ) -> Refusal | None:
        """Returns why a coordinator's marker may not be written, or None. If it `raises` the epoch, which is raised
        already, the open transaction belongs to the new epoch; without one it is a retry."""
        producer = self._latest(producer_id)
        if producer is None:
            return None
        is_ended = raises and epoch == producer.epoch and producer.transaction_first_offset >= 0
        if epoch < producer.epoch or is_ended:
            return _stale_epoch(producer_id, epoch, producer.epoch, offset)
        if coordinator_epoch < producer.coordinator_epoch:
            return Refusal(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {producer_id} at offset {offset}: {coordinator_epoch}, "
                f"which is smaller than the last seen epoch {producer.coordinator_epoch}",
            )
        return None

    def check_transaction(self, producer_id: int, is_transactional: bool, offset: int) -> Refusal | None:
        """Refuses a batch outside of the producer's open transaction."""
        if is_transactional:
            return None
        producer = self.staged.get(producer_id) or self._by_id.get(producer_id)
        if producer is not None and producer.transaction_first_offset >= 0:
            return Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id} at offset {offset}",
            )
        return None

    def claim(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        offset: int,
        *,
        transactional_id: str,
        raises: bool,
        now_ms: int,
    ) -> Guard | Refusal:
        """Returns the guard that a client's transactional batch needs when it is appended (see `check_guard`).

        If its transaction is open here the guard has a `first_offset`; otherwise the coordinator has to verify that the
        partition is in the transaction. `raises`: its end will raise the epoch. A fenced producer is refused at once.
        """
        producer = self._latest(producer_id)
        if producer is not None:
            if epoch < producer.epoch:
                return _stale_epoch(producer_id, epoch, producer.epoch, offset)
            if epoch == producer.epoch and producer.transaction_first_offset >= 0:
                first_offset = producer.transaction_first_offset
                return Guard(transactional_id, epoch, first_sequence, raises, now_ms, first_offset)
        if self.guards is None:
            self.guards = Guards(self.producers_max)
        guard = self.guards.begin(producer_id, transactional_id, epoch, first_sequence, raises=raises, now_ms=now_ms)
        if guard is None:
            waiting = self.guards.get(producer_id, transactional_id)
            assert waiting is not None, "a newer one waits"
            return _stale_epoch(producer_id, epoch, waiting.epoch, offset)
        return guard

    def check_guard(
        self, producer_id: int, epoch: int, first_sequence: int, offset: int, guard: Guard
    ) -> Refusal | None:
        """Whether a transactional batch that has claimed `guard` may be appended: its transaction is open here, or its
        coordinator's answer is about the transaction that it is going to open.
        """
        producer = self._latest(producer_id)
        if producer is not None and producer.epoch == epoch and producer.transaction_first_offset >= 0:
            if guard.first_offset == producer.transaction_first_offset:
                return None
        standing = None if self.guards is None else self.guards.get(producer_id, guard.transactional_id)
        if guard is not standing or guard.epoch != epoch:
            return Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"The batch of producer {producer_id} at offset {offset} is not part of an ongoing transaction",
            )
        if producer_id in self.staged:
            return None  # it comes behind the one that opens the transaction, with the same write
        first = 0 if guard.raises and producer is None else guard.lowest_sequence
        if first_sequence > first:
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {producer_id} at offset {offset}: {first_sequence} "
                f"(incoming seq. number), the transaction is to begin with {first}",
            )
        return None

    # Taking in

    def stage(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """Stages a data batch that is about to be written."""
        last_sequence = first_sequence
        if first_sequence >= 0:
            last_sequence = (first_sequence + last_offset - first_offset) % SEQUENCE_MODULUS
        batch = _new(SequencedBatch, (first_sequence, last_sequence, first_offset, last_offset, timestamp))
        staged = self.staged
        before = staged.get(producer_id) or self._by_id.get(producer_id) or _NOBODY
        known_epoch, batches, coordinator_epoch, _, transaction = before
        batches = batches[_OTHERS:] + (batch,) if epoch == known_epoch else (batch,)  # noqa: RUF005 (faster)
        if is_transactional and transaction < 0:
            transaction = first_offset
            self._change_transactions()[0][first_offset] = producer_id
        staged[producer_id] = _new(Producer, (epoch, batches, coordinator_epoch, timestamp, transaction))

    def stage_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, *, abort: bool
    ) -> AbortedTransaction | None:
        """Stages a transaction marker that is about to be written; returns the entry of the transaction index for an
        abort."""
        before = self._latest(producer_id) or _NOBODY
        batches = before.batches if epoch == before.epoch else ()
        self.staged[producer_id] = Producer(epoch, batches, coordinator_epoch, timestamp)
        first_offset = before.transaction_first_offset
        if first_offset < 0:
            return None
        ongoing, completed = self._change_transactions()
        ongoing.pop(first_offset, None)
        completed.append((first_offset, offset))
        if not abort:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, min(ongoing, default=offset + 1))

    def _change_transactions(self) -> tuple[dict[int, int], list[tuple[int, int]]]:
        if self._staged_transactions is None:
            self._staged_transactions = dict(self._ongoing), []
        return self._staged_transactions

    def commit(self) -> None:
        """Applies the staged batches, which are in the log now."""
        staged, by_id = self.staged, self._by_id
        if len(by_id) + len(staged) > self.producers_max:
            self._make_room()
        by_id.update(staged)
        if self._owed:
            for producer_id in staged:
                self._owed.pop(producer_id, None)  # what was refused has come again, or a newer epoch has
        if self.guards is not None:
            for producer_id, producer in staged.items():
                if producer.transaction_first_offset >= 0:
                    self.guards.opened(producer_id, producer.epoch, producer.transaction_first_offset)
                else:
                    self.guards.ended(producer_id, producer.epoch)
        staged.clear()
        if self._staged_transactions is not None:
            self._ongoing, completed = self._staged_transactions
            self._completed = (*self._completed, *completed)
            self._staged_transactions = None
            self._note_unstable()

    def drop(self) -> None:
        """Discards the staged batches, which could not be written."""
        self.staged.clear()
        self._staged_transactions = None

    def refused(self, batches: Sequence[Buffer]) -> None:
        """Notes refused batches (without their first 16 bytes), in order, that have to come again: they passed every
        check and could not be written (after `drop`), or the broker was not ready for them. Until they come, later ones
        are refused."""
        for batch in batches:
            timestamp, producer_id, epoch, first_sequence = _unpack_refused(batch, _REFUSED_AT)
            if producer_id < 0 or first_sequence < 0:
                continue
            known = self._by_id.get(producer_id)
            if known is not None and epoch <= known.epoch:
                continue  # the log determines which sequence comes next
            owed = self._owed.get(producer_id)
            if owed is not None and epoch <= owed.epoch:
                continue
            if self._owed is _NOTHING_OWED:
                self._owed = {}
            elif owed is None and len(self._owed) >= self.producers_max:
                del self._owed[next(iter(self._owed))]
            self._owed[producer_id] = Owed(epoch, first_sequence, timestamp)

    # Transactions

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction, or None."""
        return next(iter(self._ongoing), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset up to which read_committed may read: before the first transaction that is open or whose
        marker may be lost."""
        if not self.unstable:
            return high_watermark
        self.committed(high_watermark)
        return min((high_watermark, *(first for first, _ in self.unstable)))

    def committed(self, high_watermark: int) -> None:
        """Drops the ends of transactions below a high watermark: their markers cannot be lost."""
        left = tuple(pair for pair in self._completed if pair[1] >= high_watermark)
        if len(left) < len(self._completed):
            self._completed = left
            self._note_unstable()

    def _note_unstable(self) -> None:
        undecided = self.first_undecided_offset
        self.unstable = self._completed if undecided is None else (*self._completed, (undecided, UNDECIDED))

    # Forgetting

    def expire_after(self, expiration_ms: int) -> None:
        """Sets the expiration time of idle producers."""
        self.expiration_ms = expiration_ms

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
        if self._owed:
            self._owed = {each: owed for each, owed in self._owed.items() if owed.timestamp > oldest}
        if self.guards is not None:
            self.guards.remove_before(oldest)

    def _make_room(self) -> None:
        """Forgets those idle longest if the staged producers are too many; one hundredth of the bound more than that,
        so that a flood of producers stays cheap.
        """
        coming = sum(producer_id not in self._by_id for producer_id in self.staged)
        excess = len(self._by_id) + coming - self.producers_max
        if excess <= 0:
            return
        idle = (
            (producer.last_timestamp, producer_id)
            for producer_id, producer in self._by_id.items()
            if producer.transaction_first_offset < 0 and producer_id not in self.staged
        )
        for _, producer_id in heapq.nsmallest(excess + self.producers_max // 100, idle):
            del self._by_id[producer_id]

    # Snapshots

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
            batches: tuple[SequencedBatch, ...] = ()
            if entry.last_offset >= 0:
                first_sequence = entry.last_sequence
                if first_sequence >= 0:
                    first_sequence = (entry.last_sequence - entry.offset_delta) % SEQUENCE_MODULUS
                first_offset = entry.last_offset - entry.offset_delta
                batches = (
                    SequencedBatch(
                        first_sequence, entry.last_sequence, first_offset, entry.last_offset, entry.timestamp
                    ),
                )
            self._by_id[entry.producer_id] = Producer(
                entry.epoch, batches, entry.coordinator_epoch, entry.timestamp, entry.current_txn_first_offset
            )
            if entry.current_txn_first_offset >= 0:
                open_transactions.append((entry.current_txn_first_offset, entry.producer_id))
        self._ongoing = dict(sorted(open_transactions))
        self._note_unstable()


def _stale_epoch(producer_id: int, epoch: int, known_epoch: int, offset: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {producer_id} at offset {offset} is {epoch}, and the last seen epoch is {known_epoch}",
    )
