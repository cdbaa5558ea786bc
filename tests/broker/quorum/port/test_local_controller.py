"""The controller's port: what a client may do is asked of the authorizer, name by name; the node itself may do all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.controllers import controller_of, started

from headrace.broker.quorum.port.controller import Controller
from headrace.broker.requests.client_access import ClientAccess
from headrace.config import BrokerConfig
from headrace.controller.brokers import FenceBroker, UnfenceBroker
from headrace.controller.configs import Alteration, AlterConfigs, AlterOperation
from headrace.controller.partitions import CreatePartitions
from headrace.controller.producer_ids import AllocateProducerIds
from headrace.controller.topics import CreateTopics, DeleteTopics
from headrace.env.posix_node import PosixNode
from headrace.metadata.image import ResourceType as Config
from headrace.security.authorizer import CLUSTER_NAME, UNCACHED, Operation, ResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k37_create_partitions import CreatePartitionsTopic
from headrace.wire.uuids import ZERO

PRINCIPAL, HOST = "User:ann", "10.0.0.1"


class Rules:
    """Allows what it lists, to one principal at one host."""

    generation = UNCACHED
    audit = None

    def __init__(self) -> None:
        self.allowed: set[tuple[Operation, ResourceType, str]] = set()

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        assert (principal, client_host) == (PRINCIPAL, HOST)
        return (operation, resource, name) in self.allowed

    def authorize_any(self, principal: str, client_host: str, operation: Operation, resource: ResourceType) -> bool:
        return any(allowed[:2] == (operation, resource) for allowed in self.allowed)


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[tuple[Controller, Rules]]:
    node = PosixNode()
    config = BrokerConfig.load({"log.dirs": str(tmp_path)})
    quorum, _ = await started(node, config)
    rules = Rules()
    yield controller_of(node, config, quorum), rules
    await quorum.close()
    await node.close()
    assert node.defects.count == 0


def ann(rules: Rules) -> ClientAccess:
    """What the rules allow Ann now."""
    context = SimpleNamespace(principal=PRINCIPAL, client_host=HOST, api_key=-1)
    return ClientAccess(rules, cast("Any", context))


def creates(*names: str) -> CreateTopics:
    return CreateTopics(CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1) for name in names]))


async def test_topics_are_made_changed_and_deleted_by_those_who_may(asked: tuple[Controller, Rules]) -> None:
    controller, rules = asked
    rules.allowed = {(Operation.CREATE, ResourceType.TOPIC, "a")}
    made = await controller.ask(creates("a", "b"), ann(rules))
    codes = {result.name: (result.error_code, result.topic_config_error_code) for result in made.topics}
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes == {"a": (ErrorCode.NONE, denied), "b": (denied, ErrorCode.NONE)}

    rules.allowed = {(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)}
    rules.allowed.add((Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "b"))
    made = await controller.ask(creates("b"), ann(rules))
    assert (made.topics[0].error_code, made.topics[0].topic_config_error_code) == (ErrorCode.NONE, ErrorCode.NONE)

    rules.allowed = {(Operation.ALTER, ResourceType.TOPIC, "a")}
    wanted = CreatePartitions([CreatePartitionsTopic(name, 2, None) for name in ("a", "b")])
    assert [error.code for _, error in await controller.ask(wanted, ann(rules))] == [ErrorCode.NONE, denied]

    rules.allowed = {(Operation.DELETE, ResourceType.TOPIC, "a"), (Operation.DESCRIBE, ResourceType.TOPIC, "a")}
    results = await controller.ask(DeleteTopics([("a", ZERO), ("b", ZERO)]), ann(rules))
    assert [result.error_code for result in results] == [ErrorCode.NONE, denied]


async def test_settings_are_altered_by_those_who_may(asked: tuple[Controller, Rules]) -> None:
    controller, rules = asked
    await controller.ask(creates("a"))
    changes = [("retention.ms", AlterOperation.SET, "1")]
    alterations = [
        Alteration(Config.TOPIC, "a", changes),
        Alteration(Config.GROUP, "g", []),
        Alteration(Config.BROKER, "", []),
    ]
    answers = await controller.ask(AlterConfigs(alterations), ann(rules))
    assert [answer.code for answer in answers] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ]
    rules.allowed = {
        (Operation.ALTER_CONFIGS, ResourceType.TOPIC, "a"),
        (Operation.ALTER_CONFIGS, ResourceType.GROUP, "g"),
        (Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME),
    }
    answers = await controller.ask(AlterConfigs(alterations), ann(rules))
    assert [answer.code for answer in answers] == [ErrorCode.NONE] * 3


async def test_the_node_asks_for_itself(asked: tuple[Controller, Rules]) -> None:
    controller, _ = asked
    made = await controller.ask(creates("a"))
    assert made.topics[0].error_code == ErrorCode.NONE
    first = await controller.ask(AllocateProducerIds(1))
    second = await controller.ask(AllocateProducerIds(1))
    assert second.first == first.end
    await controller.ask(FenceBroker(1))
    assert await controller.ask(UnfenceBroker(1, 77)) is ErrorCode.STALE_BROKER_EPOCH
