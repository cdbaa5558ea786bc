"""ACLs through the client, against both brokers with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers.either import BROKERS
from peers.kafka import KafkaPeer
from peers.settling import client_of

import headrace.testing
from headrace.client.acls import CLUSTER_NAME, Acl, AclFilter, create_acls, delete_acls, find_acls
from headrace.client.cluster import Client
from headrace.client.errors import BrokerError
from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.wire.errors import ErrorCode

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}

ANN = Acl("topic", "orders", "literal", "User:ann", "*", "read", "allow")
PREFIX = Acl("topic", "ord", "prefixed", "User:ann", "10.0.0.1", "all", "deny")
EVERY = Acl("topic", "*", "literal", "User:*", "*", "describe", "allow")
GROUP = Acl("group", "g", "literal", "User:bob", "*", "read", "allow")
CLUSTER = Acl("cluster", CLUSTER_NAME, "literal", "User:bob", "*", "idempotent-write", "allow")
TRANSACTION = Acl("transactional-id", "t", "prefixed", "User:bob", "*", "write", "allow")
ALL = sorted([ANN, PREFIX, EVERY, GROUP, CLUSTER, TRANSACTION])


@pytest.fixture(scope="module", params=BROKERS)
def authorized(request: pytest.FixtureRequest) -> Iterator[Client]:
    if request.param == "kafka":
        with KafkaPeer(settings=SETTINGS) as kafka, client_of(kafka) as client:
            yield client
    else:
        with headrace.testing.broker(SETTINGS) as ours, Client(ours.bootstrap, timeout_s=20.0) as client:
            yield client


def test_they_are_made_found_and_deleted(authorized: Client) -> None:
    create_acls(authorized, ALL)
    create_acls(authorized, [ANN])
    assert find_acls(authorized) == ALL
    assert find_acls(authorized, AclFilter(resource="topic", name="orders")) == [ANN]
    assert find_acls(authorized, AclFilter("topic", "orders", "match")) == sorted([ANN, PREFIX, EVERY])
    assert find_acls(authorized, AclFilter(principal="User:bob", operation="read")) == [GROUP]
    assert find_acls(authorized, AclFilter(permission="deny")) == [PREFIX]
    assert find_acls(authorized, AclFilter(host="10.0.0.1")) == [PREFIX]
    gone = delete_acls(authorized, [AclFilter("topic", "orders", "match"), AclFilter(principal="User:ann")])
    assert gone == sorted([ANN, PREFIX, EVERY])
    assert find_acls(authorized) == sorted([GROUP, CLUSTER, TRANSACTION])
    assert delete_acls(authorized, [AclFilter(name="never")]) == []
    assert delete_acls(authorized, [AclFilter()]) == sorted([GROUP, CLUSTER, TRANSACTION])


def test_the_first_that_is_refused_is_said(authorized: Client) -> None:
    with pytest.raises(BrokerError) as refused:
        create_acls(authorized, [ANN, GROUP._replace(name="")])
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    delete_acls(authorized, [AclFilter()])


def test_without_an_authorizer(client: Client) -> None:
    for call in (
        lambda: find_acls(client),
        lambda: create_acls(client, [ANN]),
        lambda: delete_acls(client, [AclFilter()]),
    ):
        with pytest.raises(BrokerError) as refused:
            call()
        assert refused.value.code == ErrorCode.SECURITY_DISABLED
