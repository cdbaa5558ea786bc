"""A transactional id as the log holds it, and its transitions: each returns the record of the next state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.transactions.asks import NO_ID, TopicPartition
from headrace.transactions.states import FOLLOWS, TransactionState

EPOCH_MAX: Final = 32767
"""The largest epoch of the format; never given to a producer, so that the holder of the epoch below can still be
fenced."""
EXHAUSTED_EPOCH: Final = EPOCH_MAX - 1
"""The last epoch of a producer id."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a transaction that only its producer ends (KIP-939)."""
RAISES_EPOCH_FROM: Final = 2
"""The transaction.version from which every end raises the producer's epoch (KIP-890)."""


class Transaction(NamedTuple):
    """One transactional id after one of its transitions: a record of `__transaction_state`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    """When the transaction was opened, by the wall clock; -1 before the first."""
    updated_ms: int = -1
    previous_producer_id: int = NO_ID
    """The producer id before this step: usually the same."""
    next_producer_id: int = NO_ID
    """The producer id after the transaction whose end uses up the last epoch."""
    last_epoch: int = NO_ID
    """The epoch before the last raise; not in the log: -1 after a load, and if no producer may return with it."""
    version: int = 0
    """The transaction.version of the request of the last step."""

    @property
    def is_exhausted(self) -> bool:
        """Whether a producer with the next epoch could no longer be fenced."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def raises_epoch(self) -> bool:
        """Whether the end of this transaction raised the epoch."""
        return self.version >= RAISES_EPOCH_FROM

    def _moved(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        assert self.state in FOLLOWS[state], f"{self.transactional_id}: {state.name} after {self.state.name}"
        return self._replace(state=state, updated_ms=now_ms, previous_producer_id=self.producer_id, **changes)

    def initialized(
        self, producer_id: int, producer_epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """Returns the state after InitProducerId: a new producer, or the same one with another epoch."""
        assert producer_id >= 0 and 0 <= producer_epoch < EPOCH_MAX, "no producer is given the last epoch"
        return self._moved(
            TransactionState.EMPTY, now_ms,
            producer_id=producer_id, producer_epoch=producer_epoch, last_epoch=last_epoch, timeout_ms=timeout_ms,
            partitions=frozenset(), start_ms=-1,
        )  # fmt: skip

    def joined(self, partitions: frozenset[TopicPartition], version: int, now_ms: int) -> Transaction:
        """Returns the state with these partitions added; the first opens the transaction."""
        return self._moved(
            TransactionState.ONGOING, now_ms,
            partitions=self.partitions | partitions, start_ms=now_ms if self.state.is_at_rest else self.start_ms,
            version=version,
        )  # fmt: skip

    def prepared(self, committed: bool, version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """Returns the state with the end decided. With transaction.version 2 the epoch rises, for the markers and for
        what follows."""
        assert next_producer_id == NO_ID or self.is_exhausted, "an id is replaced once its epochs are used up"
        changes: dict[str, Any] = {}
        if version >= RAISES_EPOCH_FROM:
            changes["producer_epoch"] = min(self.producer_epoch + 1, EPOCH_MAX)
            changes["last_epoch"] = self.producer_epoch
        return self._moved(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT, now_ms,
            start_ms=now_ms if self.state.is_at_rest else self.start_ms,
            next_producer_id=next_producer_id, version=version, **changes,
        )  # fmt: skip

    def fenced(self) -> Transaction:
        """Returns the state with a raised epoch, if the end itself does not raise it. To be prepared, not written."""
        assert self.state is TransactionState.ONGOING, "a producer is fenced for its open transaction"
        return self._replace(producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX), last_epoch=NO_ID)

    def completed(self, now_ms: int) -> Transaction:
        """Returns the state after every partition has its marker."""
        committed = self.state is TransactionState.PREPARE_COMMIT
        changes: dict[str, Any] = {"partitions": frozenset(), "next_producer_id": NO_ID}
        if self.raises_epoch and self.next_producer_id != NO_ID:
            changes["producer_id"] = self.next_producer_id
            changes["producer_epoch"] = 0
        state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        return self._moved(state, now_ms, **changes)


@dataclass(frozen=True, slots=True)
class Removed:
    """The tombstone of a transactional id."""

    transactional_id: str


TransactionRecord: TypeAlias = Transaction | Removed
