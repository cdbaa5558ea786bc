"""Controllers whose voters come and go, in this process, over real sockets and disks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from broker.controllers import until
from broker.test_controller_node import CLUSTER, Quorum
from peers.kafka import free_port

from headrace.broker.controller_node import ControllerNode
from headrace.broker.quorum.metadata_start import format_storage
from headrace.broker.storage.storage_format import StorageError
from headrace.client.errors import ClientError
from headrace.config import BrokerConfig
from headrace.env.posix_node import PosixNode
from headrace.raft.control import Voter, VoterEndpoint
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k80_add_raft_voter as k80
from headrace.wire.messages import k81_remove_raft_voter as k81

Change = k80.AddRaftVoterRequest | k81.RemoveRaftVoterRequest


class Changing(Quorum):
    """Node 1 is formatted as the only voter, the others join."""

    joins_alone = False
    first: tuple[Voter, ...] = ()

    def config(self, node: int) -> BrokerConfig:
        static: Mapping[str, str] = {
            name: value for name, value in super().config(node).static.items() if name != "controller.quorum.voters"
        }
        return BrokerConfig.load(
            {
                **static,
                "controller.quorum.auto.join.enable": "true" if self.joins_alone else "false",
                "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.ports.values()),
            }
        )

    async def start(self, node: int) -> None:
        env = PosixNode()
        format_storage(env, self.config(node), CLUSTER, voters=self.first, joins=node != 1 and not self.first)
        self.nodes[node] = ControllerNode(self.config(node), env)
        await self.nodes[node].start()

    def directory_id(self, node: int) -> bytes:
        return self.nodes[node].quorum.member.key.directory_id

    def add(self, node: int) -> k80.AddRaftVoterRequest:
        return k80.AddRaftVoterRequest(
            cluster_id=CLUSTER,
            timeout_ms=5000,
            voter_id=node,
            voter_directory_id=self.directory_id(node),
            listeners=[k80.Listener("CONTROLLER", "127.0.0.1", self.ports[node])],
        )

    def remove(self, node: int, directory_id: bytes | None = None) -> k81.RemoveRaftVoterRequest:
        return k81.RemoveRaftVoterRequest(CLUSTER, node, directory_id or self.directory_id(node))

    async def change(self, node: int, request: Change) -> tuple[ErrorCode, str | None]:
        """Asks one node."""
        answer: k80.AddRaftVoterResponse | k81.RemoveRaftVoterResponse
        if isinstance(request, k80.AddRaftVoterRequest):
            answer = await self.ask(node, request, k80.AddRaftVoterResponse)
        else:
            answer = await self.ask(node, request, k81.RemoveRaftVoterResponse)
        return ErrorCode(answer.error_code), answer.error_message

    async def changed(self, request: Change) -> None:
        """Asks whoever leads, until what may pass has passed."""
        for _ in range(600):
            error, why = await self.change(await self.active(), request)
            if error is ErrorCode.NONE:
                return
            assert error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER), (error, why)
            await asyncio.sleep(0.05)
        raise AssertionError("the voters cannot change")

    async def confirmed_after(self, value: int) -> int:
        """The next value of the setting, once whoever leads has confirmed it."""
        while True:
            try:
                if await self.alter(await self.active(), value + 1) is ErrorCode.NONE:
                    return value + 1
            except ClientError:
                pass
            await asyncio.sleep(0.01)

    def move(self, node: int) -> None:
        """From its next start on, a node listens elsewhere."""
        self.ports[node] = free_port()

    def voters(self) -> dict[int, list[int]]:
        """Who votes, as each node knows it."""
        return {node: [voter.id for voter in each.quorum.voters] for node, each in self.nodes.items()}

    async def agreed(self, *voters: int) -> None:
        await until(lambda: all(known == list(voters) for known in self.voters().values()))


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Changing]:
    quorum = Changing(tmp_path)
    try:
        yield quorum
    finally:
        for node in list(quorum.nodes):
            await quorum.stop(node)
        await quorum.client.close()


async def test_one_controller_grows_to_three_and_shrinks_while_it_decides(quorum: Changing) -> None:
    await quorum.start(1)
    assert await quorum.active() == 1
    confirmed = 0
    done = asyncio.Event()

    async def alter() -> None:
        nonlocal confirmed
        while not done.is_set():
            confirmed = await quorum.confirmed_after(confirmed)
            await asyncio.sleep(0.01)

    altering = asyncio.create_task(alter())
    try:
        for node in (2, 3):
            await quorum.start(node)
            await quorum.changed(quorum.add(node))
        await quorum.agreed(1, 2, 3)
        await quorum.changed(quorum.remove(1))
        await quorum.agreed(2, 3)
        assert await quorum.active() in (2, 3)
        await quorum.changed(quorum.remove(2))
        await quorum.agreed(3)
        assert await quorum.active() == 3
    finally:
        done.set()
        await altering
    assert confirmed > 0
    await until(lambda: set(quorum.stored().values()) == {str(confirmed)} and len(quorum.stored()) == 3)
    for node in (1, 2, 3):
        await quorum.stop(node)
    for node in (3, 1):  # the one that votes now, and one that did
        await quorum.start(node)
    await quorum.agreed(3)
    assert await quorum.active() == 3 and quorum.stored()[3] == str(confirmed)
    await quorum.changed(quorum.add(1))
    await quorum.agreed(1, 3)


async def test_three_voters_start_again_and_elect_a_leader(quorum: Changing) -> None:
    await quorum.start(1)
    for node in (2, 3):
        await quorum.start(node)
        await quorum.changed(quorum.add(node))
    await quorum.agreed(1, 2, 3)
    leader = await quorum.active()
    assert await quorum.alter(leader, 5000) is ErrorCode.NONE
    for node in (1, 2, 3):
        await quorum.stop(node)
    await quorum.start(2)
    await quorum.start(3)
    assert await quorum.active() in (2, 3)
    await until(lambda: set(quorum.stored().values()) == {"5000"})


async def test_three_voters_begin_together(quorum: Changing) -> None:
    quorum.first = tuple(
        Voter(node, bytes([node]) * 16, (VoterEndpoint("CONTROLLER", "127.0.0.1", port),))
        for node, port in quorum.ports.items()
    )
    for node in (1, 2, 3):
        await quorum.start(node)
    leader = await quorum.active()
    assert await quorum.alter(leader, 5000) is ErrorCode.NONE
    await quorum.agreed(1, 2, 3)
    await until(lambda: set(quorum.stored().values()) == {"5000"})


@pytest.mark.slow
async def test_a_voter_that_lost_its_disk_joins_again_by_itself(quorum: Changing) -> None:
    quorum.joins_alone = True
    for node in (1, 2, 3):
        await quorum.start(node)
    await quorum.agreed(1, 2, 3)
    lost = quorum.directory_id(3)
    await quorum.stop(3)
    shutil.rmtree(quorum.folder / "3")
    await quorum.start(3)
    fresh = quorum.directory_id(3)
    assert fresh != lost
    named = {quorum.directory_id(node) for node in (1, 2)} | {fresh}

    def known() -> list[set[bytes]]:
        return [{voter.directory_id for voter in each.quorum.voters} for each in quorum.nodes.values()]

    await until(lambda: known() == [named] * 3)


async def test_whoever_knows_no_other_node_is_refused(quorum: Changing) -> None:
    await quorum.start(1)
    await quorum.stop(1)
    known = BrokerConfig.load({**quorum.config(1).static, "controller.quorum.bootstrap.servers": ""})
    shutil.copytree(quorum.folder / "1" / "__cluster_metadata-0", quorum.folder / "kept")
    shutil.rmtree(quorum.folder / "1")
    format_storage(quorum.client, known, CLUSTER)
    shutil.rmtree(quorum.folder / "1" / "__cluster_metadata-0")
    shutil.move(quorum.folder / "kept", quorum.folder / "1" / "__cluster_metadata-0")
    with pytest.raises(StorageError, match=r"knows no other: set controller\.quorum\.bootstrap\.servers"):
        await ControllerNode(known, PosixNode()).start()


async def test_refusals_are_those_of_kafka(quorum: Changing) -> None:
    await quorum.start(1)
    await quorum.start(2)
    assert await quorum.active() == 1
    request = quorum.add(2)
    request.cluster_id = "another"
    assert (await quorum.change(1, request))[0] is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert (await quorum.change(2, quorum.add(2)))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await quorum.change(1, quorum.add(1)))[0] is ErrorCode.DUPLICATE_VOTER
    assert (await quorum.change(1, quorum.remove(2)))[0] is ErrorCode.VOTER_NOT_FOUND
    assert (await quorum.change(1, quorum.remove(1)))[0] is ErrorCode.INVALID_REQUEST
    await quorum.changed(quorum.add(2))
    assert (await quorum.change(1, quorum.remove(2, b"\1" * 16)))[0] is ErrorCode.VOTER_NOT_FOUND


@pytest.mark.slow
async def test_controllers_join_by_themselves(quorum: Changing) -> None:
    quorum.joins_alone = True
    for node in (1, 2, 3):
        await quorum.start(node)
    await quorum.agreed(1, 2, 3)


async def test_a_voter_that_moved_says_so(quorum: Changing) -> None:
    await quorum.start(1)
    for node in (2, 3):
        await quorum.start(node)
        await quorum.changed(quorum.add(node))
    await quorum.agreed(1, 2, 3)
    await quorum.stop(3)
    quorum.move(3)
    await quorum.start(3)

    def known() -> set[int]:
        return {voter.endpoints[0].port for each in quorum.nodes.values() for voter in each.quorum.voters[2:]}

    await until(lambda: known() == {quorum.ports[3]})
