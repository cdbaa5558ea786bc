"""HeadraceGroupEndTxn (19900), version 0: the transactions of several transactional ids end as one.

Headrace's own: who writes from many machines gives each its transaction, and one request decides for all. The ids must
be of one partition of `__transaction_state`, as one append there is the decision. The answer leaves when that is
replicated, before the partitions have heard of it. See docs/formats/group-end-txn.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import Pending
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import PIECE_STEPS, SMALL_PER_STEP, Steps, in_pieces, parts_of
from headrace.broker.requests.registry import handles
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
"""Children that are looked at when all is decided; what becomes of more is found out before, piece by piece."""


@handles(ApiKey.HEADRACE_GROUP_END_TXN)
def handle(broker: Services, request: HeadraceGroupEndTxnRequest, context: RequestContext) -> Any:
    """Answers when the decision is committed."""
    return in_pieces(broker, context, _end(broker, request, context))


def _end(
    broker: Services, request: HeadraceGroupEndTxnRequest, context: RequestContext
) -> Steps[Pending[HeadraceGroupEndTxnResponse]]:
    main = GroupMember(request.transactional_id, request.producer_id, request.producer_epoch)
    children: list[GroupMember] = []
    results: list[GroupEndTxnChildResult] = []
    context.keep(children)
    context.keep(results)
    for each in request.children:
        children.append(GroupMember(each.transactional_id, each.producer_id, each.producer_epoch))
        results.append(GroupEndTxnChildResult(each.transactional_id, ErrorCode.NONE))
        yield 1
    answer = _Answer(results)
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, main.transactional_id):
        answer.resolve(GroupIdentity(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return answer
    is_refused = False
    for child, result in zip(children, results, strict=True):
        result.error_code = _refusal_of(broker, context, main, child)
        is_refused = is_refused or bool(result.error_code)
        yield 1
    if is_refused:
        answer.resolve(GroupIdentity(ErrorCode.OPERATION_NOT_ATTEMPTED))
        return answer
    ask = GroupEnd(main, tuple(children), request.committed)
    if not FEW_CHILDREN < len(children) <= CHILDREN_MAX:
        broker.transactions.write(
            main.transactional_id, lambda shard, now_ms: shard.end_group(ask, now_ms), answer, GroupIdentity
        )
        return answer
    preparing = broker.transactions.read(main.transactional_id)
    if isinstance(preparing, ErrorCode):
        answer.resolve(GroupIdentity(preparing))
        return answer
    prepared: PreparedChildren = []
    for some in parts_of(children, SMALL_PER_STEP):
        prepared += preparing.prepare_group(some, ask.committed, broker.node.clock.now_ms())
        yield SMALL_PER_STEP

    def decide(shard: TransactionShard, now_ms: int) -> Outcome:
        if shard is not preparing:  # the log was loaded again meanwhile: all would have to be found out in one turn
            return Outcome(GroupIdentity(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return shard.end_group(ask, now_ms, prepared)

    broker.transactions.write(main.transactional_id, decide, answer, GroupIdentity)
    return answer


def _refusal_of(broker: Services, context: RequestContext, main: GroupMember, child: GroupMember) -> ErrorCode:
    """What forbids a child before its coordinator is asked; NONE where nothing does."""
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, child.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    partition_for = broker.transactions.partition_for
    same = partition_for(child.transactional_id) == partition_for(main.transactional_id)
    return ErrorCode.NONE if same else ErrorCode.NOT_COORDINATOR


class _Answer(Pending[HeadraceGroupEndTxnResponse]):
    """What the coordinator says, and of which child."""

    __slots__ = ("_results",)

    def __init__(self, results: list[GroupEndTxnChildResult]) -> None:
        """The results that say of each child that there is no error, or what forbids it."""
        super().__init__()
        self._results = results

    def resolve(self, value: Any) -> None:
        error, producer_id, producer_epoch, said = value
        if said:
            for result, code in zip(self._results, said, strict=True):
                result.error_code = code
        super().resolve(HeadraceGroupEndTxnResponse(0, error, producer_id, producer_epoch, self._results))
