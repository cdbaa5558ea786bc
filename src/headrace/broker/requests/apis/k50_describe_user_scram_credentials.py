"""DescribeUserScramCredentials (50), version 0: the mechanisms of users, with their iterations.

Salts and keys are not sent. Source: KIP-554.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.metadata.image import ClusterImage
from headrace.metadata.scram_credentials import BY_CODE
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k50_describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def handle(broker: Services, request: DescribeUserScramCredentialsRequest, context: RequestContext) -> Any:
    """Describes the named users, or all; each once."""
    return in_pieces(broker, context, _described(broker, request, context))


def _described(
    broker: Services, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> Steps[DescribeUserScramCredentialsResponse]:
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        text = message_of(denied)
        refused = DescribeUserScramCredentialsResponse(error_code=denied, error_message=text)
        for user in request.users or ():
            refused.results.append(DescribeUserScramCredentialsResult(user.name, denied, text))
            yield 1
        return refused
    image = broker.image
    times: Counter[str] = Counter()
    if request.users:
        for user in request.users:
            times[user.name] += 1
            yield 1
    else:
        times.update(sorted({name for name, _ in image.kept.scram}))
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name, count in times.items():
        response.results.append(_result(image, name, count))
        yield 1
    return response


def _result(image: ClusterImage, name: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    records = [image.kept.scram[name, code] for code in sorted(BY_CODE) if (name, code) in image.kept.scram]
    if not records:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    infos = [CredentialInfo(mechanism=record.mechanism, iterations=record.iterations) for record in records]
    return DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=infos)
