"""The heartbeats of a broker, without a controller: when they leave, and what they say."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.controllers import dynamic_of, until

from headrace.broker.quorum.membership.broker_membership import Membership
from headrace.broker.quorum.port.broker_liveness import BrokerLiveness
from headrace.broker.quorum.port.controller import ControllerError
from headrace.config import BrokerConfig
from headrace.controller.heartbeats import Heartbeat, HeartbeatReply
from headrace.env.posix_node import PosixNode
from headrace.wire.errors import ErrorCode

AN_HOUR_MS = 3_600_000
PATIENCE_S = 10.0
LOST = b"\x05" * 16
GOOD = HeartbeatReply(ErrorCode.NONE, is_caught_up=True, is_fenced=False)


class Asked:
    """A controller that registers a broker, and keeps each heartbeat until the test answers it."""

    def __init__(self) -> None:
        self.heartbeats: asyncio.Queue[tuple[Heartbeat, asyncio.Future[HeartbeatReply]]] = asyncio.Queue()

    async def ask(self, request: Any) -> Any:
        if not isinstance(request, Heartbeat):
            return SimpleNamespace(error=ErrorCode.NONE, broker_epoch=1, message="")
        answer: asyncio.Future[HeartbeatReply] = asyncio.get_running_loop().create_future()
        self.heartbeats.put_nowait((request, answer))
        return await answer

    async def next(self) -> tuple[Heartbeat, asyncio.Future[HeartbeatReply]]:
        """The next one, which is not the one of an hour later."""
        return await asyncio.wait_for(self.heartbeats.get(), PATIENCE_S)


def membership_of(node: PosixNode, asked: Asked, config: BrokerConfig, quorum: Any, failed: Any) -> Membership:
    return Membership(node, cast(Any, asked), dynamic_of(node, config), quorum, BrokerLiveness(node), failed)


@pytest.mark.parametrize("is_in_flight", [True, False])
async def test_a_directory_that_fails_is_reported_at_once(node: PosixNode, is_in_flight: bool) -> None:
    """Or as soon as the heartbeat is answered that is on its way and says nothing of it."""
    asked, failed = Asked(), list[bytes]()
    config = BrokerConfig.load({"log.dirs": "/a", "broker.heartbeat.interval.ms": str(AN_HOUR_MS)})
    known = SimpleNamespace(brokers={1: SimpleNamespace(epoch=1)}, offset=5)
    quorum = SimpleNamespace(image=known, on_image=lambda _: None, decides=False)
    membership = membership_of(node, asked, config, quorum, lambda: tuple(failed))
    await membership.register(cast(Any, None))
    _, first = await asked.next()
    joining = asyncio.ensure_future(membership.join())
    first.set_result(GOOD)
    await joining
    second, answer = await asked.next()
    assert not second.want_fence and second.failed_directories == ()
    if not is_in_flight:
        answer.set_result(GOOD)
        await until_it_rests(membership)
    failed.append(LOST)
    membership.heartbeat_now()
    if is_in_flight:
        answer.set_result(GOOD)
    third, answer = await asked.next()
    assert third.failed_directories == (LOST,)
    answer.set_result(GOOD)
    await until_it_rests(membership)
    assert asked.heartbeats.empty(), "one heartbeat says it"
    await membership.close()


async def test_no_heartbeat_follows_one_without_an_answer_at_once(node: PosixNode) -> None:
    asked = Asked()
    config = BrokerConfig.load({"log.dirs": "/a"})
    known = SimpleNamespace(brokers={1: SimpleNamespace(epoch=1)}, offset=5)
    quorum = SimpleNamespace(image=known, on_image=lambda _: None, decides=False)
    membership = membership_of(node, asked, config, quorum, tuple)
    await membership.register(cast(Any, None))
    _, answer = await asked.next()
    membership.heartbeat_now()
    answer.set_exception(ControllerError(ErrorCode.REQUEST_TIMED_OUT))
    await until_it_rests(membership)
    assert asked.heartbeats.empty()
    await membership.close()


async def until_it_rests(membership: Membership) -> None:
    """Between two heartbeats."""
    await until(lambda: membership._early is not None)
