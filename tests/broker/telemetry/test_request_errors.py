"""Failed requests, counted by API and error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.telemetry.request_errors import codes_in, plan_of
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire import messages
from headrace.wire.messages import response_class
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.k09_offset_fetch import OffsetFetchResponse

CODE = re.compile(r"^        error_code: int", re.MULTILINE)


def paths(kind: type) -> set[str]:
    own, lists = plan_of(kind)
    inner = {f"{name}.{path}" for name, plan in lists for path in _paths(plan)}
    return inner | ({"error_code"} if own else set())


def _paths(plan: Any) -> set[str]:
    own, lists = plan
    return {f"{name}.{path}" for name, inner in lists for path in _paths(inner)} | ({"error_code"} if own else set())


@pytest.mark.parametrize("key", sorted(messages.MODULES))
def test_the_errors_of_every_answer_are_found(key: int) -> None:
    """As many places as there are classes with an error code, in what the schema says of the answer."""
    kind = response_class(key)
    source = (Path(messages.__file__).parent / f"{messages.MODULES[key]}.py").read_text()
    classes = re.split(r"^class ", source, flags=re.MULTILINE)[1:]
    with_code = {each.partition("(")[0] for each in classes if CODE.search(each)}
    with_code = {name for name in with_code if not name.endswith("Request")}
    assert bool(paths(kind)) == bool(with_code), with_code
    assert len(paths(kind)) >= len(with_code)


def test_where_errors_lie() -> None:
    assert paths(MetadataResponse) == {"error_code", "topics.error_code", "topics.partitions.error_code"}
    assert "groups.topics.partitions.error_code" in paths(OffsetFetchResponse)
    partitions = [MetadataResponsePartition(error_code=code) for code in (5, 0, 5)]
    response = MetadataResponse(
        topics=[MetadataResponseTopic(error_code=3), MetadataResponseTopic(partitions=partitions)]
    )
    found: list[int] = []
    codes_in(response, plan_of(MetadataResponse), found)
    assert found == [3, 5, 5]
    assert plan_of(bytes) == (False, ())


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker({"auto.create.topics.enable": "false"}) as running:
        create_topic(running.port, "t")
        yield running


@pytest.fixture
def counted(served: TestBroker) -> Callable[[], dict[str, int]]:
    """The errors that were counted since the test began."""

    def all_of() -> dict[str, int]:
        counters = served.call(lambda broker: broker.metrics.statistics().counters)
        return {name.removeprefix("request_errors."): n for name, n in counters.items() if "request_errors." in name}

    before = all_of()
    return lambda: {name: n - before.get(name, 0) for name, n in all_of().items() if n != before.get(name, 0)}


def test_what_is_answered_well_counts_nothing(served: TestBroker, counted: Any) -> None:
    with Raw(served.port) as raw:
        for _ in range(3):
            assert raw.ask(produce("t", batch(b"x")), 9).responses[0].partition_responses[0].error_code == 0
            assert raw.ask(fetch("t", max_wait_ms=0), 12).responses[0].partitions[0].error_code == 0
    assert counted() == {}


def test_produce_and_fetch(served: TestBroker, counted: Any) -> None:
    spoilt = bytearray(batch(b"x"))
    spoilt[-1] ^= 1
    with Raw(served.port) as raw:
        raw.ask(produce("nowhere", batch(b"x")), 9)
        for _ in range(2):  # together with others that have come, and alone
            raw.ask(produce("t", bytes(spoilt)), 9)
        raw.ask(fetch("t", 10_000, (0, 7, 8)), 12)
        unknown = fetch("t")
        unknown.session_id, unknown.session_epoch = 77, 5
        raw.ask(unknown, 12)
        raw.send(produce("nowhere", batch(b"x"), acks=0), 9)
        with pytest.raises(ConnectionError):
            raw.receive_frame()
    assert counted() == {
        "produce.UNKNOWN_TOPIC_OR_PARTITION": 2,
        "produce.CORRUPT_MESSAGE": 2,
        "fetch.FETCH_SESSION_ID_NOT_FOUND": 1,
        "fetch.OFFSET_OUT_OF_RANGE": 1,
        "fetch.UNKNOWN_TOPIC_OR_PARTITION": 2,
    }


def test_other_apis(served: TestBroker, counted: Any) -> None:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=i) for i in (0, 3)])
    with Raw(served.port) as raw:
        raw.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5)
        raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name="nowhere")], allow_auto_topic_creation=False), 9)
    assert counted() == {"list_offsets.UNKNOWN_TOPIC_OR_PARTITION": 1, "metadata.UNKNOWN_TOPIC_OR_PARTITION": 1}


def test_a_defect_is_an_unknown_error(served: TestBroker, counted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patched, Raw(served.port) as raw:
        patched.setattr(ReplicaManager, "find", fails)
        asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0)])
        raw.send(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5)
        with pytest.raises(ConnectionError):
            raw.receive_frame()
    assert counted() == {"list_offsets.UNKNOWN_SERVER_ERROR": 1}
    assert str(served.take_defect()) == "a defect"
