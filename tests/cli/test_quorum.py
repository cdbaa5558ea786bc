"""`headrace quorum add` and `remove`, by a broker beside controllers that runs in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.test_controller_node import CLUSTER
from broker.test_voters_change import Changing
from click.testing import CliRunner, Result
from peers.kafka import free_port

from headrace.broker.broker import Broker
from headrace.broker.quorum.metadata_start import format_storage
from headrace.cli import main
from headrace.config import BrokerConfig
from headrace.env.posix_node import PosixNode


class Operated(Changing):
    """A controller that votes, one that joins, and a broker, which an operator asks."""

    port: int
    broker: Broker

    async def begin(self) -> None:
        await self.start(1)
        await self.start(2)
        self.port = free_port()
        env = PosixNode(worker_threads=4)
        config = BrokerConfig.load(
            {
                "node.id": "5",
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.ports[1]}",
                "log.dirs": str(self.folder / "5"),
            }
        )
        format_storage(env, config, CLUSTER)
        self.broker = Broker(config, env)
        await self.broker.start()

    def file(self, node: int) -> Path:
        path = self.folder / f"{node}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.config(node).static.items()))
        return path

    async def run(self, *arguments: object) -> Result:
        command = ["quorum", *map(str, arguments), "-b", f"127.0.0.1:{self.port}"]
        return await asyncio.to_thread(CliRunner().invoke, main, command)


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Operated]:
    quorum = Operated(tmp_path)
    try:
        await quorum.begin()
        yield quorum
    finally:
        await quorum.broker.stop()
        for node in list(quorum.nodes):
            await quorum.stop(node)
        await quorum.client.close()


async def test_a_controller_becomes_a_voter_and_is_none_again(quorum: Operated) -> None:
    added = await quorum.run("add", "-c", quorum.file(2))
    assert added.exit_code == 0, added.output
    assert added.stdout == "added voter 2\n"
    await quorum.agreed(1, 2)
    again = await quorum.run("add", "-c", quorum.file(2))
    assert again.exit_code == 1 and "Node 2 is a voter already." in again.stderr
    described = json.loads((await quorum.run("describe", "--json")).stdout)
    assert [each["id"] for each in described["replicas"] if each["voter"]] == [1, 2]
    removed = await quorum.run("remove", "2", "--yes", "--json")
    assert removed.exit_code == 0, removed.output
    assert json.loads(removed.stdout)["removed"] is True
    await quorum.agreed(1)
    gone = await quorum.run("remove", "2", "--yes")
    assert gone.exit_code == 1 and "node 2 is no voter" in gone.stderr
    last = await quorum.run("remove", "1", "--yes")
    assert last.exit_code == 1 and "The last voter cannot be removed." in last.stderr


async def test_a_file_of_no_such_controller_is_refused(quorum: Operated) -> None:
    file = quorum.file(2)
    file.write_text(file.read_text().replace(str(quorum.folder / "2"), str(quorum.folder / "fresh")))
    refused = await quorum.run("add", "-c", file)
    assert refused.exit_code == 1 and "format the node first" in refused.stderr
    broker = quorum.folder / "broker.properties"
    broker.write_text("node.id=7\nlisteners=PLAINTEXT://127.0.0.1:9092\n")
    refused = await quorum.run("add", "-c", broker)
    assert refused.exit_code == 1 and "a listener of controllers" in refused.stderr
