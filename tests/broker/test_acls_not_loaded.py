"""A node that does not know yet what its ACLs are allows nothing and refuses nothing: whoever asks is to come again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from broker.raw import Raw
from peers.kafka import free_port

from headrace.broker.acl_watch import AclFollower
from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.requests.apis import CLUSTER, SERVED
from headrace.broker.requests.dispatch import Dispatch
from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.metadata.acls import AclBinding, record_of
from headrace.security.acls import AclAuthorizer
from headrace.security.authorizer import AuthorizerNotReadyError, Operation, ResourceType
from headrace.testing.running import SettingValue, TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import response_class
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.wire.messages.k63_broker_heartbeat import BrokerHeartbeatRequest

ASKED = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])


@pytest.fixture
def node() -> Iterator[tuple[TestBroker, int]]:
    """One with a listener for controllers, which serves before the metadata are read; its port."""
    port = free_port()
    settings: dict[str, SettingValue] = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "allow.everyone.if.no.acl.found": True,
    }
    with running_broker(settings) as broker:
        yield broker, port


def hold(broker: TestBroker, *super_users: str) -> None:
    """The ACLs are not known, from now on."""
    broker.call(lambda inside: setattr(inside, "authorizer", AclAuthorizer(super_users, allow_if_no_acl=True)))


def test_a_node_is_told_to_come_again(node: tuple[TestBroker, int]) -> None:
    broker, port = node
    with Raw(port) as raw:
        assert raw.ask(ASKED, 2).error_code == 0
        hold(broker)
        for request, version in ((ASKED, 2), (BrokerHeartbeatRequest(7, 0), 1)):
            assert raw.ask(request, version).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        raw.send(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        assert raw.is_closed()  # its answer has an error for each topic alone
    assert broker.call(lambda inside: inside.image.topics.by_name("t")) is None


def test_a_client_is_told_nothing(node: tuple[TestBroker, int]) -> None:
    broker, _ = node
    hold(broker)
    with Raw(broker.port) as raw:
        raw.send(MetadataRequest([MetadataRequestTopic(name="t")]), 12)
        assert raw.is_closed()
    assert broker.call(lambda inside: inside.image.topics.by_name("t")) is None


def test_a_super_user_is_served(node: tuple[TestBroker, int]) -> None:
    broker, port = node
    hold(broker, "User:ANONYMOUS")
    with Raw(port) as raw:
        assert raw.ask(ASKED, 2).error_code == 0


@pytest.mark.parametrize("key", sorted({*SERVED, *CLUSTER}))
def test_every_api_says_so_or_nothing(key: int) -> None:
    dispatch: Any = None
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        answer = Dispatch.not_ready(dispatch, key, version)
        if answer is not None:
            assert response_class(key).decode(answer.encode(version), version).error_code == -1


def test_half_of_the_acls_are_none() -> None:
    """One allows what another, which is not read yet, denies."""
    stored = [AclBinding(2, "t", 3, "User:ann", "*", Operation.READ, permission) for permission in (3, 2)]
    records = {bytes(15) + bytes([n]): record_of(bytes(15) + bytes([n]), each) for n, each in enumerate(stored)}
    first = {key: record for key, record in records.items() if key[-1] == 0}
    listeners: list[Callable[[Any, Any, Any], None]] = []
    half, whole = (SimpleNamespace(kept=SimpleNamespace(acls=acls)) for acls in (first, records))
    quorum: Any = SimpleNamespace(is_current=False, image=half, on_image=listeners.append)
    authorizer = AclAuthorizer((), allow_if_no_acl=True)
    AclFollower(authorizer, quorum)
    listeners[0](half, half, None)
    asked = ("User:ann", "127.0.0.1", Operation.READ, ResourceType.TOPIC, "t")
    with pytest.raises(AuthorizerNotReadyError):
        authorizer.authorize(*asked)
    quorum.is_current, quorum.image = True, whole  # and no further change comes
    assert not authorizer.authorize(*asked)
    assert authorizer.authorize("User:ann", "127.0.0.1", Operation.READ, ResourceType.TOPIC, "other")


@pytest.mark.parametrize(
    ("heard", "offset", "decides", "current"),
    [
        (-1, 5, False, False),  # no leader has said yet what is committed
        (9, 1, False, False),  # a node that began behind the others, whose own log ends here
        (9, 7, False, False),
        (9, 8, False, True),
        (-1, -1, True, True),
    ],
)
def test_a_node_is_current_once_it_has_what_the_leader_says(
    heard: int, offset: int, decides: bool, current: bool
) -> None:
    raft, image = SimpleNamespace(heard_high_watermark=heard), SimpleNamespace(offset=offset)
    driver: Any = SimpleNamespace(decides=decides, raft=raft, image=image)
    asked: Any = QuorumDriver.is_current
    assert asked.fget(driver) is current
