"""The states of a transactional id, and which of them may follow which. Source: KIP-98, KIP-890."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The state of a transactional id; the number is its value in `__transaction_state`."""

    EMPTY = 0
    """The id has a producer, and has had no transaction yet."""
    ONGOING = 1
    """A transaction is open."""
    PREPARE_COMMIT = 2
    """The commit is decided, and markers are being written."""
    PREPARE_ABORT = 3
    """The abort is decided, and markers are being written."""
    COMPLETE_COMMIT = 4
    """The last transaction was committed: every partition has its marker."""
    COMPLETE_ABORT = 5
    """The last transaction was aborted: every partition has its marker."""
    DEAD = 6
    """Its removal was decided; never written."""
    PREPARE_EPOCH_FENCE = 7
    """Never written; Apache Kafka's coordinator keeps it in memory."""

    @property
    def label(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction's end is decided, and markers are missing."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Whether no transaction is open."""
        return self in _AT_REST


_S = TransactionState
_LABELS: Final = {state: state.name.title().replace("_", "") for state in _S}
_AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

FOLLOWS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: _AT_REST,
    _S.ONGOING: _AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: _AT_REST | {_S.ONGOING},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
}
"""The states that may precede each state. Only with transaction.version 2 PREPARE_ABORT follows a state at rest."""
