"""The way to the active controller: whose answer is waited for, and whom a node asks that cannot know who leads."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.controllers import until
from client.fake_broker import FakeBroker

from headrace.broker.quorum.port.cluster_controller import ClusterController
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.controller_link import ControllerLink
from headrace.client.errors import UnreachableError
from headrace.controller.heartbeats import Heartbeat
from headrace.controller.producer_ids import AllocateProducerIds
from headrace.env.posix_node import PosixNode
from headrace.metadata.image import ClusterImage
from headrace.raft.control import VoterEndpoint
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

BEAT = Heartbeat(1, 5, 0, False, False, (), None)


def link_of(node: PosixNode, **locator: Any) -> ControllerLink:
    """A link whose locator answers with these functions."""
    return ControllerLink(node, cast("Any", SimpleNamespace(**locator)), None, name="broker-1", timeout_s=60.0)


class World:
    """Two controllers; the first is silent. `deaf`: this node hears of no election, and asks both in turn."""

    def __init__(self, node: PosixNode, stack: ExitStack) -> None:
        self.answers: list[BrokerHeartbeatResponse | None] = [None, BrokerHeartbeatResponse(is_caught_up=True)]
        self.voters = [stack.enter_context(FakeBroker(answers=self._answers(at))) for at in (0, 1)]
        self.endpoints = [VoterEndpoint("CONTROLLER", "127.0.0.1", each.port) for each in self.voters]
        self.leader = 0
        self.deaf = False
        self.link = link_of(
            node,
            endpoint=lambda: self.endpoints[self.leader],
            candidates=lambda: self.endpoints if self.deaf else [],
        )
        driver = SimpleNamespace(decides=False, node_id=1, raft=SimpleNamespace(known_leader=2), image=ClusterImage())
        self.controller = ClusterController(cast("Any", driver), cast("Any", None), self.link)

    def _answers(self, at: int) -> dict[int, Any]:
        return {
            ApiKey.BROKER_HEARTBEAT: lambda _request, _version: self.answers[at],
            ApiKey.ALLOCATE_PRODUCER_IDS: lambda _request, _version: None,
        }

    async def asked(self, at: int, key: ApiKey) -> None:
        await until(lambda: key in self.voters[at].seen)


@pytest.fixture
async def world(stack: ExitStack) -> Any:
    node = PosixNode()
    world = World(node, stack)
    yield world
    world.link.close()
    await node.close()


async def test_a_heartbeat_does_not_wait_for_a_controller_that_was_replaced(world: World) -> None:
    beat = asyncio.ensure_future(world.controller.ask(BEAT))
    await world.asked(0, ApiKey.BROKER_HEARTBEAT)
    world.leader = 1
    world.link.moved()
    with pytest.raises(ControllerError, match="another controller"):
        await beat
    assert (await world.controller.ask(BEAT)).is_caught_up


async def test_what_may_take_effect_once_alone_waits_for_its_answer(world: World) -> None:
    asked = asyncio.ensure_future(world.controller.ask(AllocateProducerIds(1)))
    await world.asked(0, ApiKey.ALLOCATE_PRODUCER_IDS)
    world.link.moved()
    await asyncio.sleep(0)  # it would be told in the next turn
    assert not asked.done()
    world.link.close()
    with pytest.raises(ControllerError, match="closed"):
        await asked


async def test_why_no_controller_is_known_is_said_where_that_is_known() -> None:
    node, why = PosixNode(), [""]
    link = link_of(node, endpoint=lambda: None, candidates=list, why_unknown=lambda: why[0])
    for reason, said in (("", "is known$"), ("refused by node 2", "is known: refused by node 2$")):
        why[0] = reason
        with pytest.raises(UnreachableError, match=f"no active controller {said}"):
            await link.ask(BrokerHeartbeatRequest(1, 0), BrokerHeartbeatResponse, timeout_s=1.0)
    link.close()
    await node.close()


async def test_a_deaf_node_asks_the_next_voter_when_its_heartbeat_is_sent_away(world: World) -> None:
    world.deaf = True
    world.answers[0] = BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)
    with pytest.raises(ControllerError) as raised:
        await world.controller.ask(BEAT)
    assert raised.value.code is ErrorCode.NOT_CONTROLLER
    for _ in range(2):
        assert (await world.controller.ask(BEAT)).is_caught_up, "it stays with the one that answers"
