"""The decisions upon a transactional id: the next state, or an error.

While a transaction's markers are being written every request is answered CONCURRENT_TRANSACTIONS, whatever else is
wrong: the client retries, and the producer's id and epoch may have changed by then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.transactions.asks import NO_ID, End, FreshId, InitProducer, Partitions, TransactionSettings, Verdicts
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import EXHAUSTED_EPOCH, NO_TIMEOUT_MS, RAISES_EPOCH_FROM, Transaction
from headrace.wire.errors import ErrorCode

_S: Final = TransactionState


class Step(NamedTuple):
    """The decision upon a request."""

    error: ErrorCode
    """The answer once `record` is committed; with NONE, the producer's identity is answered."""
    record: Transaction | None = None
    """The next state; None if it stays."""


def _refused(error: ErrorCode) -> Step:
    return Step(error)


_CONCURRENT: Final = _refused(ErrorCode.CONCURRENT_TRANSACTIONS)


# --- InitProducerId --------------------------------------------------------------------------------------------------


def refusal_of(ask: InitProducer, settings: TransactionSettings) -> ErrorCode:
    """Returns the error of a request that is wrong in every stored state; otherwise NONE."""
    if not ask.transactional_id or (ask.producer_id == NO_ID) != (ask.producer_epoch == NO_ID):
        return ErrorCode.INVALID_REQUEST
    if ask.enable_2pc:
        return ErrorCode.NONE if settings.two_phase_commit_enable else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not 0 < ask.timeout_ms <= settings.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def initialize(current: Transaction | None, ask: InitProducer, version: int, fresh_id: FreshId, now_ms: int) -> Step:
    """Decides an InitProducerId. `version` is the finalized transaction.version.

    An open transaction is aborted first, and the client retries: the epoch that fences its producer is never given out.
    """
    timeout_ms = NO_TIMEOUT_MS if ask.enable_2pc else ask.timeout_ms
    if current is None:
        producer_id = fresh_id()
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        current = Transaction(ask.transactional_id, producer_id, NO_ID, timeout_ms)
    elif current.state.is_prepared:
        return _CONCURRENT
    elif not _knows_its_id(current, ask):
        return _refused(ErrorCode.PRODUCER_FENCED)
    elif current.state is _S.ONGOING:
        return _fence(current, version, fresh_id, now_ms)
    elif current.is_exhausted and ask.producer_epoch in (NO_ID, current.producer_epoch):
        producer_id = fresh_id()
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        last_epoch = NO_ID if ask.producer_epoch == NO_ID else current.producer_epoch
        return Step(ErrorCode.NONE, current.initialized(producer_id, 0, last_epoch, timeout_ms, now_ms))
    assert current.state.is_at_rest, "an open transaction is aborted first"
    epochs = _next_epochs(current, ask.producer_epoch)
    if epochs is None:
        return _refused(ErrorCode.PRODUCER_FENCED)
    return Step(ErrorCode.NONE, current.initialized(current.producer_id, *epochs, timeout_ms, now_ms))


def _knows_its_id(current: Transaction, ask: InitProducer) -> bool:
    """Returns whether the id of a producer, if given, is its current one, or the one before its epochs were
    exhausted."""
    if ask.producer_id in (NO_ID, current.producer_id):
        return True
    return ask.producer_id == current.previous_producer_id and ask.producer_epoch >= EXHAUSTED_EPOCH


def _next_epochs(current: Transaction, given: int) -> tuple[int, int] | None:
    """Returns the next (epoch, last epoch); None for a producer with a stale epoch."""
    if given == NO_ID:
        return current.producer_epoch + 1, NO_ID
    if given == current.producer_epoch or current.producer_epoch == NO_ID:
        return current.producer_epoch + 1, current.producer_epoch
    if given == current.last_epoch:
        # The answer to its last request was lost: no other producer has come since.
        return current.producer_epoch, current.last_epoch
    return None


def _fence(current: Transaction, version: int, fresh_id: FreshId, now_ms: int) -> Step:
    """Fences the producer of an open transaction when another one starts."""
    step = abort_alone(current, version, fresh_id, now_ms)
    return step if step.record is None else Step(ErrorCode.CONCURRENT_TRANSACTIONS, step.record)


# --- AddPartitionsToTxn, AddOffsetsToTxn -----------------------------------------------------------------------------


