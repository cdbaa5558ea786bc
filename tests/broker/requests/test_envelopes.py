"""What an Envelope carries is neither copied nor freed on the event loop, on the node that opens it and on the one that
sends it, however large it is."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from broker.raw import Raw
from broker.requests.test_long_controller_requests import SLOW, in_envelope
from peers.waiting import until

from headrace.broker.net import long_answers, request_reader, sending
from headrace.broker.net.long_answers import DECODED_PER_BYTE, EncodedAnswer
from headrace.broker.net.remains import FREED_AT_ONCE
from headrace.broker.requests import forwarding
from headrace.broker.requests.apis import k58_envelope
from headrace.broker.requests.envelopes import WrappedAnswer, WrappedRequest, decode_envelope, wrapped_answer
from headrace.controller.producer_ids import AllocateProducerIds
from headrace.testing.running_cluster import TestNode, cluster
from headrace.wire.apis import ApiKey
from headrace.wire.frame import RequestHeader, decode_request_header, decode_response_header
from headrace.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from headrace.wire.messages.k55_describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, TopicData
from headrace.wire.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from headrace.wire.primitives import DecodeError

MANY = 5000
FEW_BYTES = 1024
LEFT_BYTES = 4096
"""Fetches of other nodes wait."""


class Noted(str):
    """A name that notes where it is freed."""

    __slots__ = ()
    freed: ClassVar[list[int]] = []

    def __del__(self) -> None:
        Noted.freed.append(threading.get_ident())


def note_names(patched: pytest.MonkeyPatch, kind: Any, field: str) -> None:
    """Has messages decoded with such names of their topics."""
    decode = kind.decode

    def noted(*arguments: Any) -> Any:
        message = decode(*arguments)
        for each in message.topics:
            setattr(each, field, Noted(getattr(each, field)))
        return message

    patched.setattr(kind, "decode", noted)


class Nodes:
    """The active controller, and another node."""

    def __init__(self, leads: TestNode, follows: TestNode) -> None:
        self.leads, self.follows = leads, follows
        self.controller_port = next(each.port for each in leads.inside.server.listeners if each.name == "CONTROLLER")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with cluster(3, SLOW, data=tmp_path_factory.mktemp("data")) as three:
        controller = three.controller()
        yield Nodes(three.nodes[controller], next(node for at, node in three.nodes.items() if at != controller))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What is large is small here."""
    Noted.freed = []
    for decodes in (request_reader, k58_envelope, forwarding):
        monkeypatch.setattr(decodes, "FEW_ELEMENT_BYTES", FEW_BYTES)
    return monkeypatch


def question(count: int = MANY) -> DescribeQuorumRequest:
    return DescribeQuorumRequest([TopicData(f"n{number}") for number in range(count)])


def freed_on_loop(node: TestNode, count: int) -> int:
    """How many names the loop of a node has freed, once all of them are."""
    until(lambda: len(Noted.freed) == count, "all is freed")
    until(lambda: node.call(lambda inside: inside.server.requests_budget.used) < LEFT_BYTES, "nothing is held")
    return Counter(Noted.freed)[node.call(lambda _: threading.get_ident())]


def test_the_controller_frees_next_to_nothing_on_its_loop(nodes: Nodes, small: pytest.MonkeyPatch) -> None:
    note_names(small, ListPartitionReassignmentsRequest, "name")
    topics = [ListPartitionReassignmentsTopics(f"n{number}", [0]) for number in range(MANY)]
    with Raw(nodes.controller_port, timeout_s=60) as raw:
        raw.ask(in_envelope(ListPartitionReassignmentsRequest(topics=topics), 0, "127.0.0.1"), 0)
        assert freed_on_loop(nodes.leads, MANY) <= FREED_AT_ONCE


def test_a_large_answer_in_an_envelope_can_be_read(nodes: Nodes, small: pytest.MonkeyPatch) -> None:
    with Raw(nodes.controller_port, timeout_s=60) as raw:
        answer = raw.ask(in_envelope(question(), 2, "127.0.0.1"), 0)
    correlation_id, at = decode_response_header(answer.response_data, ApiKey.DESCRIBE_QUORUM, 2)
    said = DescribeQuorumResponse.decode(answer.response_data, 2, at)
    assert correlation_id == 7
    assert [each.topic_name for each in said.topics] == [f"n{number}" for number in range(MANY)]


def test_a_broker_frees_next_to_nothing_on_its_loop(nodes: Nodes, small: pytest.MonkeyPatch) -> None:
    note_names(small, DescribeQuorumResponse, "topic_name")
    small.setattr(request_reader, "FEW_ELEMENT_BYTES", 1 << 20)  # the request is small, its answer large
    # The client here decodes no answer: it would count.
    with Raw(nodes.follows.port, timeout_s=60) as raw:
        raw.send(question(), 2)
        raw.receive_frame()
        assert freed_on_loop(nodes.follows, MANY) <= FREED_AT_ONCE


@pytest.mark.parametrize("limit", [1 << 30, 1000], ids=["within the limit", "beyond it, alone"])
def test_a_decoded_answer_counts_against_the_budget(nodes: Nodes, small: pytest.MonkeyPatch, limit: int) -> None:
    small.setattr(request_reader, "FEW_ELEMENT_BYTES", 1 << 20)  # the request itself takes nothing
    budget = nodes.follows.inside.server.requests_budget
    small.setattr(budget, "limit", limit)
    used: list[int] = []
    decode = DescribeQuorumResponse.decode

    def noted(*arguments: Any) -> Any:
        used.append(budget.used)
        return decode(*arguments)

    small.setattr(DescribeQuorumResponse, "decode", noted)
    with Raw(nodes.follows.port, timeout_s=60) as raw:
        raw.send(question(), 2)
        size = len(raw.receive_frame())
    assert used[0] > DECODED_PER_BYTE * size / 2
    until(lambda: nodes.follows.call(lambda _: budget.used) < LEFT_BYTES, "nothing is held")
    assert budget.overdrawn_by is None


