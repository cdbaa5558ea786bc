"""Three controllers in this process, over real sockets and disks: elections, followers, a leader that stops or is
killed, and what a client hears of it."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from broker.controllers import until
from peers.kafka import free_port

from headrace.broker.controller_node import ControllerNode
from headrace.broker.quorum.metadata_start import format_storage
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.storage.storage_format import StorageError
from headrace.client.async_connection import AsyncConnection
from headrace.client.channel import Request, Response
from headrace.client.errors import ClientError
from headrace.config import BrokerConfig
from headrace.controller.names import METADATA_TOPIC
from headrace.env.posix_node import PosixNode
from headrace.machine import Decision
from headrace.metadata.image import ResourceType
from headrace.raft.messages import Position, ReplicaKey, VoteRequest
from headrace.security.authorizer import UNCACHED
from headrace.wire.config_source import ConfigSource
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k32_describe_configs as k32
from headrace.wire.messages import k44_incremental_alter_configs as k44
from headrace.wire.messages import k52_vote as k52
from headrace.wire.messages import k55_describe_quorum as k55
from headrace.wire.messages.metadata_records import NoOpRecord

NODES = (1, 2, 3)
CLUSTER = "dGhyZWUtY29udHJvbGxlcg"
PATIENCE_S = 60.0
SETTING = "log.retention.ms"
R = TypeVar("R", bound=Response)


class Quorum:
    """Voters 1 to 3, each with a directory and a port of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings or {})
        self.ports = {node: free_port() for node in NODES}
        self.nodes: dict[int, ControllerNode] = {}
        self.client = PosixNode()
        self.owner = self.client.owner("client")

    def config(self, node: int) -> BrokerConfig:
        return BrokerConfig.load(
            {
                **self.settings,
                "node.id": str(node),
                "process.roles": "controller",
                "listeners": f"CONTROLLER://127.0.0.1:{self.ports[node]}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{self.ports[each]}" for each in NODES),
                "controller.quorum.election.timeout.ms": "500",
                "controller.quorum.fetch.timeout.ms": "1000",
                "log.dirs": str(self.folder / str(node)),
            }
        )

    async def start(self, node: int) -> None:
        env = PosixNode()
        format_storage(env, self.config(node), CLUSTER)
        self.nodes[node] = ControllerNode(self.config(node), env)
        await self.nodes[node].start()

    async def stop(self, node: int) -> None:
        stopped = self.nodes.pop(node)
        await stopped.stop()
        assert stopped.node.defects.count == 0, stopped.node.defects.first

    async def active(self) -> int:
        """The node that decides."""
        found: list[int] = await until(lambda: [node for node, each in self.nodes.items() if each.quorum.decides])
        assert len(found) == 1
        return found[0]

    async def ask(self, node: int, request: Request, response_class: type[R]) -> R:
        connection = await AsyncConnection.open(
            self.client, self.owner, "127.0.0.1", self.ports[node], client_id="test", timeout_s=5.0
        )
        try:
            return await connection.ask(request, response_class, timeout_s=5.0)
        finally:
            connection.close()

    async def alter(self, node: int, value: int | str, name: str = SETTING, resource_name: str = "") -> ErrorCode:
        configs = [k44.AlterableConfig(name=name, value=str(value))]
        resource = k44.AlterConfigsResource(ResourceType.BROKER, resource_name, configs)
        request = k44.IncrementalAlterConfigsRequest(resources=[resource])
        answer = await self.ask(node, request, k44.IncrementalAlterConfigsResponse)
        return ErrorCode(answer.responses[0].error_code)

    def stored(self) -> dict[int, str]:
        return {node: each.image.configs.cluster_overrides().get(SETTING, "") for node, each in self.nodes.items()}

    async def describe(self, node: int) -> k55.ResponsePartitionData:
        asked = k55.TopicData(topic_name=METADATA_TOPIC, partitions=[k55.PartitionData()])
        answer = await self.ask(node, k55.DescribeQuorumRequest(topics=[asked]), k55.DescribeQuorumResponse)
        return answer.topics[0].partitions[0]

    async def leader(self, nodes: Collection[int]) -> tuple[int, k55.ResponsePartitionData]:
        """Which of these processes leads, as it says itself."""
        for _ in range(int(PATIENCE_S / 0.05)):
            for node in nodes:
                try:
                    said = await self.describe(node)
                except ClientError:
                    continue  # not up yet
                if said.error_code == ErrorCode.NONE:
                    return node, said
            await asyncio.sleep(0.05)
        raise AssertionError("nobody leads")

    async def confirm(self, nodes: Collection[int], value: int) -> int:
        """Has a change confirmed by whichever of these processes leads, and returns which. As an administrator's client
        does, asks for the leader again where it does not decide: not yet, or not any more."""
        for _ in range(int(PATIENCE_S / 0.05)):
            node, _ = await self.leader(nodes)
            try:
                said = await self.alter(node, value)
            except ClientError:
                continue
            if said is ErrorCode.NONE:
                return node
            assert said is ErrorCode.NOT_CONTROLLER
            await asyncio.sleep(0.05)
        raise AssertionError("no change is confirmed")