def join(current: Transaction | None, ask: Partitions, now_ms: int) -> Step:
    """Adds partitions to the transaction, and opens it if necessary."""
    if current is None:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.state.is_prepared:
        return _CONCURRENT
    if current.producer_id != ask.producer_id:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != ask.producer_epoch:
        return _refused(ErrorCode.PRODUCER_FENCED)
    if current.state is _S.ONGOING and ask.partitions <= current.partitions:
        return Step(ErrorCode.NONE)
    return Step(ErrorCode.NONE, current.joined(ask.partitions, ask.transaction_version, now_ms))


def verify(current: Transaction | None, ask: Partitions) -> Verdicts:
    """Returns which of these partitions are in the open transaction."""
    if current is None or current.producer_id != ask.producer_id:
        return Verdicts(ErrorCode.INVALID_PRODUCER_ID_MAPPING, {})
    if current.producer_epoch != ask.producer_epoch:
        return Verdicts(ErrorCode.PRODUCER_FENCED, {})
    if current.state.is_prepared:
        return Verdicts(ErrorCode.CONCURRENT_TRANSACTIONS, {})
    return Verdicts(
        ErrorCode.NONE,
        {
            each: ErrorCode.NONE if each in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for each in ask.partitions
        },
    )


# --- EndTxn ----------------------------------------------------------------------------------------------------------


def end(current: Transaction | None, ask: End, fresh_id: FreshId, now_ms: int) -> Step:
    """Decides a commit or an abort, once: a request that repeats because its answer was lost is recognized by the epoch
    before the end raised it."""
    if current is None:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.state.is_prepared:
        return _CONCURRENT
    if ask.transaction_version >= RAISES_EPOCH_FROM:
        return _end_and_raise(current, ask, fresh_id, now_ms)
    if current.producer_id != ask.producer_id:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != ask.producer_epoch:
        return _refused(ErrorCode.PRODUCER_FENCED)
    if current.state is _S.ONGOING:
        return Step(ErrorCode.NONE, current.prepared(ask.committed, ask.transaction_version, NO_ID, now_ms))
    if current.state is (_S.COMPLETE_COMMIT if ask.committed else _S.COMPLETE_ABORT):
        return Step(ErrorCode.NONE)
    return _refused(ErrorCode.INVALID_TXN_STATE)


def _end_and_raise(current: Transaction, ask: End, fresh_id: FreshId, now_ms: int) -> Step:
    """Decides an EndTxn from version 5 on: an epoch ends one transaction and no other."""
    is_repeated = _is_repeated(current, ask)
    if current.producer_id != ask.producer_id and not is_repeated:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if is_repeated and current.state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT):
        same = current.state is (_S.COMPLETE_COMMIT if ask.committed else _S.COMPLETE_ABORT)
        return _refused(ErrorCode.NONE if same else ErrorCode.INVALID_TXN_STATE)
    if current.producer_epoch != ask.producer_epoch or current.producer_id != ask.producer_id:
        return _refused(ErrorCode.PRODUCER_FENCED)
    if ask.committed and current.state is not _S.ONGOING:
        return _refused(ErrorCode.INVALID_TXN_STATE)
    return _prepare(current, ask.committed, ask.transaction_version, fresh_id, now_ms)


def _is_repeated(current: Transaction, ask: End) -> bool:
    """Returns whether the last end may have been this request's: it had the epoch before, and raised it.

    An end that raises no epoch was an older client's, under the epoch that it was given. If another producer of the id
    took that end for its own, both would go on in one epoch, and batches of one would count as duplicates of the
    other's.
    """
    if not current.raises_epoch:
        return False
    if ask.producer_id == current.producer_id and ask.producer_epoch + 1 == current.producer_epoch:
        return True
    return (
        ask.producer_id == current.previous_producer_id != current.producer_id
        and ask.producer_epoch == EXHAUSTED_EPOCH
        and current.producer_epoch == 0
    )


def _prepare(current: Transaction, committed: bool, version: int, fresh_id: FreshId, now_ms: int) -> Step:
    assert not current.state.is_prepared, "an end is decided once"
    next_producer_id = NO_ID
    if current.is_exhausted:
        fresh = fresh_id()
        if fresh is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        next_producer_id = fresh
    return Step(ErrorCode.NONE, current.prepared(committed, version, next_producer_id, now_ms))


def abort_alone(current: Transaction, version: int, fresh_id: FreshId, now_ms: int) -> Step:
    """Aborts an open transaction without its producer's request, and fences the producer."""
    assert current.state is _S.ONGOING
    if version >= RAISES_EPOCH_FROM:
        return _prepare(current, False, version, fresh_id, now_ms)
    return Step(ErrorCode.NONE, current.fenced().prepared(False, version, NO_ID, now_ms))
