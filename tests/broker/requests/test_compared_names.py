"""However many names one request has, each is compared with a few others and not with all: counted, not timed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.net.context import RequestContext
from headrace.broker.requests import pieces
from headrace.broker.requests.alter_access import alter
from headrace.broker.requests.apis.k02_list_offsets import handle as list_offsets
from headrace.broker.requests.apis.k32_describe_configs import handle as describe_configs
from headrace.broker.requests.apis.k44_incremental_alter_configs import handle as incremental_alter_configs
from headrace.broker.telemetry import loggers
from headrace.controller.configs import Alteration, decide_alter_configs
from headrace.controller.context import ApiError, ControllerContext
from headrace.metadata.image import ResourceType
from headrace.security.authorizer import OpenAuthorizer, Operation
from headrace.security.authorizer import ResourceType as On
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.k44_incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest

MANY = 2000
COMPARED_PER_NAME = 4


class Name(str):
    """A name that counts how often it is compared with another one."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


@pytest.fixture(autouse=True)
def one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_STEPS", 100 * MANY)


def names() -> list[str]:
    """Distinct ones, and one that comes often: each is an object of its own, as from the wire."""
    Name.compared = 0
    return [Name(f"topic-{n if n % 2 else 0}") for n in range(MANY)]


class Nobody(OpenAuthorizer):
    """Allows nothing."""

    def authorize(self, principal: str, host: str, operation: Operation, resource: On, name: str) -> bool:
        return False


def refused(version: int = 0) -> RequestContext:
    return RequestContext(Nobody(), api_version=version)


def was_linear() -> bool:
    return 0 <= Name.compared <= COMPARED_PER_NAME * MANY


class Controller:
    """Decides as the controller does, on no image."""

    async def ask(self, request: Any, asker: Any) -> list[ApiError]:
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        context = ControllerContext(0, 1, 1, rules=None, new_id=bytes)  # type: ignore[arg-type]
        answers: list[ApiError] = []
        step: Any = lambda image: decide_alter_configs(  # noqa: E731
            image, request.alterations, context, may_alter=lambda _kind, _name: denied
        )
        while step is not None:
            decision = step(None)
            answers, step = decision.reply, decision.then
        return answers


def broker() -> Any:
    return SimpleNamespace(
        authorizer=OpenAuthorizer(),
        config=SimpleNamespace(controller_listener_names=()),
        quorum=SimpleNamespace(decides=True),
        controller=Controller(),
        replicas=SimpleNamespace(all_ready=lambda _for_appends: True),
        node_id=0,
        image=None,
    )


def test_alterations_of_a_client_without_rights() -> None:
    alterations = [Alteration(ResourceType.TOPIC, name, []) for name in names()]
    answers = asyncio.run(alter(broker(), alterations, refused(), lambda _: None, validate_only=False))
    assert len(answers) == MANY and all(answer.code for answer in answers)
    assert was_linear(), Name.compared


def test_levels_of_loggers_that_are_named_twice() -> None:
    kind = ResourceType.BROKER_LOGGER
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, []) for name in names()], True)
    allowed = RequestContext(OpenAuthorizer(), api_version=1)
    answer = asyncio.run(incremental_alter_configs(broker(), request, allowed))
    assert {each.error_code for each in answer.responses} == {ErrorCode.INVALID_REQUEST}
    assert was_linear(), Name.compared


def test_offsets_of_partitions_that_are_named_twice() -> None:
    topics = [ListOffsetsTopic(name, [ListOffsetsPartition(partition_index=0)]) for name in names()]
    answer = list_offsets(broker(), ListOffsetsRequest(topics=topics), refused(7))
    assert len(answer.topics) == MANY
    assert was_linear(), Name.compared


def test_settings_that_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "levels", lambda: {f"logger-{n}": "INFO" for n in range(200)})
    request = DescribeConfigsRequest([DescribeConfigsResource(ResourceType.BROKER_LOGGER, "0", list(names()))])
    answer = describe_configs(broker(), request, RequestContext(OpenAuthorizer(), api_version=4))
    assert answer.results[0].configs == []
    assert was_linear(), Name.compared
