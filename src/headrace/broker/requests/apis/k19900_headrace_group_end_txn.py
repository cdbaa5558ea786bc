"""HeadraceGroupEndTxn (19900), version 0: the transactions of several transactional ids end as one.

Headrace's own: who writes from many machines gives each its transaction, and one request decides for all. The ids must
be of one partition of `__transaction_state`, as one append there is the decision. The answer leaves when that is
replicated, before the partitions have heard of it. See docs/formats/group-end-txn.md.
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.answers import Pending
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.transactions.asks import GroupEnd, GroupIdentity, GroupMember
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19900_headrace_group_end_txn import (
    GroupEndTxnChildResult,
    HeadraceGroupEndTxnRequest,
    HeadraceGroupEndTxnResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.HEADRACE_GROUP_END_TXN)
def handle(broker: Services, request: HeadraceGroupEndTxnRequest, context: RequestContext) -> Any:
    """Answers when the decision is committed."""
    return in_pieces(broker, context, _end(broker, request, context))


def _end(
    broker: Services, request: HeadraceGroupEndTxnRequest, context: RequestContext
) -> Steps[Pending[HeadraceGroupEndTxnResponse]]:
    main = GroupMember(request.transactional_id, request.producer_id, request.producer_epoch)
    children: list[GroupMember] = []
    for each in request.children:
        children.append(GroupMember(each.transactional_id, each.producer_id, each.producer_epoch))
        yield 1
    answer = _Answer(tuple(children))
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, main.transactional_id):
        answer.resolve(GroupIdentity(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return answer
    refused: list[ErrorCode] = []
    for child in children:
        refused.append(_refusal_of(broker, context, main, child))
        yield 1
    if any(refused):
        answer.resolve(GroupIdentity(ErrorCode.OPERATION_NOT_ATTEMPTED, children=tuple(refused)))
        return answer
    ask = GroupEnd(main, tuple(children), request.committed)
    broker.transactions.write(
        main.transactional_id, lambda shard, now_ms: shard.end_group(ask, now_ms), answer, GroupIdentity
    )
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

    __slots__ = ("_children",)

    def __init__(self, children: tuple[GroupMember, ...]) -> None:
        super().__init__()
        self._children = children

    def resolve(self, value: Any) -> None:
        error, producer_id, producer_epoch, said = value
        errors = said or (ErrorCode.NONE,) * len(self._children)
        results = [
            GroupEndTxnChildResult(child.transactional_id, code)
            for child, code in zip(self._children, errors, strict=True)
        ]
        super().resolve(HeadraceGroupEndTxnResponse(0, error, producer_id, producer_epoch, results))
