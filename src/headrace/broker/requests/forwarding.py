"""Forwards requests that only the active controller decides: any broker accepts them and sends them on in an envelope.

The client's request is sent unchanged, with its principal and address; its answer comes back as bytes. If a controller
is gone, or no longer leads, the request is sent to the next one. Source: KIP-590.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.long_answers import FEW_ELEMENT_BYTES, still_open
from headrace.broker.requests.envelopes import WrappedAnswer, WrappedRequest
from headrace.broker.requests.registry import Handler
from headrace.client.errors import ClientError
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import SIZE_BYTES, RequestHeader, decode_response_header, encode_request_header
from headrace.wire.messages import response_class
from headrace.wire.messages.principal import DefaultPrincipalData

if TYPE_CHECKING:
    from headrace.broker.net.context import RequestContext
    from headrace.broker.requests.services import NodeServices, Services
    from headrace.wire.primitives import Buffer

PATIENCE_S: Final = 60.0
"""Time limit for finding an active controller."""
ANSWER_S: Final = 60.0
"""Time limit for one answer of the controller."""
AGAIN_S: Final = 0.05
"""Pause before the next attempt."""

_LOCAL = b"\x00" * 4
"""The address for a client without one."""


def decided_by_controller(handler: Handler) -> Handler:
    """Returns the handler for a broker: it runs if this node decides, and else the request is forwarded."""

    def handle(broker: Services, request: Any, context: RequestContext) -> Any:
        if broker.quorum.decides:
            return handler(broker, request, context)
        return _forward_or_refuse(broker, request, context, handler)

    return handle


def _forward_or_refuse(broker: Services, request: Any, context: RequestContext, handler: Handler) -> Any:
    async def run() -> Any:
        with broker.long_answers.freed_later(context):
            answer = await forward(broker, request, context)
            if answer is not None:
                # The context keeps a large answer, and a worker encodes it.
                return await broker.long_answers.encoded(context, answer) if context.remains else answer
        # This node leads now, or no node does: its own handler answers.
        answer = handler(broker, request, context)
        return await answer if isinstance(answer, Coroutine) else answer

    return run()


async def forward(broker: NodeServices, request: Any, context: RequestContext) -> Any:
    """Returns the active controller's answer to a client's request. None if this node now decides itself, forwards
    nothing, or finds no controller in time. Raises CloseConnectionError, also if the client disconnects before the
    answer."""
    link = broker.controller_link
    if link is None:
        return None
    key, version = context.api_key, context.api_version
    header = RequestHeader(key, version, context.correlation_id, context.client_id)
    workers = broker.node.workers
    envelope = WrappedRequest(
        await workers.run(partial(_encoded, header, request)),
        _encode_principal(context.principal, context.client.is_token),
        _packed(context.client_host),
    )
    last = broker.node.clock.monotonic() + PATIENCE_S
    while not broker.quorum.decides and broker.node.clock.monotonic() < last:
        still_open(context)
        try:
            wrapped = await link.ask(envelope, WrappedAnswer, timeout_s=ANSWER_S)
        except ClientError:
            wrapped = WrappedAnswer(b"", ErrorCode.NOT_CONTROLLER)
        if wrapped.error_code == ErrorCode.NONE:
            return await _answer_in(broker, wrapped.data, context)
        if wrapped.error_code != ErrorCode.NOT_CONTROLLER:
            # As in Kafka: the controller does not know the client's version, or does not let this node forward.
            error = ErrorCode(wrapped.error_code)
            raise CloseConnectionError(f"the controller refuses what is forwarded: {error.name}")
        link.sent_away()
        await asyncio.sleep(AGAIN_S)
    return None


def _encoded(header: RequestHeader, request: Any) -> memoryview:
    """Returns header and body of a request; runs on a worker."""
    out = encode_request_header(header)
    request.encode_onto(out, header.api_version)
    return memoryview(out)[SIZE_BYTES:]


async def _answer_in(broker: NodeServices, data: Buffer, context: RequestContext) -> Any:
    """Returns the client's answer in an envelope. The context keeps a large one, which counts against the budget for
    requests until it is freed."""
    key, version = context.api_key, context.api_version
    _, at = decode_response_header(data, key, version)
    if len(data) > FEW_ELEMENT_BYTES:
        await broker.long_answers.hold(context, len(data))
    answer = await broker.node.workers.run(partial(response_class(key).decode, data, version, at))
    if len(data) > FEW_ELEMENT_BYTES:
        context.keep(answer)
    return answer


def _encode_principal(principal: str, is_token: bool) -> bytes:
    kind, _, name = principal.partition(":")
    return b"\x00\x00" + DefaultPrincipalData(type=kind, name=name, token_authenticated=is_token).encode(0)


def read_principal(data: bytes | None) -> tuple[str, bool] | None:
    """Returns the principal of an envelope, and whether it logged in by a delegation token; None if there is none that
    this release knows. Raises DecodeError."""
    if data is None or data[:2] != b"\x00\x00":
        return None
    principal = DefaultPrincipalData.decode(data, 0, 2)
    return f"{principal.type}:{principal.name}", principal.token_authenticated


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return _LOCAL
