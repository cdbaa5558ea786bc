"""Envelope (58), version 0: a client's request that another broker forwards to this node, as the active controller.

Source: KIP-590.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.broker.net.client_session import ClientSession
from headrace.broker.net.context import RequestContext
from headrace.broker.net.long_answers import FEW_ELEMENT_BYTES, EncodedAnswer
from headrace.broker.requests.apis import FORWARDED
from headrace.broker.requests.envelopes import wrapped_answer
from headrace.broker.requests.forwarding import read_principal
from headrace.broker.requests.quorum_requests import is_node
from headrace.broker.requests.registry import handler_of, handles
from headrace.broker.telemetry.request_errors import codes_of
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import SIZE_BYTES, RequestHeader, decode_request_header, encode_response
from headrace.wire.messages import request_class
from headrace.wire.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from headrace.wire.primitives import Buffer, DecodeError

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.ENVELOPE)
async def handle(broker: NodeServices, request: EnvelopeRequest, context: RequestContext) -> Any:
    """Handles the request in the envelope on behalf of its client."""
    if not is_node(context):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not broker.quorum.decides:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    opened = await _open(broker, request, context)
    if isinstance(opened, ErrorCode):
        return EnvelopeResponse(error_code=opened)
    header, body, inner = opened
    inner.remains = context.remains
    inner.keep(body)
    answer: Any = handler_of(header.api_key)(broker, body, inner)
    if isinstance(answer, Coroutine):
        answer = await answer
    # This node's answer counts even if it no longer leads, as after removing the leader from the voters. Only a
    # request that it could not decide goes to the next leader.
    if len(request.request_data) > FEW_ELEMENT_BYTES:
        answer = await broker.long_answers.encoded(inner, answer)
    if ErrorCode.NOT_CONTROLLER in (answer.codes if isinstance(answer, EncodedAnswer) else codes_of(answer)):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    if isinstance(answer, EncodedAnswer):
        return wrapped_answer(header, answer)
    key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
    framed = encode_response(key, version, correlation_id, answer)
    return EnvelopeResponse(response_data=bytes(memoryview(framed)[SIZE_BYTES:]))


async def _decoded(broker: NodeServices, header: RequestHeader, data: Buffer, at: int) -> Any:
    """Returns the body of the request in an envelope; a worker decodes one with many elements. Raises DecodeError."""
    decode = request_class(header.api_key).decode
    try:
        return decode(data, header.api_version, at, FEW_ELEMENT_BYTES)
    except DecodeError:
        if len(data) <= FEW_ELEMENT_BYTES:
            raise
    return await broker.long_answers.decoded(partial(decode, data, header.api_version, at))


async def _open(
    broker: NodeServices, request: EnvelopeRequest, context: RequestContext
) -> tuple[RequestHeader, Any, RequestContext] | ErrorCode:
    """Returns the request in an envelope with a context of its client, or the error if there is none."""
    try:
        named = read_principal(request.request_principal)
        if named is None:
            return ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    except DecodeError:
        return ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    # As in Kafka: a content that cannot be decoded counts as an unknown version; INVALID_REQUEST is for errors of the
    # envelope itself.
    try:
        header, at = decode_request_header(request.request_data)
        if header.api_key not in FORWARDED:
            return ErrorCode.INVALID_REQUEST
        api = APIS[header.api_key]
        if not api.min_version <= header.api_version <= api.max_version:
            return ErrorCode.UNSUPPORTED_VERSION
        body = await _decoded(broker, header, request.request_data, at)
    except DecodeError:
        return ErrorCode.UNSUPPORTED_VERSION
    try:
        host = str(ipaddress.ip_address(request.client_host_address))
    except ValueError:
        return ErrorCode.INVALID_REQUEST
    principal, is_token = named
    client = ClientSession(context.listener, peer_host=host, principal=principal, is_token=is_token, via=context.client)
    inner = RequestContext(
        broker.authorizer,
        client,
        client_id=header.client_id,
        api_key=header.api_key,
        api_version=header.api_version,
        correlation_id=header.correlation_id,
    )
    return header, body, inner
