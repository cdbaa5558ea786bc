"""Bytes that no client should send: Kafka's code or a closed connection, one log line, and nobody else notices."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable

import pytest
from broker.raw import Raw, batch, fetch, produce

from headrace.broker.requests import bad_batches
from headrace.testing.running import TestBroker
from headrace.wire.apis import APIS
from headrace.wire.batch import BATCH_OVERHEAD, read_header, seal_batch, unsealed
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def header(key: int, version: int, correlation_id: int = 7, client_id: bytes | None = b"x") -> bytes:
    raw = struct.pack(">hhi", key, version, correlation_id)
    return raw + (struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls hello": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "negative size": struct.pack(">i", -1) + bytes(20),
    "zero size": bytes(64),
    "size below a header": struct.pack(">i", 9) + bytes(20),
    "frame too large": struct.pack(">i", 104857601) + bytes(20),
    "unknown api": framed(header(4242, 0)),
    "negative api": framed(header(-1, 0)),
    "unserved api": framed(header(4, 0)),
    "version too high": framed(header(3, 99) + bytes(8)),
    "version below": framed(header(1, 3) + bytes(8)),
    "negative version": framed(header(3, -5) + bytes(8)),
    "client id beyond the frame": framed(struct.pack(">hhih", 3, 1, 1, 5000)),
    "negative client id length": framed(struct.pack(">hhih", 3, 1, 1, -7)),
    "client id that is not text": framed(header(3, 1, client_id=b"\xff\xfe") + struct.pack(">i", -1)),
    "negative array count": framed(header(3, 0) + struct.pack(">i", -5)),
    "count beyond the frame": framed(header(3, 1) + struct.pack(">i", 1_000_000)),
    "count of two billion": framed(header(3, 1) + struct.pack(">i", 2_000_000_000)),
    "string beyond the frame": framed(header(3, 1) + struct.pack(">ih", 1, 30000) + b"abc"),
    "header alone": framed(header(1, 11)),
    "too many tags": framed(header(3, 12) + b"\xff\xff\xff\xff\x0f"),
    "produce, truncated": framed(header(0, 9) + b"\x00\x00\x00\xff"),
    "endless varint": framed(header(3, 12) + b"\x00" + b"\xff" * 40),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_closes_its_connection_with_one_line(
    served: TestBroker, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    with Raw(served.port) as neighbour, Raw(served.port) as raw:
        assert neighbour.ask(API_VERSIONS, 3).error_code == 0
        caplog.clear()
        served.call(lambda broker: broker.server.old_clients._named.clear())  # one line an address and minute
        with caplog.at_level(logging.INFO, logger="headrace"):
            raw.socket.sendall(GARBAGE[what])
            assert raw.is_closed()
        lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(lines) == 1, [line.getMessage() for line in lines]
        assert "connection closed client=" in lines[0].getMessage()
        assert neighbour.ask(API_VERSIONS, 3).error_code == 0


def test_requests_before_the_bad_one_are_answered(raw: Raw) -> None:
    good = raw.frame(API_VERSIONS, 3)
    raw.socket.sendall(good + good + framed(header(4242, 0)))
    for _ in range(2):
        assert raw.receive(18, 3)[1].error_code == 0
    assert raw.is_closed()


def test_unknown_version_of_api_versions_is_answered_in_version_0(raw: Raw) -> None:
    raw.socket.sendall(framed(header(18, 77, correlation_id=5) + b"\x00\x02a\x02b\x00"))
    frame = raw.receive_frame()
    assert struct.unpack(">i", frame[:4])[0] == 5
    answer = ApiVersionsResponse.decode(frame, 0, 4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [
        (18, 0, APIS[18].max_version)
    ], "KIP-511: nothing but the versions of ApiVersions"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_is_refused_by_code(raw: Raw, version: int) -> None:
    body = struct.pack(">hiih", 1, 1000, 1, 1) + b"t" + struct.pack(">iii", 1, 3, 0)
    raw.socket.sendall(framed(header(0, version, correlation_id=9) + body))
    frame = raw.receive_frame()
    expected = struct.pack(">iih", 9, 1, 1) + b"t" + struct.pack(">iihq", 1, 3, ErrorCode.UNSUPPORTED_VERSION, -1)
    expected += struct.pack(">q", -1) if version >= 2 else b""
    expected += struct.pack(">i", 0) if version >= 1 else b""
    assert frame == expected


@pytest.mark.parametrize("name", ["", " bad", "bad/name", "x" * 250, ".", "..", "ä"])
def test_impossible_topic_names(raw: Raw, name: str) -> None:
    answer = raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True), 8)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    produced = raw.ask(produce(name, batch(b"x")), 9)
    assert produced.responses[0].partition_responses[0].error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    )


def broken(**changes: int) -> bytes:
    """A batch with some of its bytes set."""
    data = bytearray(batch(b"one", b"two"))
    for place, value in changes.items():
        data[int(place[1:])] = value
    return bytes(data)


def lying(count: int) -> bytes:
    """A batch of one record whose header, checksum included, says that there are more."""
    one = batch(b"x")
    return bytes(
        seal_batch(
            unsealed(one[BATCH_OVERHEAD:]),
            record_count=count,
            last_offset_delta=count - 1,
            base_timestamp=read_header(one).base_timestamp,
            max_timestamp=read_header(one).max_timestamp,
        )
    )


@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(broken(_30=77), ErrorCode.CORRUPT_MESSAGE, id="a wrong checksum"),
        pytest.param(batch(b"x" * 50)[:-3], ErrorCode.INVALID_RECORD, id="truncated: no whole batch"),
        pytest.param(batch(b"x")[:40], ErrorCode.INVALID_RECORD, id="not even a header"),
        pytest.param(batch(b"x") + batch(b"y"), ErrorCode.INVALID_RECORD, id="two batches where one belongs"),
        pytest.param(lying(3), ErrorCode.INVALID_RECORD, id="a header that lies about its count"),
        pytest.param(batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE, id="too large"),
    ],
)
def test_bad_batches_are_refused_by_code(raw: Raw, topic: Callable[..., str], records: bytes, error: ErrorCode) -> None:
    name = topic()
    answer = raw.ask(produce(name, records), 9).responses[0].partition_responses[0]
    assert ErrorCode(answer.error_code) is error
    assert answer.base_offset == -1
    good = raw.ask(produce(name, batch(b"good")), 9).responses[0].partition_responses[0]
    assert (good.error_code, good.base_offset) == (0, 0)


def test_a_bad_batch_is_one_line_and_many_are_few(
    served: TestBroker,
    raw: Raw,
    topic: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bad_batches, "QUIET_S", 3600.0)

    def counters() -> tuple[int, int]:
        found = served.call(lambda broker: broker.metrics.statistics()).counters
        return found["produce.bad_batches"], found["produce.bad_batches_unlogged"]

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "batch refused" in record.getMessage()]

    name = topic()
    before = counters()
    port = raw.socket.getsockname()[1]
    assert raw.ask(produce(name, broken(_30=77)), 9).responses[0].partition_responses[0].error_code == 2
    (line,) = lines()
    start = f'batch refused client=127.0.0.1:{port} partition={name}-0 error=CORRUPT_MESSAGE why="Record is corrupt'
    assert line.startswith(start)
    assert counters() == (before[0] + 1, before[1])
    raw.ask(produce(name, batch(b"x" * 2_000_000)), 9)
    raw.ask(produce(name, batch(b"good")), 9)
    assert counters() == (before[0] + 1, before[1]) and len(lines()) == 1
    for _ in range(50):
        raw.ask(produce(name, lying(3)), 9)
    assert counters() == (before[0] + 51, before[1] + 50) and len(lines()) == 1
    with Raw(served.port) as other:
        other.ask(produce(name, lying(3)), 9)
    assert "INVALID_RECORD" in lines()[1] and lines()[1].endswith(" refused_without_a_line=50")
    monkeypatch.setattr(bad_batches, "QUIET_S", 0.0)
    raw.ask(produce(name, lying(3)), 9)
    assert len(lines()) == 3 and "without_a_line" not in lines()[2]
    monkeypatch.setattr(bad_batches, "QUIET_S", 3600.0)
    monkeypatch.setattr(bad_batches, "NAMED_MAX", 2)
    with Raw(served.port) as third:
        third.ask(produce(name, lying(3)), 9)
    assert len(lines()) == 3, "the table of those that were named is full"


def test_control_and_transactional_batches_are_refused(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    control = raw.ask(produce(name, batch(b"x", control=True)), 9).responses[0].partition_responses[0]
    assert control.error_code == ErrorCode.INVALID_RECORD
    open_ended = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    transactional = raw.ask(produce(name, open_ended), 9).responses[0].partition_responses[0]
    assert transactional.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_impossible_acks(raw: Raw, topic: Callable[..., str], acks: int) -> None:
    answer = raw.ask(produce(topic(), batch(b"x"), acks=acks), 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_acks_0_is_answered_by_nobody(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    raw.send(produce(name, batch(b"quiet"), acks=0), 9)
    answer = raw.ask(fetch(name, max_wait_ms=2000), 11)
    assert answer.responses[0].partitions[0].high_watermark == 1


def test_a_failed_acks_0_closes_the_connection(raw: Raw) -> None:
    raw.send(produce("there-is-no-such-topic", batch(b"x"), acks=0), 9)
    assert raw.is_closed()


def test_a_frame_in_single_bytes(raw: Raw, topic: Callable[..., str]) -> None:
    for byte in raw.frame(produce(topic(), batch(b"slow")), 9):
        raw.socket.sendall(bytes([byte]))
    assert raw.receive(0, 9)[1].responses[0].partition_responses[0].error_code == 0


def test_a_tagged_header_is_read(raw: Raw, topic: Callable[..., str]) -> None:
    """Unknown tagged fields in the request header and body are skipped, also where plain requests take a short cut."""
    name = topic()
    plain = encode_request(RequestHeader(0, 9, 1, "raw"), produce(name, batch(b"x")))
    head = 4 + 10 + 3
    tagged = plain[4:head] + b"\x01\x63\x02hi" + plain[head + 1 : -1] + b"\x01\x63\x01!"
    raw.socket.sendall(framed(tagged) + plain)
    for offset in (0, 1):
        answer = raw.receive(0, 9)[1].responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, offset)
