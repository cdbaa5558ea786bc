"""Apache Kafka with access rules, asked by a client that they leave nothing: its error codes are those of our table.

The rules go by address: this machine's 127.0.0.1, the broker's own too, may do everything, 127.0.0.2 nothing.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from peers.kafka import KafkaPeer
from peers.link import Link
from peers.settling import settle

from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import request_class
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest

from .refusals import GROUP, TOPIC, codes_of, refusals

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

OWNER, NOBODY, BROKER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
ALL, ALLOW, LITERAL = 2, 3, 3
PATIENCE_S = 30.0


def link_from(host: str, port: int) -> Link:
    """A connection whose other end sees this address of ours."""
    link = Link(port)
    link.socket.close()
    link.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(host, 0))
    return link


def allow(resource: ResourceType, name: str, host: str, operation: int) -> AclCreation:
    return AclCreation(resource, name, LITERAL, "User:*", host, operation, ALLOW)


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[int, bytes]]:
    """A broker with the rules, the refused topic and group on it: its port, and the topic's id."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "offsets.topic.num.partitions": "1",
    }
    with KafkaPeer(settings=settings) as kafka, link_from(OWNER, kafka.port) as owner:
        made = owner.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 2, 1)]), 7).topics[0]
        assert made.error_code == 0
        committed = OffsetCommitRequestTopic(TOPIC, made.topic_id, [OffsetCommitRequestPartition(0, 1)])
        deadline = time.monotonic() + PATIENCE_S
        while any(codes_of(owner.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4))) or any(
            codes_of(owner.ask(OffsetCommitRequest(GROUP, topics=[committed]), 8))
        ):
            assert time.monotonic() < deadline, "the coordinator does not come up"
            time.sleep(0.1)
        rules = [
            allow(ResourceType.TOPIC, "*", OWNER, ALL),
            allow(ResourceType.GROUP, "*", OWNER, ALL),
            allow(ResourceType.TRANSACTIONAL_ID, "*", OWNER, ALL),
            allow(ResourceType.CLUSTER, CLUSTER_NAME, OWNER, ALL),
            allow(ResourceType.CLUSTER, CLUSTER_NAME, BROKER, Operation.CLUSTER_ACTION),
        ]
        assert codes_of(owner.ask(CreateAclsRequest(rules), 3)) == ()
        settle(owner.ask)
        yield kafka.port, made.topic_id


def test_every_api_in_every_version(guarded: tuple[int, bytes]) -> None:
    port, topic_id = guarded
    different = []
    with link_from(NOBODY, port) as nobody:
        served = {each.api_key: each for each in nobody.ask(ApiVersionsRequest(), 0).api_keys}
        for refusal in refusals(topic_id):
            api = served[refusal.request.API_KEY]
            declared = request_class(api.api_key)
            for version in refusal.versions():
                if not max(api.min_version, declared.MIN_VERSION) <= version <= api.max_version:
                    continue
                codes = codes_of(nobody.ask(refusal.request, version))
                if codes != refusal.codes:
                    different.append(f"version {version} of {refusal.request}: {[ErrorCode(c).name for c in codes]}")
    assert not different, "\n".join(different)


def test_a_broker_of_the_cluster_may_ask_where_epochs_end(guarded: tuple[int, bytes]) -> None:
    asked = OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(0)])
    with link_from(BROKER, guarded[0]) as broker:
        assert codes_of(broker.ask(OffsetForLeaderEpochRequest(topics=[asked]), 4)) == ()
