"""AlterUserScramCredentials (51), version 0: makes, replaces and deletes the credentials of users. Source: KIP-554.

Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.registry import handles
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
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
async def handle(
    broker: Services, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Each user is answered once, in the order of the request."""
    deletions = [ScramDeletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        ScramUpsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _every(deletions, upsertions, denied, message_of(denied))
    try:
        outcomes = await broker.controller.ask(AlterScramUsers(deletions, upsertions))
    except ControllerError as failure:
        return _every(deletions, upsertions, failure.code, str(failure))
    for done, wanted in (("deleted", deletions), ("set", upsertions)):
        users = [(each.name, BY_CODE[each.mechanism].name) for each in wanted if not outcomes[each.name].code]
        broker.audit.users_altered(done, context.principal, context.client_host, users)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
            for name, error in outcomes.items()
        ]
    )


def _every(
    deletions: list[ScramDeletion], upsertions: list[ScramUpsertion], code: ErrorCode, text: str
) -> AlterUserScramCredentialsResponse:
    """The same error for each user."""
    users = dict.fromkeys([each.name for each in deletions] + [each.name for each in upsertions])
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=name, error_code=code, error_message=text) for name in users]
    )
