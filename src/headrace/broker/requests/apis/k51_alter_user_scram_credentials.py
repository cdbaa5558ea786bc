"""AlterUserScramCredentials (51), version 0: creates, replaces and deletes credentials of users. Source: KIP-554."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_turn, listed, parts_of
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.scram_users import AlterScramUsers, ScramDeletion, ScramUpsertion
from headrace.machine.split_table import SplitTable
from headrace.metadata.scram_credentials import BY_CODE
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
async def handle(
    broker: Services, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Alters credentials; each user has one result, in request order."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return await _every(broker, context, request, denied, message_of(denied))
    wanted = await in_turn(broker, context, _wanted(request))
    try:
        outcomes = await broker.controller.ask(AlterScramUsers(wanted))
    except ControllerError as failure:
        return await _every(broker, context, request, failure.code, str(failure))
    context.keep(outcomes)
    deleted, made = await in_turn(broker, context, _users(wanted, outcomes, context))
    broker.audit.users_altered("deleted", context.principal, context.client_host, deleted)
    broker.audit.users_altered("set", context.principal, context.client_host, made)
    results = await listed(broker, context, outcomes, lambda each: _result(each[0], each[1]))
    return AlterUserScramCredentialsResponse(results=results)


def _wanted(request: AlterUserScramCredentialsRequest) -> Steps[list[ScramDeletion | ScramUpsertion]]:
    wanted: list[ScramDeletion | ScramUpsertion] = []
    for deletion in request.deletions:
        wanted.append(ScramDeletion(deletion.name, deletion.mechanism))
        yield 1
    for upsertion in request.upsertions:
        wanted.append(_upsertion(upsertion))
        yield 1
    return wanted


def _upsertion(each: ScramCredentialUpsertion) -> ScramUpsertion:
    return ScramUpsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))


def _users(
    wanted: Sequence[ScramDeletion | ScramUpsertion], outcomes: Sequence[tuple[str, ApiError]], context: RequestContext
) -> Steps[tuple[list[tuple[str, str]], list[tuple[str, str]]]]:
    """Returns (user, mechanism) of the credentials that were deleted, and of those that were created."""
    done: SplitTable[str, None] = SplitTable()
    context.keep(done)
    for some in parts_of(outcomes, SMALL_PER_STEP):
        for name, error in some:
            if not error.code:
                done[name] = None
        yield 1
    deleted: list[tuple[str, str]] = []
    made: list[tuple[str, str]] = []
    for few in parts_of(wanted, SMALL_PER_STEP):
        for each in few:
            if each.name in done:
                users = deleted if isinstance(each, ScramDeletion) else made
                users.append((each.name, BY_CODE[each.mechanism].name))
        yield 1
    return deleted, made


def _result(name: str, error: ApiError) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)


async def _every(
    broker: Services, context: RequestContext, request: AlterUserScramCredentialsRequest, code: ErrorCode, text: str
) -> AlterUserScramCredentialsResponse:
    """Returns the response with the same error for each user."""
    error, results = ApiError(code, text), list[AlterUserScramCredentialsResult]()
    refused: SplitTable[str, None] = SplitTable()
    context.keep(refused)
    context.keep(results)

    def refuse(name: str) -> None:
        if name not in refused:
            refused[name] = None
            results.append(_result(name, error))

    await listed(broker, context, request.deletions, lambda each: refuse(each.name))
    await listed(broker, context, request.upsertions, lambda each: refuse(each.name))
    return AlterUserScramCredentialsResponse(results=results)
