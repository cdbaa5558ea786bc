"""Several transactions end as one: what HeadraceGroupEndTxn makes of a main transactional id and of others beside it.

Each must be open, under the epoch that the request names: else all are refused and nothing is changed. The records are
those that an end of each alone would have, so that a coordinator of Apache Kafka, which knows nothing of groups, ends
each of them too. Whether they were ended is the main id's to tell: its epoch ends one transaction and no other, so a
request that comes again is known by the epoch that it had before, as an EndTxn is.
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
"""Children of one request, which are decided in one turn, some 2.5 us each; how many fit into one batch may be less:
the topic's `max.message.bytes` says it."""

Find = Callable[[str], Transaction | None]


class GroupStep(NamedTuple):
    """What becomes of a group."""

    error: ErrorCode
    main: Transaction | None = None
    """With NONE: the main id's next state, or the one that it has, where the group was ended before."""
    children: tuple[ErrorCode, ...] = ()
    records: tuple[Transaction, ...] = ()
    """The next states, the main id's first; empty where nothing changes."""
    pairs: tuple[Pair | None, ...] = ()
    """Of each record, as it was encoded before the decision; None where it was not."""


class Prepared(NamedTuple):
    """What an end makes of a child in one state, found out before the decision: it counts if the child is still so."""

    current: Any = object()
    """That state; by default one that no child is in."""
    error: ErrorCode = ErrorCode.NONE
    record: Transaction | None = None
    pair: Pair | None = None
    """The record, encoded."""


_NOT_LOOKED_AT: Final = Prepared()


def refusal_of(ask: GroupEnd, version: int) -> ErrorCode:
    """Returns the error of a request that does not depend on the stored state; NONE where nothing is.

    `version` is transaction.version.
    """
    if len(ask.children) > CHILDREN_MAX:
        return ErrorCode.INVALID_REQUEST
    names = {each.transactional_id for each in ask.children} | {ask.main.transactional_id}
    if "" in names or len(names) != len(ask.children) + 1:
        return ErrorCode.INVALID_REQUEST
    # below, an epoch does not tell one transaction from the next: a late request would end another one
    return ErrorCode.NONE if version >= RAISES_EPOCH_FROM else ErrorCode.UNSUPPORTED_VERSION


def end_group(
    find: Find, ask: GroupEnd, fresh_id: FreshId, now_ms: int, prepared: Sequence[Prepared] = ()
) -> GroupStep:
    """Decides a commit or an abort of all, once. `prepared`: of each child what was found out before, if anything."""
    main = find(ask.main.transactional_id)
    step = end(main, _alone(ask.main, ask.committed), fresh_id, now_ms)
    if step.error:
        return GroupStep(step.error)
    if step.record is None:
        return GroupStep(ErrorCode.NONE, main, (ErrorCode.NONE,) * len(ask.children))
    if main is not None and main.state is not TransactionState.ONGOING:
        return GroupStep(ErrorCode.INVALID_TXN_STATE)  # EndTxn aborts a transaction that is not open; a group is open
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
    """What the end makes of a child. Nobody waits for one whose end is decided: it is another end than this one."""
    if current is None or current.producer_id != child.producer_id:
        return Prepared(current, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != child.producer_epoch:
        return Prepared(current, ErrorCode.PRODUCER_FENCED)
    if current.state is not TransactionState.ONGOING:
        return Prepared(current, ErrorCode.INVALID_TXN_STATE)
    step = end(current, _alone(child, committed), fresh_id, now_ms)
    return Prepared(current, step.error, step.record)
