"""Several transactions end as one: what HeadraceGroupEndTxn makes of a main transactional id and of others beside it.

Each must be open, under the epoch that the request names: else all are refused and nothing is changed. The records are
those that an end of each alone would have, so that a coordinator of Apache Kafka, which knows nothing of groups, ends
each of them too. Whether they were ended is the main id's to tell: its epoch ends one transaction and no other, so a
request that comes again is known by the epoch that it had before, as an EndTxn is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from headrace.transactions.asks import End, FreshId, GroupEnd, GroupMember
from headrace.transactions.deciding import end
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import RAISES_EPOCH_FROM, Transaction
from headrace.wire.errors import ErrorCode

CHILDREN_MAX: Final = 10_000
"""Children of one request; how many fit into one batch is mostly less, and the topic's `max.message.bytes` says it."""

Find = Callable[[str], Transaction | None]


class GroupStep(NamedTuple):
    """What becomes of a group."""

    error: ErrorCode
    main: Transaction | None = None
    """With NONE: the main id's next state, or the one that it has, where the group was ended before."""
    children: tuple[ErrorCode, ...] = ()
    records: tuple[Transaction, ...] = ()
    """The next states, the main id's first; empty where nothing changes."""


def refusal_of(ask: GroupEnd, version: int) -> ErrorCode:
    """What is wrong with a request whatever there is; NONE where nothing is. `version` is transaction.version."""
    names = {each.transactional_id for each in ask.children} | {ask.main.transactional_id}
    if "" in names or len(names) != len(ask.children) + 1 or len(ask.children) > CHILDREN_MAX:
        return ErrorCode.INVALID_REQUEST
    # below, an epoch does not tell one transaction from the next: a late request would end another one
    return ErrorCode.NONE if version >= RAISES_EPOCH_FROM else ErrorCode.UNSUPPORTED_VERSION


def end_group(find: Find, ask: GroupEnd, fresh_id: FreshId, now_ms: int) -> GroupStep:
    """Decides a commit or an abort of all, once."""
    main = find(ask.main.transactional_id)
    step = end(main, _alone(ask.main, ask.committed), fresh_id, now_ms)
    if step.error:
        return GroupStep(step.error)
    if step.record is None:
        return GroupStep(ErrorCode.NONE, main, (ErrorCode.NONE,) * len(ask.children))
    errors, records = [], [step.record]
    if main is not None and main.state is not TransactionState.ONGOING:
        return GroupStep(ErrorCode.INVALID_TXN_STATE)  # EndTxn aborts what is not open; a group is open
    for error, record in _children(find, ask, fresh_id, now_ms):
        errors.append(error)
        if record is not None:
            records.append(record)
    if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in errors:
        return GroupStep(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if any(errors):
        return GroupStep(ErrorCode.OPERATION_NOT_ATTEMPTED, None, tuple(errors))
    return GroupStep(ErrorCode.NONE, step.record, tuple(errors), tuple(records))


def _alone(member: GroupMember, committed: bool) -> End:
    return End(*member, committed, RAISES_EPOCH_FROM)


def _children(
    find: Find, ask: GroupEnd, fresh_id: FreshId, now_ms: int
) -> Iterator[tuple[ErrorCode, Transaction | None]]:
    """(error, next state) of each. Nobody waits for one whose end is decided: it is another end than this one."""
    for child in ask.children:
        current = find(child.transactional_id)
        if current is None or current.producer_id != child.producer_id:
            yield ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        elif current.producer_epoch != child.producer_epoch:
            yield ErrorCode.PRODUCER_FENCED, None
        elif current.state is not TransactionState.ONGOING:
            yield ErrorCode.INVALID_TXN_STATE, None
        else:
            step = end(current, _alone(child, ask.committed), fresh_id, now_ms)
            yield step.error, step.record
