"""Finding the right broker: versions, metadata, coordinators, and what is retried or said at once."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from headrace.client import groups, reading
from headrace.client.cluster import Client
from headrace.client.errors import (
    BrokerError,
    ClientError,
    ProtocolMismatchError,
    TimedOutError,
    UnknownTopicError,
    UnreachableError,
)
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

from .fake_broker import HANG_UP, Answer, FakeBroker


def test_nobody_there_names_every_address() -> None:
    with Client("127.0.0.1:1,127.0.0.1:2") as client:
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
            client.topics()


def test_the_first_address_that_answers_will_do() -> None:
    with FakeBroker() as broker, Client(f"127.0.0.1:1,{broker.bootstrap}") as client:
        assert [topic.name for topic in client.topics()] == ["events"]


def test_a_broker_with_older_api_versions_is_understood() -> None:
    broker = FakeBroker()
    broker.api_versions_max = 2
    broker.versions_max[ApiKey.METADATA] = 4
    with broker, Client(broker.bootstrap) as client:
        assert client.topic("events").id == bytes(16)
        assert broker.seen[:2] == [ApiKey.API_VERSIONS, ApiKey.API_VERSIONS]


def test_something_else_on_the_port_is_said() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    with listener, Client(f"127.0.0.1:{listener.getsockname()[1]}") as client:
        with pytest.raises(ProtocolMismatchError, match="does not answer as a Kafka broker"):
            client.topics()


def test_silence_ends_with_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        started = time.monotonic()
        with Client(f"127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.3) as client:
            with pytest.raises(UnreachableError, match="no answer in time"):
                client.topics()
        assert time.monotonic() - started < 10


def test_silence_after_the_handshake_ends_with_the_timeout() -> None:
    answers: dict[int, Answer] = {ApiKey.LIST_OFFSETS: lambda _request, _version: None}
    with FakeBroker(answers=answers) as broker, Client(broker.bootstrap, timeout_s=0.3) as client:
        with pytest.raises(TimedOutError, match=f"no answer from {broker.bootstrap} within the time allowed"):
            reading.latest_offsets(client, "events")


def test_a_broker_that_hangs_up_at_once_is_tried_again() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        client.topics()
        client.close()
        hangs_up_left = [3]
        accept = broker._reply

        def reply(frame: bytes) -> object:
            if hangs_up_left[0]:
                hangs_up_left[0] -= 1
                return HANG_UP
            return accept(frame)

        broker._reply = reply  # type: ignore[method-assign]
        client.topics()
        assert hangs_up_left == [0]


def test_an_unknown_topic_is_asked_for_only_a_moment() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        started = time.monotonic()
        with pytest.raises(UnknownTopicError, match="topic nothing"):
            client.topic("nothing")
        assert time.monotonic() - started < 15
        assert broker.seen.count(ApiKey.METADATA) > 2
        with pytest.raises(UnknownTopicError, match="events partition 5"):
            client.leader("events", 5)


def test_a_list_of_topics_waits_for_one_that_is_not_ready_and_leaves_out_those_that_are_not_to_be_seen() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        whole = broker.answers[ApiKey.METADATA]
        codes = [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE]

        def not_ready_at_first(request: MetadataRequest, version: int) -> MetadataResponse:
            response: MetadataResponse = whole(request, version)
            (topic,) = response.topics
            topic.error_code = codes.pop(0) if codes else ErrorCode.NONE
            response.topics += [
                MetadataResponseTopic(name="gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                MetadataResponseTopic(name="secret", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ]
            return response

        broker.answers[ApiKey.METADATA] = not_ready_at_first
        assert [topic.name for topic in client.topics()] == ["events"]
        assert codes == []


def list_offsets_answer(codes: list[int]) -> object:
    """Answers offset 42, after one refusal for each of these codes."""

    def answer(request: ListOffsetsRequest, _version: int) -> object:
        code = codes.pop(0) if codes else ErrorCode.NONE
        if code == 9999:
            return HANG_UP
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=code, offset=42)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


@pytest.mark.parametrize(
    "codes",
    [
        [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE],
        [9999],
        [9999, ErrorCode.FENCED_LEADER_EPOCH, 9999],
    ],
)
def test_leaders_that_move_are_followed(codes: list[int]) -> None:
    with FakeBroker(partitions=2, answers={ApiKey.LIST_OFFSETS: list_offsets_answer(list(codes))}) as broker:  # type: ignore[dict-item]
        with Client(broker.bootstrap) as client:
            assert reading.latest_offsets(client, "events") == {0: 42, 1: 42}
            assert broker.seen.count(ApiKey.LIST_OFFSETS) == len(codes) + 1
            assert broker.seen.count(ApiKey.METADATA) > 1


def test_what_cannot_be_retried_is_raised_at_once() -> None:
    answer = list_offsets_answer([ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    with FakeBroker(answers={ApiKey.LIST_OFFSETS: answer}) as broker, Client(broker.bootstrap) as client:  # type: ignore[dict-item]
        with pytest.raises(BrokerError, match="topic events partition 0.*TOPIC_AUTHORIZATION_FAILED"):
            reading.latest_offsets(client, "events")
        assert broker.seen.count(ApiKey.LIST_OFFSETS) == 1


def test_patience_ends_with_the_last_error() -> None:
    answer = list_offsets_answer([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000)
    with FakeBroker(answers={ApiKey.LIST_OFFSETS: answer}) as broker, Client(broker.bootstrap, timeout_s=0.5) as client:  # type: ignore[dict-item]
        started = time.monotonic()
        with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
            reading.latest_offsets(client, "events")
        assert 0.2 < time.monotonic() - started < 15


def test_an_answer_that_leaves_something_out_is_refused() -> None:
    answers: dict[int, Answer] = {ApiKey.LIST_OFFSETS: lambda _request, _version: ListOffsetsResponse()}
    with FakeBroker(answers=answers) as broker, Client(broker.bootstrap) as client:
        with pytest.raises(ProtocolMismatchError, match="leaves out topic events partition 0"):
            reading.latest_offsets(client, "events")


def test_an_api_that_is_not_served_is_said() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        with pytest.raises(ProtocolMismatchError, match="does not serve LIST_OFFSETS"):
            reading.latest_offsets(client, "events")


@pytest.mark.parametrize("newest", [3, 4, 6])
def test_coordinators_are_found_at_every_version_and_looked_for_again(newest: int) -> None:
    commits = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]

    def find(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        if version < 4:
            assert request.key == "g"
            return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=broker.port)
        assert request.coordinator_keys == ["g"]
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key="g", node_id=1, host="127.0.0.1", port=broker.port)]
        )

    def commit(request: OffsetCommitRequest, _version: int) -> OffsetCommitResponse:
        (topic,) = request.topics
        answer = OffsetCommitResponsePartition(partition_index=0, error_code=commits.pop(0))
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[answer])]
        )

    broker = FakeBroker(answers={ApiKey.FIND_COORDINATOR: find, ApiKey.OFFSET_COMMIT: commit})
    broker.versions_max[ApiKey.FIND_COORDINATOR] = newest
    with broker, Client(broker.bootstrap) as client:
        groups.commit_offsets(client, "g", {("events", 0): 3})
        assert commits == []
        assert broker.seen.count(ApiKey.FIND_COORDINATOR) == 3


def test_a_closed_connection_is_made_again() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        client.topics()
        broker.hang_up()
        client.topics()
        client.close()
        client.topics()
        client.close()
        client.close()


def test_errors_are_one_line() -> None:
    errors: list[ClientError] = [BrokerError(code, "topic t") for code in (*ErrorCode, 4711)]
    errors.append(UnknownTopicError("t"))
    for error in errors:
        assert "\n" not in str(error)
        assert str(error).startswith("topic t: ")
