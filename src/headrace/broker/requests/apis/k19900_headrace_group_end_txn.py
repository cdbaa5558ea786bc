"""HeadraceGroupEndTxn (19900), version 0: the transactions of several transactional ids end as one.

Headrace's own: an application that writes from many machines gives each a transaction, and one request decides on all.
The ids must be of one partition of `__transaction_state`, as one append there is the decision. The answer leaves when
that is replicated, before the markers are written. See docs/formats/group-end-txn.md.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import PIECE_STEPS, SMALL_PER_STEP, Steps, in_pieces, parts_of
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion
from headrace.machine.outcome import Outcome
from headrace.security.authorizer import Operation, ResourceType
from headrace.transactions.asks import GroupEnd, GroupIdentity, GroupMember
from headrace.transactions.group_ends import CHILDREN_MAX
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19900_headrace_group_end_txn import (
    GroupEndTxnChildResult,
    HeadraceGroupEndTxnRequest,
    HeadraceGroupEndTxnResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services
    from headrace.transactions.shard import PreparedChildren, TransactionShard

FEW_CHILDREN: Final = PIECE_STEPS
"""Children whose states are checked in the turn that decides; those of more are checked before, piece by piece."""


@handles(ApiKey.HEADRACE_GROUP_END_TXN)
def handle(broker: Services, request: HeadraceGroupEndTxnRequest, context: RequestContext) -> Any:
    """Answers when the decision is committed."""
    return in_pieces(broker, context, _end(broker, request, context))


def _end(
    broker: Services, request: HeadraceGroupEndTxnRequest, context: RequestContext
) -> Steps[HeadraceGroupEndTxnResponse | Completion[HeadraceGroupEndTxnResponse]]:
    main = GroupMember(request.transactional_id, request.producer_id, request.producer_epoch)
    children: list[GroupMember] = []
    results: list[GroupEndTxnChildResult] = []
    context.keep(children)
    context.keep(results)
    for each in request.children:
        children.append(GroupMember(each.transactional_id, each.producer_id, each.producer_epoch))
        results.append(GroupEndTxnChildResult(each.transactional_id, ErrorCode.NONE))
        yield 1
    shape = partial(_response, results)
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, main.transactional_id):
        return shape(GroupIdentity(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    is_refused = False
    for child, result in zip(children, results, strict=True):
        result.error_code = _refusal_of(broker, context, main, child)
        is_refused = is_refused or bool(result.error_code)
        yield 1
    if is_refused:
        return shape(GroupIdentity(ErrorCode.OPERATION_NOT_ATTEMPTED))
    ask = GroupEnd(main, tuple(children), request.committed)
    if not FEW_CHILDREN < len(children) <= CHILDREN_MAX:
        ended: Completion[GroupIdentity] = broker.transactions.write(
            main.transactional_id, lambda shard, now_ms: shard.end_group(ask, now_ms), GroupIdentity
        )
        return ended.mapped(shape)
    preparing = broker.transactions.read(main.transactional_id)
    if isinstance(preparing, ErrorCode):
        return shape(GroupIdentity(preparing))
    prepared: PreparedChildren = []
    for some in parts_of(children, SMALL_PER_STEP):
        prepared += preparing.prepare_group(some, ask.committed, broker.node.clock.now_ms())
        yield SMALL_PER_STEP

    def decide(shard: TransactionShard, now_ms: int) -> Outcome:
        if shard is not preparing:  # the log was reloaded meanwhile: all would have to be checked in one turn
            return Outcome(GroupIdentity(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return shard.end_group(ask, now_ms, prepared)

    decided: Completion[GroupIdentity] = broker.transactions.write(main.transactional_id, decide, GroupIdentity)
    return decided.mapped(shape)


def _refusal_of(broker: Services, context: RequestContext, main: GroupMember, child: GroupMember) -> ErrorCode:
    """Returns the error of a child that is refused before its coordinator decides; NONE if it is not."""
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, child.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    partition_for = broker.transactions.partition_for
    same = partition_for(child.transactional_id) == partition_for(main.transactional_id)
    return ErrorCode.NONE if same else ErrorCode.NOT_COORDINATOR


def _response(results: list[GroupEndTxnChildResult], ended: GroupIdentity) -> HeadraceGroupEndTxnResponse:
    """Returns the response to the coordinator's decision; `results` has the errors of children refused before."""
    error, producer_id, producer_epoch, errors = ended
    if errors:
        for result, code in zip(results, errors, strict=True):
            result.error_code = code
    return HeadraceGroupEndTxnResponse(0, error, producer_id, producer_epoch, results)
