"""Access rules by Apache Kafka's and librdkafka's own tools, and what clients see when rights are given and taken.

On PLAINTEXT every client is User:ANONYMOUS: the rules go by address. Clients come from 127.0.0.1, and whoever makes the
rules from 127.0.0.9, or is a super user.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from peers.headrace import HeadracePeer
from peers.kafka import kafka_tool
from peers.link import Link

from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from headrace.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest

OWNER, CLIENT = "127.0.0.9", "127.0.0.1"
TOPIC, GROUP, TRANSACTION, CLUSTER = 2, 3, 5, 4
READ, WRITE, CREATE, ALL, DESCRIBE = 3, 4, 5, 2, 8
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def with_super_user() -> Iterator[HeadracePeer]:
    with HeadracePeer(
        settings={"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    ) as broker:
        yield broker


def acl(kind: int, name: str, operation: int, host: str = CLIENT, permission: int = 3) -> AclCreation:
    return AclCreation(kind, name, 3, "User:ANONYMOUS", host, operation, permission)


class Owner:
    """Makes the rules, from an address of its own."""

    def __init__(self, port: int) -> None:
        self.link = Link(port)
        self.link.socket.close()
        self.link.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(OWNER, 0))

    def allow(self, *acls: AclCreation) -> None:
        results = self.link.ask(CreateAclsRequest(list(acls)), 3).results
        assert [each.error_code for each in results] == [0] * len(acls)

    def take(self, kind: int, name: str) -> None:
        found = DeleteAclsFilter(kind, name, 3, None, CLIENT, 1, 1)
        (result,) = self.link.ask(DeleteAclsRequest([found]), 3).filter_results
        assert result.error_code == 0 and result.matching_acls


@pytest.fixture
def by_address() -> Iterator[tuple[str, Owner]]:
    """Where clients connect to, and who says what they may."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with HeadracePeer(settings=settings) as broker:
        owner = Owner(broker.port)
        owner.allow(acl(CLUSTER, "kafka-cluster", ALL, OWNER))
        owner.allow(*[acl(kind, "*", ALL, OWNER) for kind in (TOPIC, GROUP, TRANSACTION)])
        yield broker.bootstrap, owner
        owner.link.socket.close()


# --- Kafka's kafka-acls


@pytest.mark.jvm
@pytest.mark.slow
def test_kafka_acls(with_super_user: HeadracePeer) -> None:
    def acls(arguments: str) -> str:
        tool = "org.apache.kafka.tools.AclCommand"
        return kafka_tool(tool, "--bootstrap-server", with_super_user.bootstrap, *arguments.split()).stdout

    added = acls("--add --allow-principal User:alice --allow-host 10.0.0.1 --operation Read --topic orders")
    assert "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`" in added
    acls("--add --deny-principal User:* --operation All --topic orders- --resource-pattern-type prefixed")
    acls("--add --allow-principal User:bob --producer --topic orders --transactional-id t")
    acls("--add --allow-principal User:bob --consumer --topic * --group g")
    acls("--add --allow-principal User:ann --operation Alter --cluster")
    listed = acls("--list")
    for line in (
        "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)",
        "(principal=User:alice, host=10.0.0.1, operation=READ, permissionType=ALLOW)",
        "ResourcePattern(resourceType=TOPIC, name=orders-, patternType=PREFIXED)",
        "(principal=User:*, host=*, operation=ALL, permissionType=DENY)",
        "ResourcePattern(resourceType=TRANSACTIONAL_ID, name=t, patternType=LITERAL)",
        "ResourcePattern(resourceType=GROUP, name=g, patternType=LITERAL)",
        "ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL)",
    ):
        assert line in listed
    would_apply = acls("--list --topic orders-eu --resource-pattern-type match")
    assert "name=orders-, patternType=PREFIXED" in would_apply and "name=*, patternType=LITERAL" in would_apply
    assert "name=orders, " not in would_apply
    of_alice = acls("--list --principal User:alice")
    assert "User:alice" in of_alice and "User:bob" not in of_alice
    acls("--remove --allow-principal User:alice --allow-host 10.0.0.1 --operation Read --topic orders --force")
    assert "User:alice" not in acls("--list")
    acls("--remove --topic orders- --resource-pattern-type prefixed --force")
    assert "PREFIXED" not in acls("--list")


