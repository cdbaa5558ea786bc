"""Encodes and decodes envelopes without copies: one may carry a request, or an answer, of many megabytes.

The generated codec copies the bytes of a message, in one turn of the event loop. This one does not: a large envelope is
read as a view of its frame, and written as parts around its content. Source: KIP-590.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from headrace.broker.net.long_answers import EncodedAnswer
from headrace.wire.apis import ApiKey
from headrace.wire.frame import SIZE_BYTES, encode_response_parts
from headrace.wire.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from headrace.wire.primitives import Buffer, DecodeError, Part, read_varint, varint

if TYPE_CHECKING:
    from headrace.wire.frame import RequestHeader

VERSION: Final = 0
"""The only version of Envelope."""
_EMPTY: Final = b"\x01"
"""The encoding of empty bytes."""


def decode_envelope(data: Buffer, version: int, at: int = 0, element_bytes: int | None = None) -> EnvelopeRequest:
    """Returns the envelope that starts at `at`. With `element_bytes` it copies `data`, without it holds a view of it.

    Raises DecodeError, also if there are more than `element_bytes` bytes: a content may have an element per byte.
    """
    if element_bytes is not None:
        if len(data) - at > element_bytes:
            raise DecodeError("an envelope has more bytes than the event loop decodes")
        return EnvelopeRequest.decode(data, version, at)
    carried, at = _carried(data, at)
    if carried is None:
        raise DecodeError("an envelope carries no request")
    request = EnvelopeRequest.decode(_EMPTY + bytes(data[at:]), version)
    request.request_data = carried  # type: ignore[assignment]  # its readers take any buffer
    return request


class WrappedRequest:
    """An envelope with a client's encoded request (a `client.channel.Request`)."""

    API_KEY: ClassVar[int] = ApiKey.ENVELOPE

    def __init__(self, carried: Buffer, principal: bytes, host: bytes) -> None:
        rest = EnvelopeRequest(request_principal=principal, client_host_address=host).encode(VERSION)
        self._parts: list[Buffer] = [varint(len(carried) + 1), carried, rest[len(_EMPTY) :]]

    def encode_parts(self, version: int, head: bytearray) -> list[Buffer]:
        """Returns the parts of the request after a header."""
        assert version == VERSION
        return [head, *self._parts]

    def encode_onto(self, out: bytearray, version: int) -> None:
        """Appends a copy of the body."""
        assert version == VERSION
        for part in self._parts:
            out += part


class WrappedAnswer:
    """The active controller's response to an envelope, as a view of its frame (a `client.channel.Response`)."""

    API_KEY: ClassVar[int] = ApiKey.ENVELOPE
    __slots__ = ("data", "error_code")

    def __init__(self, data: Buffer, error_code: int) -> None:
        self.data = data
        self.error_code = error_code

    @classmethod
    def decode(cls, data: Buffer, version: int, at: int = 0) -> WrappedAnswer:
        """Decodes a response. Raises DecodeError."""
        carried, at = _carried(data, at)
        rest = EnvelopeResponse.decode(_EMPTY + bytes(data[at:]), version)
        return cls(b"" if carried is None else carried, rest.error_code)


def wrapped_answer(header: RequestHeader, answer: EncodedAnswer) -> EncodedAnswer:
    """Returns the envelope around an encoded answer to the request with that header."""
    head, *parts = encode_response_parts(header.api_key, header.api_version, header.correlation_id, answer)
    inner: list[Part] = [bytes(memoryview(head)[SIZE_BYTES:]), *parts]  # type: ignore[arg-type]
    rest = EnvelopeResponse(response_data=b"").encode(VERSION)
    return EncodedAnswer([varint(sum(map(len, inner)) + 1), *inner, rest[len(_EMPTY) :]], VERSION, ())


def _carried(data: Buffer, at: int) -> tuple[memoryview | None, int]:
    """Returns a view of the bytes field at `at` (None if it is null) and its end. Raises DecodeError."""
    try:
        size, at = read_varint(data, at)
    except IndexError as error:
        raise DecodeError("an envelope ends too early") from error
    if not size:
        return None, at
    end = at + size - 1
    if end > len(data):
        raise DecodeError("what an envelope carries reaches beyond its frame")
    return memoryview(data)[at:end], end
