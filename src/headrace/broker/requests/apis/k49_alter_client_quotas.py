"""AlterClientQuotas (49), versions 0-1: sets and removes quotas of users, client ids and addresses. Source: KIP-546.

v1 flexible.
Unsupported: names of hosts instead of addresses, which Kafka looks up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.pieces import listed
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.quotas import QuotaAlteration
from headrace.controller.requests import AlterQuotas
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
"""Parts of an entity that are looked at: one of so many names a type twice, or one that does not exist."""


@handles(ApiKey.ALTER_CLIENT_QUOTAS)
async def handle(
    broker: Services, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Alters what can be altered; each entity has a result of its own, in the request's order."""
    alterations = await listed(broker, context, request.entries, _alteration)
    if context.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        try:
            answers = await broker.controller.ask(AlterQuotas(alterations, request.validate_only))
            if not request.validate_only:
                done = [each for each, answer in zip(alterations, answers, strict=True) if not answer.code]
                broker.audit.quotas_altered(context.principal, context.client_host, done)
        except ControllerError as error:
            answers = [ApiError(error.code, str(error))] * len(alterations)
    else:
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        answers = [ApiError(denied, message_of(denied))] * len(alterations)
    # Clients find an answer by its entity: one for each of them.
    told: dict[tuple[tuple[str, str | None], ...], ApiError] = {}
    context.keep(answers)
    context.keep(told)
    await listed(
        broker, context, zip(alterations, answers, strict=True), lambda each: told.update({each[0].parts: each[1]})
    )
    return AlterClientQuotasResponse(entries=await listed(broker, context, told.items(), _entry))


def _alteration(entry: EntryData) -> QuotaAlteration:
    return QuotaAlteration(
        tuple([(part.entity_type, part.entity_name) for part in entry.entity[:PARTS_MAX]]),
        [(op.key, None if op.remove else op.value) for op in entry.ops],
    )


def _entry(told: tuple[tuple[tuple[str, str | None], ...], ApiError]) -> ResponseEntryData:
    parts, answer = told
    return ResponseEntryData(
        error_code=answer.code,
        error_message=answer.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
    )