# --- librdkafka's admin client


def test_confluent_admin(with_super_user: HeadracePeer) -> None:
    admin = AdminClient({"bootstrap.servers": with_super_user.bootstrap})
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    made = [
        AclBinding(ResourceType.TOPIC, "lib", literal, "User:lib", "*", AclOperation.READ, AclPermissionType.ALLOW),
        AclBinding(
            ResourceType.GROUP, "lib-", prefixed, "User:lib", "1.2.3.4", AclOperation.ALL, AclPermissionType.DENY
        ),
    ]
    for _ in range(2):
        for future in admin.create_acls(made).values():
            assert future.result(PATIENCE_S) is None
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        "User:lib",
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert set(admin.describe_acls(every).result(PATIENCE_S)) == set(made)
    bad = AclBinding(ResourceType.TOPIC, "lib", literal, "lib", "*", AclOperation.READ, AclPermissionType.ALLOW)
    (refused,) = admin.create_acls([bad]).values()
    with pytest.raises(KafkaException) as why:
        refused.result(PATIENCE_S)
    assert why.value.args[0].code() == KafkaError.INVALID_REQUEST
    (gone,) = admin.delete_acls([every]).values()
    assert set(gone.result(PATIENCE_S)) == set(made)
    assert admin.describe_acls(every).result(PATIENCE_S) == []


# --- what clients see


def produce(producer: Producer, topic: str) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return errors[0]


def consume(consumer: Consumer, wanted: Callable[[object], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        message = consumer.poll(0.5)
        if message is not None and wanted(message.error() or message):
            return
        assert time.monotonic() < deadline


def is_refused(said: object) -> bool:
    return isinstance(said, KafkaError) and said.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_client_may_what_it_is_given_until_it_is_taken(by_address: tuple[str, Owner]) -> None:
    bootstrap, owner = by_address
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (refused,) = admin.create_topics([NewTopic("t", 1)]).values()
    with pytest.raises(KafkaException) as why:
        refused.result(PATIENCE_S)
    assert is_refused(why.value.args[0])
    owner.allow(acl(TOPIC, "t", CREATE))
    (done,) = admin.create_topics([NewTopic("t", 1)]).values()
    done.result(PATIENCE_S)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 10_000})
    owner.allow(acl(TOPIC, "t", WRITE))
    for _ in range(20):
        assert produce(producer, "t") is None
    owner.take(TOPIC, "t")
    assert is_refused(produce(producer, "t"))
    owner.allow(acl(TOPIC, "t", WRITE))
    assert produce(Producer({"bootstrap.servers": bootstrap}), "t") is None

    owner.allow(acl(GROUP, "g", READ), acl(TOPIC, "t", READ))
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    seen: list[object] = []

    def is_last(said: object) -> bool:
        seen.append(said)
        return len(seen) == 21

    consume(consumer, is_last)
    assert not any(isinstance(said, KafkaError) for said in seen)
    owner.take(TOPIC, "t")
    consume(consumer, is_refused)
    consumer.close()
    owner.take(GROUP, "g")
    outsider = Consumer(settings)
    outsider.subscribe(["t"])
    consume(
        outsider,
        lambda said: isinstance(said, KafkaError) and said.code() == KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
    outsider.close()


def test_an_idempotent_producer_needs_no_right_of_the_cluster(by_address: tuple[str, Owner]) -> None:
    bootstrap, owner = by_address
    owner.allow(acl(TOPIC, "t", CREATE), acl(TOPIC, "t", WRITE))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 10_000})
    assert produce(producer, "t") is None


def test_a_transaction_needs_its_right(by_address: tuple[str, Owner]) -> None:
    bootstrap, owner = by_address
    owner.allow(acl(TOPIC, "t", CREATE), acl(TOPIC, "t", WRITE))
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "mine"}
    with pytest.raises(KafkaException) as why:
        Producer(settings).init_transactions(PATIENCE_S)
    assert why.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    owner.allow(acl(TRANSACTION, "mine", WRITE))
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    assert produce(producer, "t") is None
    producer.commit_transaction(PATIENCE_S)
    owner.take(TRANSACTION, "mine")
    producer.begin_transaction()
    producer.produce("t", b"v")
    with pytest.raises(KafkaException) as why:
        producer.commit_transaction(PATIENCE_S)
    assert why.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
