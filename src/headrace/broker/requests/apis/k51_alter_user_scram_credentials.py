"""AlterUserScramCredentials (51), version 0: makes, replaces and deletes the credentials of users. Source: KIP-554."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_turn, listed, parts_of
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.requests import AlterScramUsers
from headrace.controller.scram_users import ScramDeletion, ScramUpsertion
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
    """Each user is answered once, in the order of the request."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return await _every(broker, context, request, denied, message_of(denied))
    deletions = await listed(broker, context, request.deletions, lambda each: ScramDeletion(each.name, each.mechanism))
    upsertions = await listed(broker, context, request.upsertions, _upsertion)
    try:
        outcomes = await broker.controller.ask(AlterScramUsers(deletions, upsertions))
    except ControllerError as failure:
        return await _every(broker, context, request, failure.code, str(failure))
    for done, wanted in (("deleted", deletions), ("set", upsertions)):
        users = await in_turn(broker, context, _users(wanted, outcomes))
        broker.audit.users_altered(done, context.principal, context.client_host, users)
    results = await listed(broker, context, outcomes.items(), lambda each: _result(each[0], each[1]))
    return AlterUserScramCredentialsResponse(results=results)


def _upsertion(each: ScramCredentialUpsertion) -> ScramUpsertion:
    return ScramUpsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))


def _users(
    wanted: Sequence[ScramDeletion | ScramUpsertion], outcomes: Mapping[str, ApiError]
) -> Steps[list[tuple[str, str]]]:
    """Whose credentials were altered, and for which mechanism."""
    users: list[tuple[str, str]] = []
    for some in parts_of(wanted, SMALL_PER_STEP):
        users += [(each.name, BY_CODE[each.mechanism].name) for each in some if not outcomes[each.name].code]
        yield 1
    return users


def _result(name: str, error: ApiError) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)


async def _every(
    broker: Services, context: RequestContext, request: AlterUserScramCredentialsRequest, code: ErrorCode, text: str
) -> AlterUserScramCredentialsResponse:
    """The same error for each user."""
    error, results = ApiError(code, text), dict[str, AlterUserScramCredentialsResult]()

    def refuse(name: str) -> None:
        results[name] = _result(name, error)

    await listed(broker, context, request.deletions, lambda each: refuse(each.name))
    await listed(broker, context, request.upsertions, lambda each: refuse(each.name))
    return AlterUserScramCredentialsResponse(results=list(results.values()))
