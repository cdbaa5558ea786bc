"""Group commit: HeadraceGroupEndTxn ends a main transaction and its children as one.

Each must be open, under the epoch of the request; otherwise all are refused and nothing changes. The records are those
of separate ends, so a coordinator of Apache Kafka, which knows nothing of groups, completes each of them too. The main
id tells whether the group was ended: its epoch ends one transaction and no other, so a repeated request is recognized
by the epoch before, as an EndTxn is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from headrace.machine.batches import Pair
from headrace.transactions.asks import End, FreshId, GroupEnd, GroupMember
from headrace.transactions.deciding import end
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import RAISES_EPOCH_FROM, Transaction
from headrace.wire.errors import ErrorCode

CHILDREN_MAX: Final = 5_000
"""The limit of children in one request, which are decided in one turn, some 2.5 us each. The topic's
`max.message.bytes` may allow fewer in one batch."""

Find = Callable[[str], Transaction | None]


class GroupStep(NamedTuple):
    """The decision upon a group."""

    error: ErrorCode
    main: Transaction | None = None
    """With NONE: the main id's next state, or its current one if the group was ended before."""
    children: tuple[ErrorCode, ...] = ()
    records: tuple[Transaction, ...] = ()
    """The next states, the main id's first; empty if nothing changes."""
    pairs: tuple[Pair | None, ...] = ()
    """For each record its encoding from before the decision; None if there is none."""


class Prepared(NamedTuple):
    """The precomputed end of a child in one state; valid while the child is in that state."""

    current: Any = object()
    """The state of the child; by default one that no child has."""
    error: ErrorCode = ErrorCode.NONE
    record: Transaction | None = None
    pair: Pair | None = None
    """The encoded record."""


_NOT_LOOKED_AT: Final = Prepared()


def refusal_of(ask: GroupEnd, version: int) -> ErrorCode:
    """Returns the error of a request that is wrong in every stored state; otherwise NONE.

    `version` is transaction.version.
    """
    if len(ask.children) > CHILDREN_MAX:
        return ErrorCode.INVALID_REQUEST
    names = {each.transactional_id for each in ask.children} | {ask.main.transactional_id}
    if "" in names or len(names) != len(ask.children) + 1:
        return ErrorCode.INVALID_REQUEST
    # below, epochs do not distinguish transactions: a late request would end another one
    return ErrorCode.NONE if version >= RAISES_EPOCH_FROM else ErrorCode.UNSUPPORTED_VERSION


def end_group(
    find: Find, ask: GroupEnd, fresh_id: FreshId, now_ms: int, prepared: Sequence[Prepared] = ()
) -> GroupStep:
    """Decides a commit or an abort of all, once. `prepared` holds the precomputed end of each child, if any."""
    main = find(ask.main.transactional_id)
    step = end(main, _alone(ask.main, ask.committed), fresh_id, now_ms)
    if step.error:
        return GroupStep(step.error)
    if step.record is None:
        return GroupStep(ErrorCode.NONE, main, (ErrorCode.NONE,) * len(ask.children))
    if main is not None and main.state is not TransactionState.ONGOING:
        return GroupStep(ErrorCode.INVALID_TXN_STATE)  # unlike an EndTxn, which aborts it, a group must be open
    children = [
        known if known.current is (current := find(child.transactional_id)) else
        prepare(current, child, ask.committed, fresh_id, now_ms)
        for known, child in zip(prepared or [_NOT_LOOKED_AT] * len(ask.children), ask.children, strict=True)
    ]  # fmt: skip
    errors = tuple([each.error for each in children])
    if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in errors:
        return GroupStep(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if any(errors):
        return GroupStep(ErrorCode.OPERATION_NOT_ATTEMPTED, None, errors)
    records = [step.record, *[each.record for each in children if each.record is not None]]
    assert len(records) == len(ask.children) + 1, "all of a group end, or none"
    pairs = [None, *[each.pair for each in children if each.record is not None]]
    return GroupStep(ErrorCode.NONE, step.record, errors, tuple(records), tuple(pairs))


def _alone(member: GroupMember, committed: bool) -> End:
    return End(*member, committed, RAISES_EPOCH_FROM)


def prepare(
    current: Transaction | None, child: GroupMember, committed: bool, fresh_id: FreshId, now_ms: int
) -> Prepared:
    """Precomputes the end of a child. A child whose end is decided already fails: that was another end."""
    if current is None or current.producer_id != child.producer_id:
        return Prepared(current, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != child.producer_epoch:
        return Prepared(current, ErrorCode.PRODUCER_FENCED)
    if current.state is not TransactionState.ONGOING:
        return Prepared(current, ErrorCode.INVALID_TXN_STATE)
    step = end(current, _alone(child, committed), fresh_id, now_ms)
    return Prepared(current, step.error, step.record)
