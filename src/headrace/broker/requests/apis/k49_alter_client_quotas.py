"""AlterClientQuotas (49), versions 0-1: sets and removes quotas of users, client ids and addresses. Source: KIP-546.

v1 flexible.
Unsupported: host names in place of addresses, which Kafka resolves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_turn, listed
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.quotas import CHANGES_MAX, AlterQuotas, QuotaAlteration
from headrace.machine.split_table import SplitTable
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    ResponseEntryData,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


PARTS_MAX: Final = 100
"""Parts of an entity that are read: one with more names a type twice, or a type that does not exist."""


@handles(ApiKey.ALTER_CLIENT_QUOTAS)
async def handle(
    broker: Services, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Alters quotas; each entity has its own result, in request order."""
    alterations = await listed(broker, context, request.entries, _alteration)
    if context.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        try:
            answers = await broker.controller.ask(AlterQuotas(alterations, request.validate_only))
            if not request.validate_only:
                done = await in_turn(broker, context, _done(alterations, answers))
                broker.audit.quotas_altered(context.principal, context.client_host, done)
        except ControllerError as error:
            answers = [ApiError(error.code, str(error))] * len(alterations)
    else:
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        answers = [ApiError(denied, message_of(denied))] * len(alterations)
    context.keep(answers)
    return AlterClientQuotasResponse(entries=await in_turn(broker, context, _entries(alterations, answers, context)))


def _alteration(entry: EntryData) -> QuotaAlteration:
    return QuotaAlteration(
        tuple([(part.entity_type, part.entity_name) for part in entry.entity[:PARTS_MAX]]),
        [(op.key, None if op.remove else op.value) for op in entry.ops[: CHANGES_MAX + 1]],  # one more is refused
    )


def _done(alterations: Sequence[QuotaAlteration], answers: Sequence[ApiError]) -> Steps[list[QuotaAlteration]]:
    done: list[QuotaAlteration] = []
    for at in range(0, len(alterations), SMALL_PER_STEP):
        some = zip(alterations[at : at + SMALL_PER_STEP], answers[at : at + SMALL_PER_STEP], strict=True)
        done += [each for each, answer in some if not answer.code]
        yield 1
    return done


def _entries(
    alterations: Sequence[QuotaAlteration], answers: Sequence[ApiError], context: RequestContext
) -> Steps[list[ResponseEntryData]]:
    """Returns one result for each entity, as clients find results by entity. Repeated entities have the same result."""
    entries: list[ResponseEntryData] = []
    answered: SplitTable[tuple[tuple[str, str | None], ...], None] = SplitTable()
    context.keep(answered)
    for alteration, answer in zip(alterations, answers, strict=True):
        if alteration.parts not in answered:
            answered[alteration.parts] = None
            entries.append(_entry(alteration.parts, answer))
        yield 1
    return entries


def _entry(parts: tuple[tuple[str, str | None], ...], answer: ApiError) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=answer.code,
        error_message=answer.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
    )
