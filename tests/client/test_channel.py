"""The conversation without a socket: any cut of the bytes, answers in order, garbage refused."""

from __future__ import annotations

from mmap import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.channel import FRAME_KEPT_SIZE_MAX, FRAME_SIZE_MAX, FRAMES_KEPT, Channel, FrameBuffers
from headrace.client.errors import ConnectionLostError, ProtocolMismatchError
from headrace.wire.apis import ApiKey
from headrace.wire.frame import decode_request_header, encode_response
from headrace.wire.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse


def open_channel() -> Channel:
    channel = Channel("test", peer="peer:1")
    channel.versions = {ApiKey.HEARTBEAT: (0, 4), ApiKey.METADATA: (0, 99), ApiKey.FETCH: (4, 12)}
    return channel


def feed(channel: Channel, data: bytes, cuts: list[int]) -> None:
    """Hand the bytes over in pieces of these sizes, then the rest."""
    pieces = iter(cuts)
    at = 0
    while at < len(data):
        buffer = channel.receive_buffer()
        size = min(next(pieces, len(data)), len(buffer), len(data) - at)
        buffer[:size] = data[at : at + size]
        at += size
        channel.received(size)


@given(
    sizes=st.lists(st.integers(0, 200_000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 70_000), max_size=40),
)
def test_answers_complete_in_order_however_the_bytes_are_cut(sizes: list[int], cuts: list[int]) -> None:
    channel = open_channel()
    calls, data = [], b""
    for number, size in enumerate(sizes):
        calls.append(channel.send(FetchRequest(), FetchResponse))
        records = bytes([number % 256]) * size
        body = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])])
        data += encode_response(ApiKey.FETCH, 12, calls[-1].correlation_id, body)
    feed(channel, data, cuts)
    for number, (call, size) in enumerate(zip(calls, sizes, strict=True)):
        got = call.result().responses[0].partitions[0].records
        assert isinstance(got, bytes | memoryview)
        assert bytes(got) == bytes([number % 256]) * size
    assert channel.outstanding == 0


def test_a_request_is_one_frame() -> None:
    channel = open_channel()
    call = channel.send(HeartbeatRequest(group_id="g", member_id="m"), HeartbeatResponse)
    data = b"".join(channel.outgoing)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    header, at = decode_request_header(data, 4)
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.HEARTBEAT, 4, "test")
    assert header.correlation_id == call.correlation_id
    assert HeartbeatRequest.decode(data, 4, at).group_id == "g"


@given(st.integers(1, 40))
def test_sent_bytes_leave_the_queue(step: int) -> None:
    channel = open_channel()
    for _ in range(3):
        channel.send(HeartbeatRequest(group_id="group"), HeartbeatResponse)
    whole = b"".join(channel.outgoing)
    gone = b""
    while channel.outgoing:
        size = min(step, sum(map(len, channel.outgoing)))
        gone += b"".join(channel.outgoing)[:size]
        channel.sent(size)
    assert gone == whole


def test_versions_are_the_newest_that_both_speak() -> None:
    channel = open_channel()
    assert channel.version_for(ApiKey.FETCH) == 12
    assert channel.version_for(ApiKey.METADATA) == 13
    with pytest.raises(ProtocolMismatchError, match="does not serve PRODUCE"):
        channel.version_for(ApiKey.PRODUCE)
    channel.versions[ApiKey.FETCH] = (0, 3)
    with pytest.raises(ProtocolMismatchError, match="versions 0 to 3"):
        channel.version_for(ApiKey.FETCH)


def test_what_is_no_kafka_answer_ends_the_channel() -> None:
    for garbage in (b"HTTP/1.1 400 Bad Request\r\n\r\n", (FRAME_SIZE_MAX + 1).to_bytes(4, "big"), b"\0\0\0\1x"):
        channel = open_channel()
        call = channel.send(MetadataRequest(), MetadataResponse)
        feed(channel, garbage, [])
        with pytest.raises(ProtocolMismatchError):
            call.result()
        with pytest.raises(ProtocolMismatchError):
            channel.send(MetadataRequest(), MetadataResponse)


def test_an_answer_out_of_step_ends_the_channel() -> None:
    channel = open_channel()
    call = channel.send(HeartbeatRequest(), HeartbeatResponse)
    feed(channel, bytes(encode_response(ApiKey.HEARTBEAT, 4, call.correlation_id + 1, HeartbeatResponse())), [])
    with pytest.raises(ConnectionLostError, match="correlation"):
        call.result()


def test_an_answer_that_was_not_asked_for_ends_the_channel() -> None:
    channel = open_channel()
    feed(channel, bytes(encode_response(ApiKey.HEARTBEAT, 4, 1, HeartbeatResponse())), [])
    assert channel.failure is not None


@given(st.binary(max_size=300))
def test_any_body_completes_or_fails_the_call(body: bytes) -> None:
    channel = open_channel()
    call = channel.send(MetadataRequest(), MetadataResponse)
    frame = call.correlation_id.to_bytes(4, "big") + body
    feed(channel, len(frame).to_bytes(4, "big") + frame, [])
    assert call.done
    assert (call.error is None) != (call.response is None)


@given(st.lists(st.tuples(st.integers(1, 3 << 20), st.booleans()), max_size=12))
def test_memory_of_a_frame_is_used_again_only_once_nobody_has_a_view_of_it(frames: list[tuple[int, bool]]) -> None:
    buffers = FrameBuffers()
    held: list[tuple[memoryview, int]] = []
    for number, (size, released) in enumerate(frames):
        frame = buffers.take(size)
        assert len(frame) == size
        frame[0] = frame[-1] = number
        if not released:
            held.append((frame[size // 2 :], number))
        assert all(view[-1] == mark for view, mark in held)
        assert len(buffers._kept) <= FRAMES_KEPT


def test_a_frame_that_is_done_with_leaves_its_memory_to_the_next() -> None:
    buffers = FrameBuffers()
    one, other = buffers.take(5 << 20), buffers.take(5 << 20)
    first, second = one.obj, other.obj
    assert first is not second
    del one
    assert (again := buffers.take(4 << 20)).obj is first
    del other
    assert buffers.take(4 << 20).obj is second
    assert again.obj is first


def test_memory_for_the_largest_frames_is_not_filled_at_once() -> None:
    buffers = FrameBuffers()
    frame = buffers.take(FRAME_KEPT_SIZE_MAX + 1)
    assert isinstance(frame.obj, mmap) and not buffers._kept
    assert len(frame) == FRAME_KEPT_SIZE_MAX + 1
    frame[-1] = 7
    assert (frame[0], frame[-1]) == (0, 7)
