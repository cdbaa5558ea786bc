"""Which signs of death are believed: a port that refuses twice, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio
from broker.controllers import until
from peers.kafka import free_port

from headrace.broker.quorum.membership import failure_detector
from headrace.broker.quorum.membership.controller_tasks import ControllerTasks
from headrace.broker.quorum.port.broker_liveness import BrokerLiveness
from headrace.controller.membership import FenceBrokers
from headrace.controller.sessions import BrokerSessions
from headrace.env.posix_node import PosixNode
from headrace.metadata.image import Broker, ClusterImage, Endpoint

PROBED_S = 0.5
"""Longer than both attempts and the grace between them."""


class Watched:
    """The tasks of an active controller over broker 7, which listens at a port or does not."""

    node_id, decides, on_decides = 1, True, None

    def __init__(self, node: PosixNode, port: int) -> None:
        inside = Endpoint("INSIDE", "127.0.0.1", port, 0)
        outside = Endpoint("OUTSIDE", "127.0.0.1", 1, 0)  # nothing listens there
        broker = Broker(7, 40, bytes(16), (outside, inside), (), None, False, False, ())
        self.image = ClusterImage(brokers={7: broker})
        self.dead: list[tuple[int, int]] = []
        self._node = node
        config = SimpleNamespace(early_fencing_enable=True, inter_broker_listener="INSIDE")
        liveness = BrokerLiveness(node)
        liveness.sessions = BrokerSessions(1000)
        self.tasks = ControllerTasks(
            node, cast("Any", self), cast("Any", SimpleNamespace(config=config)), cast("Any", self), liveness
        )

    def ask(self, request: FenceBrokers) -> asyncio.Future[None]:
        """The controller, which fences at once."""
        self.dead += request.expired
        fenced = self._node.future()
        fenced.set_result(None)
        return fenced

    def suspect(self) -> None:
        self.tasks.suspect(7)

    def heard(self, epoch: int) -> None:
        self.tasks.heard(7, epoch, cast("Any", SimpleNamespace()))

    def becomes(self, **changes: object) -> None:
        self.image = ClusterImage(brokers={7: replace(self.image.brokers[7], **changes)})  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def node() -> AsyncIterator[PosixNode]:
    node = PosixNode()
    yield node
    await node.close()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a test does between two attempts what it has to, however busy the machine is."""
    monkeypatch.setattr(failure_detector, "GRACE_S", 1.0)


async def tried(server: socket.socket) -> None:
    """Returns when there was an attempt."""
    server.setblocking(False)
    connected, _ = await asyncio.get_running_loop().sock_accept(server)
    connected.close()


async def test_who_refuses_twice_is_dead(node: PosixNode, port: int) -> None:
    watched = Watched(node, port)
    for _ in range(3):
        watched.suspect()
    await until(lambda: watched.dead)
    await asyncio.sleep(PROBED_S)
    assert watched.dead == [(7, 40)]


async def test_who_answers_lives(node: PosixNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        watched = Watched(node, server.getsockname()[1])
        watched.suspect()
        await asyncio.sleep(PROBED_S)
    assert not watched.dead


@pytest.mark.slow
async def test_whose_listener_goes_last_is_dead(node: PosixNode, long_grace: None) -> None:
    """The kernel closes the sockets of a dying process one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        watched = Watched(node, server.getsockname()[1])
        watched.suspect()
        await tried(server)
    await until(lambda: watched.dead == [(7, 40)])


async def test_who_listens_again_within_the_grace_lives(node: PosixNode, port: int, long_grace: None) -> None:
    watched = Watched(node, port)
    watched.suspect()
    await asyncio.sleep(0.1)
    with socket.create_server(("127.0.0.1", port)) as server:
        await tried(server)
        await asyncio.sleep(PROBED_S)
    assert not watched.dead


async def test_who_does_not_answer_at_all_is_not_dead(node: PosixNode) -> None:
    """The backlog is full: nothing accepts, and nothing refuses."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        held = [socket.socket() for _ in range(3)]
        for each in held:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        watched = Watched(node, full.getsockname()[1])
        watched.suspect()
        await asyncio.sleep(2 * failure_detector.ATTEMPT_S + PROBED_S)
        for each in held:
            each.close()
    assert not watched.dead


@pytest.mark.parametrize("changes", [{"fenced": True}, {"epoch": 41}])
async def test_what_changed_meanwhile_counts(node: PosixNode, port: int, changes: dict[str, object]) -> None:
    """Another registration, or one that is fenced already."""
    watched = Watched(node, port)
    watched.suspect()
    await asyncio.sleep(failure_detector.GRACE_S / 2)  # between the two attempts
    watched.becomes(**changes)
    await asyncio.sleep(PROBED_S)
    assert not watched.dead


async def test_who_lived_on_is_spared(node: PosixNode, port: int) -> None:
    watched = Watched(node, port)
    watched.suspect()
    await until(lambda: watched.dead)
    watched.heard(39)  # of an earlier life
    watched.heard(40)
    watched.suspect()
    await asyncio.sleep(PROBED_S)
    assert watched.dead == [(7, 40)]
