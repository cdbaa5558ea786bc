"""What the active controller does of its own accord when it begins."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.controllers import started
from broker.quorum.test_driver import config_of, write

from headrace.broker.quorum.duties import Duties
from headrace.broker.quorum.local_controller import LocalController
from headrace.env.posix_node import PosixNode
from headrace.metadata.image import NO_LEADER
from headrace.security.authorizer import OpenAuthorizer
from headrace.wire.messages.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord


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
    duties = Duties(node, quorum, lambda: config)
    duties.controller = LocalController(quorum, lambda: config, OpenAuthorizer, node.entropy, duties)
    elected = asyncio.get_running_loop().create_future()
    quorum.on_image(lambda _old, new, _delta: elected.set_result(new.topics.partition("t", 0)))
    quorum.on_decides()
    after = await asyncio.wait_for(elected, 10)
    assert after.leader == 7
    await duties.close()
    await quorum.close()
