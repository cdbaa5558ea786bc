"""Reads the requests of one connection: decodes header and body, makes the context, and calls the handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.context import context_of
from headrace.broker.net.long_answers import FEW_ELEMENT_BYTES
from headrace.broker.net.plain_header import HEADER_BYTES, plain_body
from headrace.wire.frame import decode_request_header
from headrace.wire.primitives import Buffer, DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.broker.net.client_session import ClientSession
    from headrace.broker.net.input import Input
    from headrace.broker.net.ports import Api
    from headrace.broker.net.reply import Reply
    from headrace.broker.net.shared import Shared

RAW: Final = -1
"""Version of a reply whose response is an encoded frame."""


class RequestReader:
    """The request reader of one connection. It remembers the last client id, as most headers repeat it."""

    __slots__ = ("_client", "_client_id", "_client_id_raw", "_input", "_served", "_shared")

    def __init__(self, shared: Shared, client: ClientSession, served: Mapping[int, Api], arrived: Input) -> None:
        """`served` are the APIs of the listener; `arrived` owns the memory of a large frame."""
        self._shared = shared
        self._client = client
        self._served = served
        self._input = arrived
        self._client_id: str | None = None
        self._client_id_raw: Buffer | None = None

    def result_of(self, reply: Reply, frame: memoryview, length: int) -> Any:
        """Returns the result of a request's handler (see `ports.Api.handle`). `length` is the length of the client id.

        For a version that does not exist, returns the frame of the answer. Raises DecodeError, CloseConnectionError,
        and any exception of the handler.
        """
        shared, key, version = self._shared, reply.key, reply.version
        served = self._served.get(key)
        if served is None:
            raise CloseConnectionError(f"a request of the unserved API {key}")
        at = plain_body(frame, served, version, length, self._client_id_raw)
        if not at:
            self._client_id_raw = bytes(frame[HEADER_BYTES : HEADER_BYTES + length]) if length >= 0 else None
            header, at = decode_request_header(frame)
            self._client_id = header.client_id
            if not served.min_version <= version <= served.max_version:
                parts = shared.requests.unsupported_version(self._served, frame, at, header)
                reply.version, reply.held, reply.meter = RAW, 0, None
                return parts
        authorizer = shared.requests.authorizer
        context = context_of(authorizer, self._client, self._client_id, key, version, reply.correlation_id, reply.meter)
        try:
            request = served.decode(frame, version, at, FEW_ELEMENT_BYTES)
        except DecodeError:
            if len(frame) <= FEW_ELEMENT_BYTES:
                raise
            held, self._input.frame = self._input.frame, None
            return shared.long_answers.request(reply, frame, at, served, context, held)
        served.count.value += 1
        return served.handle(request, context)