async def three(
    folder: Path, body: Callable[[Quorum], Awaitable[None]], settings: Mapping[str, str] | None = None
) -> None:
    quorum = Quorum(folder, settings)
    try:
        for node in NODES:
            await quorum.start(node)
        await body(quorum)
    finally:
        for node in list(quorum.nodes):
            await quorum.stop(node)
        await quorum.client.close()


async def test_what_the_leader_takes_is_on_every_node(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        for node in NODES:
            said = await quorum.alter(node, 1000 + node)
            assert said is (ErrorCode.NONE if node == leader else ErrorCode.NOT_CONTROLLER)
        await until(lambda: set(quorum.stored().values()) == {str(1000 + leader)})

    await three(tmp_path, body)


async def test_a_controller_that_is_asked_itself_takes_what_listeners_follow(tmp_path: Path) -> None:
    """It cannot know what the listeners of another node can follow; that node keeps what it has, and says so."""

    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        for name, value in (
            ("sasl.kerberos.min.time.before.relogin", "7"),
            ("ssl.client.auth", "required"),
            ("listener.name.x.sasl.enabled.mechanisms", "PLAIN"),
        ):
            other = await quorum.alter(leader, value, name, str(leader))
            assert other in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED)

    await three(tmp_path, body)


async def test_every_node_says_which_settings_are_in_force(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        assert await quorum.alter(await quorum.active(), 1234) is ErrorCode.NONE
        await until(lambda: set(quorum.stored().values()) == {"1234"})
        for node in NODES:
            for name in (str(node), ""):
                asked = k32.DescribeConfigsResource(ResourceType.BROKER, name, [SETTING])
                request = k32.DescribeConfigsRequest(resources=[asked], include_synonyms=True)
                (said,) = (await quorum.ask(node, request, k32.DescribeConfigsResponse)).results
                (config,) = said.configs
                assert (said.error_code, config.value) == (0, "1234")
                assert config.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER

    await three(tmp_path, body)


async def test_a_leader_that_stops_hands_over_and_comes_back_as_a_follower(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        first = await quorum.active()
        assert await quorum.alter(first, 5000) is ErrorCode.NONE
        epoch = quorum.nodes[first].quorum.epoch
        await quorum.stop(first)
        second = await quorum.active()
        assert quorum.nodes[second].quorum.epoch > epoch
        assert quorum.stored()[second] == "5000"
        assert await quorum.alter(second, 6000) is ErrorCode.NONE
        await quorum.start(first)
        await until(lambda: set(quorum.stored().values()) == {"6000"} and len(quorum.stored()) == 3)
        assert await quorum.active() == second

    await three(tmp_path, body)


@pytest.mark.slow
async def test_one_node_of_three_decides_nothing(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        for node in NODES:
            if node != leader:
                await quorum.stop(node)
        await until(lambda: not quorum.nodes[leader].quorum.decides)
        assert await quorum.alter(leader, 5000) is ErrorCode.NOT_CONTROLLER
        assert (await quorum.describe(leader)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    await three(tmp_path, body)


@pytest.mark.slow
async def test_a_leader_that_slept_decides_or_refuses(tmp_path: Path) -> None:
    """It has not heard of the others for too long, and does not know that yet when it is asked."""

    async def body(quorum: Quorum) -> None:
        driver = quorum.nodes[await quorum.active()].quorum
        for records in ([NoOpRecord()], []):
            await until(lambda: driver.decides or driver.raft.leader_id not in (None, driver.node_id))
            time.sleep(2.0)  # noqa: ASYNC251  longer than a leader goes on without its followers
            asked = driver.submit(lambda _, records=records: Decision(None, records))  # type: ignore[misc]
            with suppress(ControllerError):
                await asyncio.wait_for(asked, PATIENCE_S)

    await three(tmp_path, body)


async def test_the_quorum_is_described_by_its_leader(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        driver = quorum.nodes[leader].quorum
        raft = driver.raft
        said = await quorum.describe(leader)
        while {voter.log_end_offset for voter in said.current_voters} != {raft.log.end_offset}:
            await asyncio.sleep(0.01)  # the log goes on: nodes register, and the controller marks the time
            said = await quorum.describe(leader)
        assert (said.leader_id, said.leader_epoch) == (leader, raft.epoch)
        assert sorted(voter.replica_id for voter in said.current_voters) == list(NODES)
        now_ms = quorum.client.clock.now_ms()
        for voter in said.current_voters:
            assert abs(now_ms - voter.last_fetch_timestamp) < 60_000
            assert abs(now_ms - voter.last_caught_up_timestamp) < 60_000
        for node in NODES:
            if node != leader:
                assert (await quorum.describe(node)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    await three(tmp_path, body)


class Nothing:
    """Allows nothing."""

    generation = UNCACHED
    audit = None

    def authorize(self, *_: object) -> bool:
        return False

    authorize_any = authorize


async def test_whoever_is_no_node_has_no_say(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        node = quorum.nodes[leader]
        epoch = node.quorum.epoch
        node.authorizer = Nothing()
        request, _ = node.quorum.codec.request(
            VoteRequest(epoch + 5, ReplicaKey(9), ReplicaKey(leader), Position(epoch, 10_000), False)
        )
        answer = await quorum.ask(leader, request, k52.VoteResponse)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert node.quorum.epoch == epoch and node.quorum.decides

    await three(tmp_path, body)


async def test_a_directory_that_is_not_formatted_never_becomes_a_cluster_of_its_own(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)
    node = ControllerNode(quorum.config(1), PosixNode())
    with pytest.raises(StorageError, match="not formatted"):
        await node.start()
    format_storage(PosixNode(), quorum.config(1), CLUSTER)
    with pytest.raises(StorageError, match="belongs to cluster"):
        format_storage(PosixNode(), quorum.config(1), "another")
    await quorum.client.close()


async def test_a_directory_of_another_quorum_is_refused(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        await quorum.active()
        await quorum.stop(1)
        alone = {**quorum.config(1).static, "controller.quorum.voters": f"1@127.0.0.1:{quorum.ports[1]}"}
        with pytest.raises(StorageError, match=r"other voters: \[2, 3\]"):
            await ControllerNode(BrokerConfig.load(alone), PosixNode()).start()

    await three(tmp_path, body)


@pytest.mark.slow
async def test_processes_from_files_and_a_leader_that_is_killed(tmp_path: Path) -> None:
    """As an operator has it: formatted, served, killed."""
    quorum = Quorum(tmp_path)
    processes: dict[int, Process] = {}

    async def run(*arguments: str) -> Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(sys.executable, "-m", "headrace.cli", *arguments, stderr=pipe)

    try:
        for node in NODES:
            file = tmp_path / f"{node}.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in quorum.config(node).static.items()))
            formatting = await run("storage", "format", "-t", CLUSTER, "-c", str(file))
            assert await formatting.wait() == 0
            again = await run("storage", "format", "-t", CLUSTER, "-c", str(file))
            _, said = await again.communicate()
            assert again.returncode == 1 and b"--ignore-formatted" in said
            processes[node] = await run("serve", str(file))
        first = await quorum.confirm(processes, 7000)
        killed = processes.pop(first)
        killed.kill()
        await killed.wait()
        assert await quorum.confirm(processes, 8000) != first
        for process in processes.values():
            process.terminate()
        assert {(await process.communicate(), process.returncode)[1] for process in processes.values()} == {0}
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
        await quorum.client.close()
