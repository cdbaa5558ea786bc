"""Frames: a size of four bytes, a header, a body. The headers of requests and responses, and which version they have.

Request headers are version 1, or 2 where the request's version is flexible; response headers 0 or 1 alike, except that
ApiVersions always answers with version 0, since the client does not know yet what the server speaks (KIP-511).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

from headrace.wire.apis import APIS, ApiKey
from headrace.wire.primitives import Buffer, DecodeError, EncodeError, Part, new, skip_tags

SIZE_BYTES = 4
"""Bytes of the size in front of every frame; it does not count itself."""

_NEVER = 1 << 16
_FLEXIBLE_FROM = {key: _NEVER if api.flexible_from is None else api.flexible_from for key, api in APIS.items()}

_read_head = Struct(">hhih").unpack_from
_read_correlation_id = Struct(">i").unpack_from
_pack_head = Struct(">ihhih").pack
_pack_response_head = Struct(">xxxxi").pack
_pack_flexible_response_head = Struct(">xxxxix").pack
_pack_size_into = Struct(">i").pack_into


@dataclass(slots=True)
class RequestHeader:
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


class Body(Protocol):
    """What a response or request can do so as to be framed."""

    def encode_onto(self, out: bytearray, version: int) -> None: ...


class PartedBody(Protocol):
    """The same for messages that carry records."""

    def encode_parts(self, version: int, head: bytearray | None = None) -> list[Part]: ...


def request_header_version(key: int, version: int) -> int:
    """1 or 2; raises KeyError for an API that does not exist."""
    return 2 if version >= _FLEXIBLE_FROM[key] else 1


def response_header_version(key: int, version: int) -> int:
    """0 or 1; raises KeyError for an API that does not exist."""
    return 1 if version >= _FLEXIBLE_FROM[key] and key != ApiKey.API_VERSIONS else 0


def decode_request_header(frame: Buffer, at: int = 0) -> tuple[RequestHeader, int]:
    """The header at `at`, and where the body starts; raises DecodeError, also for an API that does not exist.

    The version is not judged here: one that is too high has the header of the highest, so that an ApiVersions request
    from a newer client can be answered.
    """
    header = new(RequestHeader)
    try:
        key, version, header.correlation_id, length = _read_head(frame, at)
        flexible_from = _FLEXIBLE_FROM.get(key)
        if flexible_from is None:
            raise DecodeError(f"there is no API {key}")
        header.api_key = key
        header.api_version = version
        at += 10
        if length >= 0:
            end = at + length
            if end > len(frame):
                raise DecodeError("the client id reaches beyond its frame")
            header.client_id = str(frame[at:end], "utf-8")
            at = end
        elif length == -1:
            header.client_id = None
        else:
            raise DecodeError("the client id has a negative length")
        if version >= flexible_from:
            count = frame[at]
            at += 1
            if count:
                at = skip_tags(frame, at, count)
                if at > len(frame):
                    raise DecodeError("the header reaches beyond its frame")
    except (IndexError, struct.error) as error:
        raise DecodeError("a request ends within its header") from error
    except UnicodeDecodeError as error:
        raise DecodeError("the client id is not UTF-8") from error
    return header, at


def decode_response_header(frame: Buffer, key: int, version: int, at: int = 0) -> tuple[int, int]:
    """The correlation id of a response to `key` and `version`, and where the body starts; raises DecodeError."""
    try:
        correlation_id: int = _read_correlation_id(frame, at)[0]
        at += 4
        if response_header_version(key, version):
            count = frame[at]
            at += 1
            if count:
                at = skip_tags(frame, at, count)
                if at > len(frame):
                    raise DecodeError("the header reaches beyond its frame")
    except (IndexError, struct.error) as error:
        raise DecodeError("a response ends within its header") from error
    return correlation_id, at


def encode_request_header(header: RequestHeader) -> bytearray:
    """The header after four bytes of room for the size; raises EncodeError."""
    try:
        raw = b"" if header.client_id is None else header.client_id.encode()
        length = -1 if header.client_id is None else len(raw)
        out = bytearray(_pack_head(0, header.api_key, header.api_version, header.correlation_id, length))
    except (struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"the request header cannot be encoded: {error}") from error
    out += raw
    if header.api_version >= _FLEXIBLE_FROM[header.api_key]:
        out.append(0)
    return out


def encode_request(header: RequestHeader, body: Buffer | Body) -> bytes:
    """A whole frame, size first, from a header and an encoded body or a message; raises EncodeError."""
    out = encode_request_header(header)
    if isinstance(body, (bytes, bytearray, memoryview)):
        out += body
    else:
        body.encode_onto(out, header.api_version)
    _pack_size_into(out, 0, len(out) - SIZE_BYTES)
    return bytes(out)


def encode_response_header(key: int, version: int, correlation_id: int) -> bytearray:
    """The header after four bytes of room for the size."""
    if version >= _FLEXIBLE_FROM[key] and key != ApiKey.API_VERSIONS:
        return bytearray(_pack_flexible_response_head(correlation_id))
    return bytearray(_pack_response_head(correlation_id))


def encode_response(key: int, version: int, correlation_id: int, body: Body) -> bytearray:
    """A whole frame, size first; raises EncodeError."""
    out = encode_response_header(key, version, correlation_id)
    body.encode_onto(out, version)
    _pack_size_into(out, 0, len(out) - SIZE_BYTES)
    return out


def encode_response_parts(key: int, version: int, correlation_id: int, body: PartedBody) -> list[Part]:
    """A whole frame in parts, size first, large records uncopied; raises EncodeError."""
    out = encode_response_header(key, version, correlation_id)
    parts = body.encode_parts(version, out)
    _pack_size_into(out, 0, sum(map(len, parts)) - SIZE_BYTES)
    return parts
