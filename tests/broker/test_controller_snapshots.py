"""Three controllers whose snapshots take the place of their logs: a node that was away comes back by a snapshot."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from broker.controllers import until
from broker.test_controller_node import NODES, Nothing, Quorum, three

from headrace.broker.quorum.log import snapshot_loading
from headrace.broker.quorum.log.snapshot_files import SnapshotFiles
from headrace.controller.names import METADATA_TOPIC
from headrace.metadata.delta import ImageDelta
from headrace.metadata.difference import difference
from headrace.metadata.image import ClusterImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k59_fetch_snapshot as k59

SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.max.retention.bytes": "1",
    "controller.quorum.fetch.snapshot.max.bytes": "200",
}
MANY = 60
"""Changes that fill several snapshots."""


def directory(quorum: Quorum, node: int) -> Path:
    return quorum.folder / str(node) / "__cluster_metadata-0"


async def fill(quorum: Quorum, leader: int, first: int = 1) -> None:
    """Until the log of every node begins behind what it held before."""
    before = {node: each.quorum.raft.log.end_offset for node, each in quorum.nodes.items()}
    for number in range(first, first + MANY):
        assert await quorum.alter(leader, 1_000_000 + number) is ErrorCode.NONE
    await until(lambda: all(each.quorum.raft.log.start_offset > before[node] for node, each in quorum.nodes.items()))


def same(quorum: Quorum) -> bool:
    """Whether all nodes have one image, and one end of the log."""
    images = [each.image for each in quorum.nodes.values()]
    return all(image == images[0] for image in images)


async def test_a_node_that_was_away_comes_back_by_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def compared(old: ClusterImage, new: ClusterImage) -> ImageDelta:
        threads.append(threading.get_ident())
        return difference(old, new)

    monkeypatch.setattr(snapshot_loading, "difference", compared)

    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        await quorum.alter(leader, 999_999)
        away = next(node for node in NODES if node != leader)
        await quorum.stop(away)
        (directory(quorum, away) / f"{7:020d}-{1:010d}.checkpoint.part").write_bytes(b"half")
        await fill(quorum, leader)
        heard: list[tuple[ClusterImage, ClusterImage, ImageDelta]] = []
        end = quorum.nodes[leader].quorum.raft.log.snapshot
        await quorum.start(away)
        assert not list(directory(quorum, away).glob("*.part"))
        returned = quorum.nodes[away].quorum
        assert returned.raft.log.end_offset < end.offset
        returned.on_image(lambda *change: heard.append(change))
        await until(lambda: same(quorum) and returned.raft.log.end_offset == quorum.nodes[leader].image.offset + 1)
        assert returned.raft.log.start_offset >= end.offset
        loaded = next(change for change in heard if change[1].offset + 1 >= end.offset)
        assert loaded[2].base is loaded[0] and loaded[2].changed_configs == {(4, "")}
        assert threads and threading.get_ident() not in threads, "the loop does other things meanwhile"
        assert returned.log.log.log_start_offset == returned.raft.log.start_offset
        await until(lambda: not list(directory(quorum, away).glob("*.part")))  # it may write a snapshot of its own

        # Its log goes on, it counts, and what it loaded is there after a restart.
        other = next(node for node in NODES if node not in (leader, away))
        await quorum.stop(other)
        assert await quorum.alter(leader, 5_000_000) is ErrorCode.NONE
        await quorum.stop(away)
        await quorum.start(away)
        assert quorum.nodes[away].image.offset >= end.offset - 1
        await until(lambda: set(quorum.stored().values()) == {"5000000"})

    await three(tmp_path, body, SMALL)


async def test_an_empty_voter_is_filled_by_a_snapshot(tmp_path: Path) -> None:
    """With the log kept, whoever has nothing gets the snapshot all the same."""

    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        await quorum.stop(away := next(node for node in NODES if node != leader))
        for path in directory(quorum, away).iterdir():
            if path.suffix in (".log", ".checkpoint"):
                path.unlink()
        for number in range(MANY):
            assert await quorum.alter(leader, 1_000_000 + number) is ErrorCode.NONE
        await until(lambda: quorum.nodes[leader].quorum.raft.log.snapshot.offset > 0)
        assert quorum.nodes[leader].quorum.raft.log.start_offset == 0
        await quorum.start(away)
        await until(lambda: same(quorum))
        assert quorum.nodes[away].quorum.raft.log.start_offset > 0

    await three(tmp_path, body, {**SMALL, "metadata.max.retention.bytes": "100000000"})


async def test_a_snapshot_that_is_damaged_on_its_way_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        away = next(node for node in NODES if node != leader)
        await quorum.stop(away)
        await fill(quorum, leader)
        real = SnapshotFiles.piece
        refused = "the leader's metadata snapshot cannot be used"

        def piece(self: SnapshotFiles, end: Any, position: int, max_bytes: int) -> tuple[bytes, int]:
            data, size = real(self, end, position, max_bytes)
            if position and refused not in caplog.text:  # also of a newer one that the leader has meanwhile
                data = bytes([data[0] ^ 1]) + data[1:]
            return data, size

        monkeypatch.setattr(SnapshotFiles, "piece", piece)
        await quorum.start(away)
        returned = quorum.nodes[away].quorum
        before = returned.raft.log.last
        await until(lambda: refused in caplog.text)
        assert returned.raft.log.last == before and not returned.log.files.ends()
        await until(lambda: same(quorum))

    await three(tmp_path, body, SMALL)


def asked(epoch: int, end_offset: int, snapshot_epoch: int, position: int, max_bytes: int = 100) -> Any:
    partition = k59.PartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=k59.SnapshotId(end_offset=end_offset, epoch=snapshot_epoch),
        position=position,
    )
    topic = k59.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return k59.FetchSnapshotRequest(replica_id=9, max_bytes=max_bytes, topics=[topic])


async def test_the_leader_serves_whoever_may_ask(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        await fill(quorum, leader)
        driver = quorum.nodes[leader].quorum
        await driver._all_synced()  # nothing is written from here on, so no snapshot takes the place of this one
        await driver._snapshots.ended()
        epoch, end = driver.epoch, driver.raft.log.snapshot
        whole = (directory(quorum, leader) / Path(driver.log.files.path(end)).name).read_bytes()

        async def piece(request: k59.FetchSnapshotRequest, node: int = leader) -> k59.ResponsePartitionSnapshot:
            answer = await quorum.ask(node, request, k59.FetchSnapshotResponse)
            assert answer.error_code == ErrorCode.NONE
            return answer.topics[0].partitions[0]

        got = await piece(asked(epoch, end.offset, end.epoch, 10))
        assert (got.position, got.size, got.unaligned_records) == (10, len(whole), whole[10:110])
        assert got.current_leader is not None and got.current_leader.leader_id == leader
        got = await piece(asked(epoch, end.offset, end.epoch, 0, 2**31 - 1))
        assert got.unaligned_records == whole
        for request, error in (
            (asked(epoch, end.offset, end.epoch, len(whole)), ErrorCode.POSITION_OUT_OF_RANGE),
            (asked(epoch, end.offset, end.epoch, -1), ErrorCode.POSITION_OUT_OF_RANGE),
            (asked(epoch, end.offset + 1, end.epoch, 0), ErrorCode.SNAPSHOT_NOT_FOUND),
            (asked(epoch, 0, 0, 0), ErrorCode.SNAPSHOT_NOT_FOUND),
            (asked(epoch - 1, end.offset, end.epoch, 0), ErrorCode.FENCED_LEADER_EPOCH),
            (asked(epoch + 1, end.offset, end.epoch, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            got = await piece(request)
            assert got.error_code == error and not got.unaligned_records
        follower = next(node for node in NODES if node != leader)
        got = await piece(asked(epoch, end.offset, end.epoch, 0), follower)
        assert got.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        wrong = asked(epoch, end.offset, end.epoch, 0)
        wrong.cluster_id = "another"
        refused = await quorum.ask(leader, wrong, k59.FetchSnapshotResponse)
        assert refused.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        quorum.nodes[leader].authorizer = Nothing()
        refused = await quorum.ask(leader, asked(epoch, end.offset, end.epoch, 0), k59.FetchSnapshotResponse)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    await three(tmp_path, body, {**SMALL, "metadata.max.idle.interval.ms": "0"})


async def test_a_crash_between_the_snapshot_and_the_end_of_the_log_before_it(tmp_path: Path) -> None:
    """The snapshot has its name, and the log that it takes the place of is still there."""

    async def body(quorum: Quorum) -> None:
        leader = await quorum.active()
        away = next(node for node in NODES if node != leader)
        await quorum.alter(leader, 999_999)
        await quorum.stop(away)
        await fill(quorum, leader)
        driver = quorum.nodes[leader].quorum
        name = Path(driver.log.files.path(driver.raft.log.snapshot)).name
        (directory(quorum, away) / name).write_bytes((directory(quorum, leader) / name).read_bytes())
        await quorum.start(away)
        assert quorum.nodes[away].quorum.raft.log.start_offset == driver.raft.log.snapshot.offset
        await until(lambda: same(quorum))

    await three(tmp_path, body, SMALL)
