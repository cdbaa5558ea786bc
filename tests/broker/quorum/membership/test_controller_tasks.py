"""The tasks of an active controller when it begins."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from broker.controllers import dynamic_of, started, until
from broker.quorum.test_driver import config_of, write
from peers.kafka import free_port

from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.membership.controller_tasks import ControllerTasks
from headrace.broker.quorum.port.broker_liveness import BrokerLiveness
from headrace.broker.quorum.port.local_controller import LocalController
from headrace.config import BrokerConfig
from headrace.env.posix_node import PosixNode
from headrace.metadata.image import NO_LEADER
from headrace.wire.messages.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

SESSION_S = 3.0


def tasks_of(node: PosixNode, quorum: QuorumDriver, config: BrokerConfig) -> ControllerTasks:
    dynamic, liveness = dynamic_of(node, config), BrokerLiveness(node)
    controller = LocalController(quorum, dynamic, node.entropy, liveness)
    return ControllerTasks(node, quorum, dynamic, controller, liveness)


async def test_a_new_controller_elects_what_its_predecessor_left_without_a_leader(
    node: PosixNode, tmp_path: Path
) -> None:
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    directory, topic_id = b"\x07" * 16, b"\x08" * 16
    partition = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[7], isr=[7], leader=NO_LEADER, leader_epoch=0, partition_epoch=0,
        directories=[directory],
    )  # fmt: skip
    broker = RegisterBrokerRecord(broker_id=7, broker_epoch=1, fenced=False, log_dirs=[directory])
    await write(quorum, [broker, TopicRecord(name="t", topic_id=topic_id), partition])
    tasks = tasks_of(node, quorum, config)
    elected = asyncio.get_running_loop().create_future()
    quorum.on_image(lambda _old, new, _delta: elected.set_result(new.topics.partition("t", 0)))
    quorum.on_decides()
    after = await asyncio.wait_for(elected, 10)
    assert after.leader == 7
    await tasks.close()
    await quorum.close()


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False])
async def test_a_new_controller_asks_for_those_that_do_not_come_by(
    node: PosixNode, tmp_path: Path, early: bool
) -> None:
    """It never had the connection of a broker that died before its election: it finds it gone by itself, well before a
    session of 9 s is over. Without early fencing the session decides, however short."""
    session_s = 9.0 if early else SESSION_S
    settings = {"early.fencing.enable": str(early).lower(), "broker.session.timeout.ms": str(int(1000 * session_s))}
    config = config_of(tmp_path / "data", **settings)
    quorum, _ = await started(node, config)
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=free_port(), security_protocol=0)
    gone = RegisterBrokerRecord(
        broker_id=7, broker_epoch=1, fenced=False, log_dirs=[b"\x07" * 16], end_points=[endpoint]
    )
    await write(quorum, [gone])
    tasks = tasks_of(node, quorum, config)
    quorum.on_decides()
    began = time.monotonic()
    await until(lambda: quorum.image.brokers[7].fenced)
    assert (time.monotonic() - began < session_s) is early
    await tasks.close()
    await quorum.close()


async def test_a_log_that_nobody_writes_to_goes_on(node: PosixNode, tmp_path: Path) -> None:
    """So that whoever follows it knows that it is up to date."""
    config = config_of(tmp_path / "data", metadata_max_idle_interval_ms="20")
    quorum, _ = await started(node, config)
    tasks = tasks_of(node, quorum, config)
    quorum.on_decides()
    image, end = quorum.image, quorum.raft.log.end_offset
    await until(lambda: quorum.raft.log.end_offset >= end + 3)
    assert quorum.image.topics is image.topics and quorum.image.brokers.keys() == image.brokers.keys()
    await tasks.close()
    await quorum.close()