def test_what_a_node_asks_does_not_wait_behind_what_it_forwards(nodes: Nodes, small: pytest.MonkeyPatch) -> None:
    """A controller answers the requests of a connection in their order, and a large one may take it seconds."""
    turn = nodes.leads.inside.long_answers.turn
    follower = nodes.follows
    epoch = nodes.leads.inside.image.brokers[follower.id].epoch
    with Raw(follower.port, timeout_s=60) as raw:
        small.setattr(request_reader, "FEW_ELEMENT_BYTES", 1 << 20)  # the follower itself needs no turn
        turn_taken = nodes.leads.call(lambda _: asyncio.ensure_future(turn.acquire()))
        until(turn_taken.done, "nothing else has the turn")
        raw.send(question(), 2)
        until(lambda: nodes.leads.call(lambda _: bool(turn._waiters)), "the controller has what is forwarded")
        own = follower.call(
            lambda inside: asyncio.ensure_future(inside.controller.ask(AllocateProducerIds(follower.id, epoch)))
        )
        try:
            until(own.done, "what the node itself asks is answered")
        finally:
            nodes.leads.call(lambda _: turn.release())
        raw.receive_frame()
        assert own.exception() is None


def test_the_controller_sends_the_answer_as_a_worker_has_encoded_it(nodes: Nodes, small: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    queued: list[Any] = []
    encode, add = long_answers._encode, sending.Sending.add

    def encoded(version: int, response: Any) -> Any:
        parts, codes = encode(version, response)
        made.extend(parts)
        return parts, codes

    def added(self: Any, parts: Any) -> None:
        queued.extend(parts)
        add(self, parts)

    small.setattr(long_answers, "_encode", encoded)
    small.setattr(sending.Sending, "add", added)
    with Raw(nodes.controller_port, timeout_s=60) as raw:
        raw.ask(in_envelope(question(), 2, "127.0.0.1"), 0)
    (body,) = made
    assert any(part is body for part in queued)
    assert sum(len(part) for part in queued if part is not body) < FEW_BYTES


def test_a_large_envelope_is_not_decoded_on_the_loop(nodes: Nodes, small: pytest.MonkeyPatch) -> None:
    read: list[type] = []

    def reads(data: Any) -> Any:
        read.append(type(data))
        return decode_request_header(data)

    small.setattr(k58_envelope, "decode_request_header", reads)
    with Raw(nodes.controller_port, timeout_s=60) as raw:
        raw.ask(in_envelope(question(), 2, "127.0.0.1"), 0)
    assert read == [memoryview]  # on the loop it is bytes


def test_an_envelope_is_read_as_a_view_of_its_frame() -> None:
    frame = b"head" + EnvelopeRequest(bytes(range(200)), b"who", b"host").encode(0)
    request = decode_envelope(frame, 0, 4)
    assert isinstance(request.request_data, memoryview) and request.request_data.obj is frame
    assert request.request_data == bytes(range(200))
    assert (request.request_principal, request.client_host_address) == (b"who", b"host")


def test_on_the_loop_a_small_envelope_is_copied_and_a_large_one_refused() -> None:
    frame = EnvelopeRequest(bytes(200), b"who", b"host").encode(0)
    assert type(decode_envelope(memoryview(frame), 0, 0, len(frame)).request_data) is bytes
    with pytest.raises(DecodeError):
        decode_envelope(memoryview(frame), 0, 0, len(frame) - 1)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x09ends", b"\xff\xff\xff\xff\xff\x01"])
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    for decode in (decode_envelope, WrappedAnswer.decode):
        with pytest.raises(DecodeError):
            decode(data, 0)


def test_an_envelope_without_a_request_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode_envelope(b"\x00\x01\x01\x00", 0)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 70_000])
def test_what_is_wrapped_reads_as_the_codec_writes_it(size: int) -> None:
    carried = bytes(size)
    request, head = WrappedRequest(carried, b"who", b"host"), bytearray(b"head")
    parts, whole = request.encode_parts(0, head), bytearray()
    request.encode_onto(whole, 0)
    assert parts[0] is head and any(part is carried for part in parts)
    assert b"".join(parts[1:]) == whole == EnvelopeRequest(carried, b"who", b"host").encode(0)
    frame = b"head" + EnvelopeResponse(carried, 7).encode(0)
    answer = WrappedAnswer.decode(frame, 0, 4)
    assert (answer.data, answer.error_code) == (carried, 7)
    assert isinstance(answer.data, memoryview) and answer.data.obj is frame
    assert WrappedAnswer.decode(EnvelopeResponse(None, 41).encode(0), 0).error_code == 41


def test_an_answer_in_an_envelope_holds_the_encoded_body_itself() -> None:
    body = DescribeQuorumResponse().encode(2)
    answer = wrapped_answer(RequestHeader(ApiKey.DESCRIBE_QUORUM, 2, 9), EncodedAnswer([body], 2, ()))
    parts: Any = answer.encode_parts(0)
    assert any(part is body for part in parts)
    said = EnvelopeResponse.decode(b"".join(parts), 0)
    assert said.error_code == 0 and said.response_data is not None
    assert decode_response_header(said.response_data, ApiKey.DESCRIBE_QUORUM, 2) == (9, 5)
    assert said.response_data[5:] == body
