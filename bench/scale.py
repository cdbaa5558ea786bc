"""`make bench SCALE=1`: the metadata of hundreds of brokers, in one process: what a node of such a cluster bears.

python -m bench --scale [--brokers N] [--topics N] [--partitions N] [--into FILE]

The brokers are images and heartbeats alone. What holds the loop is timed where it runs: nothing else has a turn
meanwhile. The bars are of a loop that is never held for more than 20 ms, and of 2 s for a broker's end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.__main__ import result_file
from bench.scale_cluster import FIRST, MB, Size, Table, Ticker, broker_records, timed, topic_records
from bench.scale_requests import LEADERLESS, Requests
from headrace.broker.net.context import RequestContext
from headrace.broker.partitions.lost_leaders import LostLeaders
from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.metadata_start import open_quorum
from headrace.broker.requests.apis.k03_metadata import handle as metadata
from headrace.broker.serve import set_up_interpreter
from headrace.broker.settings.config_rules import rules_of
from headrace.broker.telemetry.metrics import Registry
from headrace.broker.telemetry.request_errors import RequestErrors
from headrace.config import BrokerConfig
from headrace.controller.context import ConfigRules, ControllerContext
from headrace.controller.heartbeats import Heartbeat, HeartbeatReply, decide_heartbeat
from headrace.controller.membership import decide_fence_brokers
from headrace.controller.sessions import BrokerSessions
from headrace.env.posix_node import PosixNode
from headrace.machine import Decision
from headrace.metadata.difference import difference
from headrace.metadata.image import NO_LEADER, ClusterImage
from headrace.metadata.replay import Replay
from headrace.metadata.snapshot import image_records
from headrace.raft.messages import Position
from headrace.security.authorizer import OpenAuthorizer
from headrace.wire.frame import encode_response, encode_response_parts
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from tests.peers.kafka import resident_bytes

END_S = 2.0
"""How long the end of a broker may take."""
SESSION_MS = 9_000
METADATA_VERSION = 12
TOPICS_AT_ONCE = 10


class Scale:
    """A controller of such a cluster: its quorum is this node, its log and its disk are real."""

    def __init__(self, node: PosixNode, driver: QuorumDriver, size: Size, table: Table, rules: ConfigRules) -> None:
        self._node = node
        self._driver = driver
        self._size = size
        self._table = table
        self._context = ControllerContext(
            node_id=driver.node_id,
            num_partitions=1,
            default_replication_factor=size.replicas,
            rules=rules,
            new_id=node.entropy.uuid,
            sessions=BrokerSessions(SESSION_MS),
        )

    async def all(self) -> None:
        """Everything, one after the other."""
        await self.build()
        gc.freeze()  # as a broker does with the image that it starts with
        full = self._driver.image
        await self.heartbeats()
        await self.snapshot()
        await self.answer()
        await self.fence()
        await self.difference_to(full)
        requests = Requests(self._driver, self._context, self._table)
        await requests.leave_without_leaders()
        await self.come_back()
        await requests.all()

    async def build(self) -> None:
        """Registrations and topics, a few topics a decision."""
        chance = random.Random(1)
        before = resident_bytes(os.getpid())
        await self._driver.submit(lambda _: Decision(None, broker_records(self._size)))
        with timed() as spent:
            async with Ticker() as ticker:
                for first in range(0, self._size.topics, TOPICS_AT_ONCE):
                    last = min(first + TOPICS_AT_ONCE, self._size.topics)
                    records = [r for number in range(first, last) for r in topic_records(self._size, number, chance)]
                    await self._driver.submit(lambda _, records=records: Decision(None, records))  # type: ignore[misc]
        gc.collect()
        self._table.add("topics created, ten a decision", spent(), "s")
        self._table.held("the same", ticker)
        self._table.add("memory of the image", (resident_bytes(os.getpid()) - before) / MB, "MB")

    async def heartbeats(self) -> None:
        """What every broker says while nothing happens: each is heard every two seconds."""
        driver, context = self._driver, self._context
        assert context.sessions is not None
        context.sessions.begin(driver.image, context.now_ms)
        known, offset = driver.image.brokers, driver.image.offset
        beats = [Heartbeat(broker, known[broker].epoch, offset) for broker in self._brokers()]
        with timed() as spent:
            for beat in beats:
                reply = await driver.submit(partial(self._heartbeat, beat))
                assert not reply.is_fenced
        self._table.add("a heartbeat", spent() / len(beats) * 1e6, "us")

    def _brokers(self) -> range:
        return range(FIRST, FIRST + self._size.brokers)

    def _heartbeat(self, beat: Heartbeat, image: ClusterImage) -> Decision[HeartbeatReply]:
        assert self._context.sessions is not None
        return decide_heartbeat(image, self._context, self._context.sessions, beat)

    async def snapshot(self) -> None:
        """A snapshot is written on a worker, and read at a start or when a leader sends it."""
        driver = self._driver
        with timed() as spent:
            async with Ticker() as ticker:
                await driver.snapshot()
        self._table.add("snapshot written", spent(), "s")
        self._table.held("the same", ticker)
        end = Position(driver.image.epoch, driver.image.offset + 1)
        files = driver.log.files
        self._table.add("its size", files.size(end) / MB, "MB")
        with timed() as spent:
            async with Ticker() as ticker:
                content = await self._node.workers.run(lambda: files.read(end, driver.image.cluster_id))
        assert content.image.topics == driver.image.topics
        self._table.add("snapshot read", spent(), "s")
        self._table.held("the same", ticker)

    async def answer(self) -> None:
        """Metadata of all topics, as an admin client or an old one asks for it."""
        lost = LostLeaders(self._node, self._node.owner("bench"), lambda: self._driver.image)
        broker: Any = SimpleNamespace(
            image=self._driver.image,
            cluster_id="scale",
            node_id=FIRST,
            long_answers=asyncio.Lock(),
            request_errors=RequestErrors(Registry()),
            replicas=SimpleNamespace(lost_leaders=lost),
        )
        context = RequestContext(OpenAuthorizer(), api_key=MetadataRequest.API_KEY, api_version=METADATA_VERSION)
        with timed() as spent:
            async with Ticker() as ticker:
                response: Any = metadata(broker, MetadataRequest(topics=None), context)
                if isinstance(response, MetadataResponse):
                    frame = bytes(encode_response(MetadataRequest.API_KEY, METADATA_VERSION, 1, response))
                else:
                    parts = encode_response_parts(MetadataRequest.API_KEY, METADATA_VERSION, 1, await response)
                    frame = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
        assert len(MetadataResponse.decode(memoryview(frame), METADATA_VERSION, 9).topics) == self._size.topics
        self._table.add("Metadata answer of all topics", len(frame) / MB, "MB")
        self._table.add("it is made", spent(), "s")
        self._table.held("the same", ticker)

    async def fence(self) -> None:
        """A broker is dead: all that it led is led by others, and it is in sync nowhere."""
        driver = self._driver
        epoch = driver.image.brokers[FIRST].epoch
        before = driver.image.offset
        with timed() as spent:
            async with Ticker() as ticker:
                await driver.submit(lambda image: decide_fence_brokers(image, self._context, [(FIRST, epoch)]))
        assert driver.image.brokers[FIRST].fenced
        self._table.add("partitions that a dead broker leaves", driver.image.offset - before - 1, "")
        self._table.add("the broker is fenced, others lead", spent(), "s", END_S)
        self._table.held("the same", ticker)

    async def difference_to(self, old: ClusterImage) -> None:
        """What a follower publishes that was far behind: from the image before the end of the broker to a copy of the
        one after it, which shares nothing with it, as one that comes out of a snapshot does."""
        new = self._driver.image
        replay = Replay(ClusterImage(cluster_id=new.cluster_id))
        for record in image_records(new):
            replay.apply(record)
        replay.advance(offset=new.offset, epoch=new.epoch, timestamp_ms=new.timestamp_ms)
        copy = replay.finish()
        with timed() as spent:
            async with Ticker() as ticker:
                delta = await self._node.workers.run(lambda: difference(old, copy))
        changed = sum(len(topic.changed) for topic in delta.topics.values())
        self._table.add("partitions in the difference of two images", changed, "")
        self._table.add("it is made, on a worker", spent(), "s")
        self._table.held("the same", ticker)

    async def come_back(self) -> None:
        """The broker lives again: it is unfenced, and asks to be in sync where it was."""
        beat = Heartbeat(FIRST, self._driver.image.brokers[FIRST].epoch, self._driver.image.offset)
        with timed() as spent:
            async with Ticker() as ticker:
                reply = await self._driver.submit(partial(self._heartbeat, beat))
        assert not reply.is_fenced
        assert not any(each.leader == NO_LEADER for topic in self._driver.image.topics for each in topic.partitions)
        self._table.add(f"the broker is unfenced, and leads {LEADERLESS} partitions that had no leader", spent(), "s")
        self._table.held("the same", ticker)


async def measure(size: Size, table: Table, directory: Path) -> None:
    """A node of its own on a fresh directory."""
    node = PosixNode()
    config = BrokerConfig.load({"log.dirs": str(directory)})
    driver, _ = open_quorum(node, config)
    try:
        await Scale(node, driver, size, table, rules_of(config)).all()
    finally:
        await driver.close()
        await node.close()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench --scale", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--brokers", type=int, default=Size.brokers)
    parser.add_argument("--topics", type=int, default=Size.topics)
    parser.add_argument("--partitions", type=int, default=Size.partitions)
    parser.add_argument("--into", type=Path, help="where the results are kept")
    asked = parser.parse_args(argv)
    size = Size(asked.brokers, asked.topics, asked.partitions)
    path = asked.into or result_file("scale-")
    set_up_interpreter()
    with tempfile.TemporaryDirectory(prefix="headrace-scale-") as directory:
        asyncio.run(measure(size, Table(size, path), Path(directory)))
    print(f"kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
