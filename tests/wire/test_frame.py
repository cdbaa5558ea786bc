"""Frames and headers: what clients send first, also when it is no Kafka at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.apis import APIS, ApiKey
from headrace.wire.frame import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    encode_response_header,
    encode_response_parts,
    request_header_version,
    response_header_version,
)
from headrace.wire.messages.header import RequestHeader as HeaderMessage
from headrace.wire.messages.header import ResponseHeader as ResponseHeaderMessage
from headrace.wire.messages.k00_produce import ProduceResponse
from headrace.wire.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.primitives import DecodeError, EncodeError

HEADERS = st.builds(
    RequestHeader,
    api_key=st.sampled_from(sorted(APIS)),
    api_version=st.integers(0, 20),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=200),
)


@given(header=HEADERS, body=st.binary(max_size=50))
def test_request_round_trip(header: RequestHeader, body: bytes) -> None:
    frame = encode_request(header, body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    for buffer in (frame, memoryview(frame), bytearray(frame)):
        decoded, at = decode_request_header(buffer, 4)
        assert decoded == header
        assert buffer[at:] == body


@given(header=HEADERS)
def test_headers_are_those_of_the_schema(header: RequestHeader) -> None:
    """The headers written here by hand against the generated ones."""
    version = request_header_version(header.api_key, header.api_version)
    schema = HeaderMessage(header.api_key, header.api_version, header.correlation_id, header.client_id)
    assert encode_request(header, b"")[4:] == schema.encode(version)
    version = response_header_version(header.api_key, header.api_version)
    answer = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    assert answer[4:] == ResponseHeaderMessage(header.correlation_id).encode(version)
    found = decode_response_header(answer, header.api_key, header.api_version, 4)
    assert found == (header.correlation_id, len(answer))


def test_header_versions() -> None:
    assert request_header_version(ApiKey.PRODUCE, 8) == 1
    assert request_header_version(ApiKey.PRODUCE, 9) == 2
    assert response_header_version(ApiKey.PRODUCE, 9) == 1
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in (0, 3, 4, 99)] == [0, 0, 0, 0]
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert response_header_version(ApiKey.OFFSET_DELETE, 0) == 0


def test_an_api_versions_request_from_the_future_has_a_header() -> None:
    frame = encode_request(RequestHeader(ApiKey.API_VERSIONS, 77, 5, "new"), b"what it says now")
    header, at = decode_request_header(frame, 4)
    assert header == RequestHeader(18, 77, 5, "new")
    assert frame[at:] == b"what it says now"


def test_unknown_tags_in_headers_are_skipped() -> None:
    frame = bytes.fromhex("0000000900000007ffff") + b"\x02\x05\x03abc\x06\x00" + b"body"
    header, at = decode_request_header(frame)
    assert header == RequestHeader(0, 9, 7, None)
    assert frame[at:] == b"body"
    answer = bytes.fromhex("00000007") + b"\x01\x05\x03abc" + b"body"
    assert decode_response_header(answer, 0, 9) == (7, 10)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "ends within"),
        (b"\0\0\0\x09\0\0\0\x07\0", "ends within"),
        (b"\0\0\0\x09\0\0\0\x07\xff\xff", "ends within"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "no API"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(40), "no API"),
        (b"\0\x04\0\0\0\0\0\x07\xff\xff", "no API 4"),
        (b"\xff\xff\0\0\0\0\0\x07\xff\xff", "no API -1"),
        (b"\0\0\0\x03\0\0\0\x07\x7f\xffabc", "beyond"),
        (b"\0\0\0\x03\0\0\0\x07\xff\xfe", "negative"),
        (b"\0\0\0\x03\0\0\0\x07\0\x01\xff", "UTF-8"),
        (b"\0\0\0\x09\0\0\0\x07\xff\xff\x01\x05\x7f", "tagged field 5"),
        (b"\0\0\0\x09\0\0\0\x07\xff\xff\xff\xff\x7f", "tagged fields"),
    ],
)
def test_garbage(frame: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decode_request_header(frame)


@given(frame=st.binary(max_size=60), key=st.sampled_from(sorted(APIS)), version=st.integers(0, 20))
def test_any_bytes_are_a_header_or_a_decode_error(frame: bytes, key: int, version: int) -> None:
    for decode in (
        lambda: decode_request_header(frame),
        lambda: decode_request_header(key.to_bytes(2, "big") + frame),
        lambda: decode_response_header(frame, key, version),
    ):
        try:
            decode()
        except DecodeError:
            continue


def test_a_whole_response() -> None:
    frame = encode_response(0, 9, 3, ProduceResponse(throttle_time_ms=1))
    assert frame.hex() == "0000000b" + "00000003" + "00" + "01" + "00000001" + "00"
    frame = encode_response(18, 3, 3, ApiVersionsResponse(error_code=35))
    assert frame.hex() == "0000000c" + "00000003" + "0023" + "01" + "00000000" + "00"


def test_a_whole_response_in_parts() -> None:
    records = b"r" * 9000
    response = FetchResponse(responses=[FetchableTopicResponse("t", bytes(16), [PartitionData(0, records=records)])])
    parts = encode_response_parts(1, 12, 3, response)
    assert parts[1] is records
    joined = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
    assert joined == encode_response(1, 12, 3, response)
    assert int.from_bytes(joined[:4], "big") == len(joined) - 4


def test_a_request_from_a_message() -> None:
    header = RequestHeader(18, 3, 1, "c")
    request = ApiVersionsRequest("name", "1.0")
    assert encode_request(header, request) == encode_request(header, request.encode(3))
    with pytest.raises(EncodeError):
        encode_request(RequestHeader(18, 99, 1, "c"), request)
    with pytest.raises(EncodeError, match="header"):
        encode_request(RequestHeader(18, 99999, 1, "c"), b"")
