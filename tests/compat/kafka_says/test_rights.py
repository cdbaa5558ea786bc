"""Every API, asked by clients with one right, with all but one, with none and with all: Apache Kafka and ours say the
same, answer by answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from peers.kafka import KafkaPeer, free_port
from peers.link import Link

from headrace.broker.controller_node import SERVED_ALONE
from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.testing.running import broker as running_broker
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import request_class
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k30_create_acls import CreateAclsRequest
from headrace.wire.messages.k74_list_config_resources import ListConfigResourcesRequest
from headrace.wire.records import Record, build_batch

from .refusals import codes_of
from .rights import (
    GROUP,
    HELD,
    OWNER,
    THIN,
    TRANSACTION,
    Case,
    Rights,
    World,
    cases,
    every_rights,
    everything,
    now_ms,
    seen,
)

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PATIENCE_S = 30.0
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "auto.create.topics.enable": "true",
}

RIGHTS = {rights.name: rights for rights in every_rights()}
CASES = {case.name: case for case in cases()}

UNLIKE = frozenset({ApiKey.API_VERSIONS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_DELEGATION_TOKEN})
"""What a controller of Apache Kafka answers whoever asks, or does not serve."""


def link_from(host: str, port: int) -> Link:
    """A connection whose other end sees this address of ours."""
    link = Link(port)
    link.socket.close()
    link.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(host, 0))
    return link


def until_codes(owner: Link, request: object, version: int, *, any_: bool = False) -> None:
    """Asks until there is no error any more, or until there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while bool(codes_of(owner.ask(request, version))) is not any_:
        assert time.monotonic() < deadline, request
        time.sleep(0.1)


@contextmanager
def guarded(port: int, controller_port: int) -> Iterator[World]:
    """A broker with the topic, the group, the transaction and the rules of all rights."""
    with link_from(OWNER, port) as owner:
        made = owner.ask(CreateTopicsRequest([CreatableTopic(HELD, 2, 1)]), 7).topics[0]
        assert made.error_code == 0
        for key_type, key in ((0, GROUP), (1, TRANSACTION)):
            until_codes(owner, FindCoordinatorRequest("", key_type, [key]), 4)
        batch = memoryview(bytes(build_batch([Record(0, now_ms(), None, b"x")])))
        data = TopicProduceData(HELD, bytes(16), [PartitionProduceData(0, batch)])
        until_codes(owner, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), 9)
        committed = OffsetCommitRequestTopic(HELD, made.topic_id, [OffsetCommitRequestPartition(0, 1)])
        until_codes(owner, OffsetCommitRequest(GROUP, topics=[committed]), 8)
        until_codes(owner, InitProducerIdRequest(TRANSACTION, 60_000), 4)
        acls = [*everything(OWNER), *(acl for rights in RIGHTS.values() for acl in rights.acls)]
        assert codes_of(owner.ask(CreateAclsRequest(acls), 3)) == ()
        with link_from(RIGHTS["nothing"].host, port) as nobody:
            until_codes(nobody, ListConfigResourcesRequest(), 1, any_=True)
        yield World(owner, made.topic_id, controller_port)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[tuple[int, World], tuple[int, World]]]:
    """Kafka's and ours: port, and what is on it."""
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaPeer(settings=SETTINGS))
        port = free_port()
        with_controller = {
            "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
        }
        ours = stack.enter_context(running_broker({**SETTINGS, **with_controller})).port
        theirs = kafka.port, stack.enter_context(guarded(kafka.port, kafka.controller_port))
        yield theirs, (ours, stack.enter_context(guarded(ours, port)))


def differences(both: tuple[tuple[int, World], tuple[int, World]], rights: Rights, wanted: list[Case]) -> list[str]:
    """What is not the same, a line each."""
    (kafka_port, kafka_world), (our_port, our_world) = both
    found: list[str] = []
    with link_from(rights.host, kafka_port) as kafka, link_from(rights.host, our_port) as ours:
        for case in wanted:
            theirs = seen(kafka.ask(case.make(kafka_world), case.version))
            mine = seen(ours.ask(case.make(our_world), case.version))
            if theirs != mine:
                found.append(f"{case.name} with {rights.name}:\n  Kafka {theirs}\n  ours  {mine}")
    return found


@pytest.mark.parametrize("name", THIN)
def test_the_same_is_refused(both: tuple[tuple[int, World], tuple[int, World]], name: str) -> None:
    found = differences(both, RIGHTS[name], list(CASES.values()))
    assert not found, "\n".join(found)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in RIGHTS if name not in THIN])
def test_the_same_is_refused_with_every_single_right(
    both: tuple[tuple[int, World], tuple[int, World]], name: str
) -> None:
    found = differences(both, RIGHTS[name], list(CASES.values()))
    assert not found, "\n".join(found)


def test_a_controller_refuses_the_same(both: tuple[tuple[int, World], tuple[int, World]]) -> None:
    """On its own listener, to a client without a right, whatever else the request says."""
    (_, kafka_world), (_, our_world) = both
    found: list[str] = []
    nobody = RIGHTS["nothing"].host
    # A request of nothing is of no client to Kafka's first, and its controller fails at the second.
    for key in sorted(SERVED_ALONE - UNLIKE):
        request, version = request_class(key)(), APIS[key].max_version
        said = []
        for world in (kafka_world, our_world):
            with link_from(nobody, world.controller_port) as link:
                try:
                    said.append([ErrorCode(code).name for code in codes_of(link.ask(request, version))])
                except ConnectionError:
                    said.append(["closed"])
        if said[0] != said[1]:
            found.append(f"{APIS[key].name}: Kafka {said[0]}, ours {said[1]}")
    assert not found, "\n".join(found)
