"""DeleteTopics (20), versions 1-6: deletes topics by name or by id. Source: KIP-4, KIP-516.

v4 flexible. v5 error messages, THROTTLING_QUOTA_EXCEEDED. v6 by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.client_access import ClientAccess
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_turn, listed, named_twice, parts_of
from headrace.broker.requests.registry import handles
from headrace.controller.topics import DeleteTopics
from headrace.machine.split_table import SplitTable
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from headrace.wire.uuids import ZERO

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

STRICT_FROM: Final = 5
"""First version whose clients get an error if their quota is used up."""


@handles(ApiKey.DELETE_TOPICS)
async def handle(broker: Services, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Deletes topics; each has its own result, in request order."""
    wanted: list[tuple[str | None, bytes]]
    if context.api_version >= 6:
        wanted = await listed(broker, context, request.topics, lambda topic: (topic.name, topic.topic_id))
    else:
        wanted = await listed(broker, context, request.topic_names, lambda name: (name, ZERO))
    if not broker.config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if context.api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return await _all(broker, context, wanted, code, message_of(ErrorCode.TOPIC_DELETION_DISABLED))
    refused, asked = await in_turn(broker, context, _check(wanted, context))
    context.keep(refused)
    context.keep(asked)
    mutations = broker.quotas.mutations(context, strict_from=STRICT_FROM)
    access = ClientAccess(broker.authorizer, context, mutations.pay)
    try:
        results = await broker.controller.ask(DeleteTopics(asked), access)
    except ControllerError as error:
        return await _all(broker, context, wanted, error.code, str(error))
    responses = await in_turn(broker, context, _joined(refused, results))
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_ms, responses=responses)


async def _all(
    broker: Services, context: RequestContext, wanted: list[tuple[str | None, bytes]], code: ErrorCode, message: str
) -> DeleteTopicsResponse:
    responses = await listed(
        broker,
        context,
        wanted,
        lambda each: DeletableTopicResult(name=each[0], topic_id=each[1], error_code=code, error_message=message),
    )
    return DeleteTopicsResponse(responses=responses)


def _joined(
    refused: list[DeletableTopicResult], results: list[DeletableTopicResult]
) -> Steps[list[DeletableTopicResult]]:
    """Returns all results: those of topics refused here, and then those of the controller."""
    if not refused:
        return results
    for some in parts_of(results, SMALL_PER_STEP):
        refused += some
        yield 1
    return refused


def _check(
    wanted: list[tuple[str | None, bytes]], context: RequestContext
) -> Steps[tuple[list[DeletableTopicResult], list[tuple[str | None, bytes]]]]:
    """Separates topics that are named badly: not at all, twice, or by both name and id."""
    twice = yield from named_twice(wanted, _key, context)
    answered: SplitTable[str | bytes, None] = SplitTable()
    context.keep(answered)
    refused: list[DeletableTopicResult] = []
    asked: list[tuple[str | None, bytes]] = []
    for name, topic_id in wanted:
        yield 1
        key = _key((name, topic_id))
        why = None
        if name is None and topic_id == ZERO:
            why = "Neither topic name nor id were specified."
        elif name is not None and topic_id != ZERO:
            why = "You may not specify both topic name and topic id."
        elif key in twice:
            why = "Duplicate topic name." if name is not None else "Duplicate topic id."
        if why is None:
            asked.append((name, topic_id))
        elif key not in answered:
            answered[key] = None
            result = DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST)
            result.error_message = why
            refused.append(result)
    return refused, asked


def _key(wanted: tuple[str | None, bytes]) -> str | bytes:
    name, topic_id = wanted
    return topic_id if name is None else name
