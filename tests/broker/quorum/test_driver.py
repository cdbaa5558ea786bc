"""The quorum's driver on a real disk: what is submitted is durable, published in order, and there after a restart."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker.controllers import controller_of, started, until

from headrace.broker.quorum import driver
from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.log import proposals
from headrace.broker.quorum.log.snapshots import SnapshotPolicy
from headrace.broker.quorum.metadata_start import deregister, open_quorum
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.storage.storage_format import StorageError, parse_snapshot_name, snapshot_name
from headrace.config import BrokerConfig
from headrace.env.posix_node import PosixNode
from headrace.log.append_results import AppendResult
from headrace.log.segment import Segment
from headrace.machine import Decision
from headrace.metadata.batches import data_batches
from headrace.metadata.damage import metadata_remedy
from headrace.metadata.image import ClusterImage
from headrace.metadata.levels import METADATA_VERSION
from headrace.metadata.meta_properties import MetaPropertiesError, decode_meta_properties
from headrace.raft.messages import Position, ReplicaKey, VoteRequest
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import metadata_records as mr


def config_of(*directories: Path, **settings: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.load({"log.dirs": ",".join(map(str, directories)), **named})


def topic(name: str, number: int, partitions: int = 1) -> list[Any]:
    topic_id = number.to_bytes(16, "big")
    return [
        mr.TopicRecord(name=name, topic_id=topic_id),
        *(
            mr.PartitionRecord(
                partition_id=i, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0,
                directories=[bytes(15) + b"\x01"],
            )
            for i in range(partitions)
        ),
    ]  # fmt: skip


async def write(quorum: QuorumDriver, records: Sequence[Any]) -> None:
    await quorum.submit(lambda _: Decision(None, records))


def same_state(one: ClusterImage, other: ClusterImage) -> bool:
    parts = ("features", "topics", "configs", "next_producer_id", "kept")
    return all(getattr(one, part) == getattr(other, part) for part in parts)


async def test_what_was_submitted_is_there_after_a_restart(node: PosixNode, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data")
    quorum, layout = await started(node, config)
    await write(quorum, topic("a", 1, 3))
    await deregister(controller_of(node, config, quorum), 1)
    await quorum.close()
    again, other = await started(node, config)
    assert other.cluster_id == layout.cluster_id
    assert other.was_formatted
    assert not layout.was_formatted
    assert other.directory_ids == layout.directory_ids
    assert same_state(again.image, quorum.image)
    assert again.epoch == quorum.epoch + 1
    assert again.image.brokers[1].epoch > quorum.image.brokers[1].epoch
    assert not again.image.brokers[1].fenced
    await again.close()


async def test_a_crash_raises_leader_epochs_and_a_clean_stop_does_not(node: PosixNode, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    await write(quorum, topic("a", 1))
    for was_clean, epoch in ((True, 0), (False, 1), (True, 1), (False, 2)):
        quorum, _ = await started(node, config, was_clean=was_clean)
        partition = quorum.image.topics.partition("a", 0)
        assert partition is not None
        assert (partition.leader, partition.leader_epoch) == (1, epoch)


async def test_decisions_see_those_before_them_and_images_are_published_in_order(
    node: PosixNode, tmp_path: Path
) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    published: list[tuple[int, list[str]]] = []
    quorum.on_image(lambda old, new, _: published.append((new.offset - old.offset, [t.name for t in new.topics])))
    seen: list[int] = []

    def decide(number: int) -> Any:
        def step(image: ClusterImage) -> Decision[int]:
            seen.append(len(image.topics))
            return Decision(number, topic(f"t{number}", number))

        return step

    replies = await asyncio.gather(*(quorum.submit(decide(n)) for n in range(1, 6)))
    assert replies == [1, 2, 3, 4, 5]
    assert seen == [0, 1, 2, 3, 4]
    assert [names for _, names in published] == [[f"t{n}" for n in range(1, m)] for m in range(2, 7)]
    assert all(step == 2 for step, _ in published)
    await quorum.close()


async def test_nothing_is_visible_before_it_is_synced(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    real, during = quorum.log.sync, []

    def sync() -> None:
        during.append(len(quorum.image.topics))
        real()

    monkeypatch.setattr(quorum.log, "sync", sync)
    await write(quorum, topic("a", 1))
    assert during == [0]
    assert len(quorum.image.topics) == 1
    await quorum.submit(lambda _: Decision(None))
    assert during == [0], "a decision without records needs no sync"
    await quorum.close()


async def test_a_failed_disk_fails_every_submit_and_changes_nothing(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))

    def sync() -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(quorum.log, "sync", sync)
    before = quorum.image
    for _ in range(2):
        with pytest.raises(ControllerError, match="disk is gone"):
            await write(quorum, topic("a", 1))
    assert quorum.image is before


async def test_a_full_disk_refuses_what_does_not_fit_and_nothing_else(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    real, full = quorum.log.log.writer.append, [True]

    def append(data: bytes, **how: Any) -> Any:
        if full[0]:
            return AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, error_message="no space left")
        return real(data, **how)

    monkeypatch.setattr(type(quorum.log.log.writer), "append", lambda _, data, **how: append(data, **how))
    before = quorum.image
    with pytest.raises(ControllerError, match="no space left"):
        await write(quorum, topic("a", 1))
    assert quorum.image is before
    full[0] = False
    await write(quorum, topic("b", 2))
    assert [t.name for t in quorum.image.topics] == ["b"]
    monkeypatch.undo()
    again, _ = await started(node, config)
    assert [t.name for t in again.image.topics] == ["b"]


async def test_a_driver_that_contradicts_itself_takes_nothing_more(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    failures: list[str] = []
    quorum.on_failure = failures.append
    refused = AppendResult(ErrorCode.CORRUPT_MESSAGE, error_message="no batch")
    monkeypatch.setattr(type(quorum.log.log.writer), "append", lambda *_, **__: refused)
    for name in ("a", "b"):
        with pytest.raises(ControllerError, match="refused a batch") as error:
            await write(quorum, topic(name, 1))
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(failures) == 1
    assert isinstance(node.defects.first, AssertionError)
    node.defects.count -= 1


async def test_a_change_that_fits_by_half_leaves_no_trace(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several batches, a disk that is full after the first, and a sync under way."""
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    real, room = quorum.log.log.writer.append, [2]

    def append(_: object, data: bytes, **how: Any) -> Any:
        room[0] -= 1
        if room[0] < 0:
            return AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, error_message="no space left")
        return real(data, **how)

    monkeypatch.setattr(type(quorum.log.log.writer), "append", append)
    monkeypatch.setattr(proposals, "data_batches", partial(data_batches, max_bytes=200))
    first = quorum.submit(lambda _: Decision(None, topic("a", 1, 0)))
    with pytest.raises(ControllerError, match="no space left"):
        await write(quorum, topic("b", 2, 9))
    await first
    assert names_of(quorum.image) == ["a"]
    assert quorum.log.end_offset == quorum.raft.log.end_offset == quorum.image.offset + 1
    room[0] = 99
    await write(quorum, topic("c", 3, 9))
    await quorum.close()
    monkeypatch.undo()
    again, _ = await started(node, config)
    assert names_of(again.image) == ["a", "c"]
    await again.close()


async def test_a_listener_that_fails_holds_up_nobody(node: PosixNode, tmp_path: Path) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    seen: list[int] = []

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    quorum.on_image(broken)
    quorum.on_image(lambda _old, new, _delta: seen.append(len(new.topics)))
    await write(quorum, topic("a", 1))
    assert seen == [1]
    assert isinstance(node.defects.first, ZeroDivisionError)
    node.defects.count -= 1


async def test_a_decision_that_raises_fails_alone(node: PosixNode, tmp_path: Path) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))

    def broken(_: ClusterImage) -> Decision[None]:
        raise ZeroDivisionError

    results = await asyncio.gather(quorum.submit(broken), write(quorum, topic("a", 1)), return_exceptions=True)
    assert isinstance(results[0], ZeroDivisionError)
    assert [t.name for t in quorum.image.topics] == ["a"]
    await quorum.close()


class SlowSync:
    """Syncs of a quorum that end when they are let; `started` counts those that began."""

    def __init__(self, quorum: QuorumDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = 0
        self._has_begun = asyncio.Event()
        self._go_on = threading.Semaphore(0)
        real, loop = quorum.log.sync, asyncio.get_running_loop()

        def sync() -> None:
            self.started += 1
            loop.call_soon_threadsafe(self._has_begun.set)
            assert self._go_on.acquire(timeout=30)
            real()

        monkeypatch.setattr(quorum.log, "sync", sync)

    def let(self, syncs: int) -> None:
        self._go_on.release(syncs)

    async def begins(self) -> None:
        await self._has_begun.wait()


def names_of(image: ClusterImage) -> list[str]:
    return [each.name for each in image.topics]


def creates(name: str, number: int, seen: list[list[str]]) -> Callable[[ClusterImage], Decision[str]]:
    def decide(image: ClusterImage) -> Decision[str]:
        seen.append(names_of(image))
        return Decision(name, topic(name, number))

    return decide


async def test_decisions_go_on_while_a_sync_is_under_way_and_nobody_hears_of_them(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    slow = SlowSync(quorum, monkeypatch)
    seen: list[list[str]] = []
    one = quorum.submit(creates("a", 1, seen))
    await slow.begins()
    two = quorum.submit(creates("b", 2, seen))
    asks = quorum.submit(lambda image: Decision(names_of(image)))
    assert seen == [[], ["a"]]
    assert names_of(quorum.image) == [] and not one.done()
    slow.let(1)
    assert await one == "a"
    assert names_of(quorum.image) == ["a"]
    assert not two.done() and not asks.done(), "what a decision saw is not told before it is committed"
    slow.let(1)
    assert (await two, await asks) == ("b", ["a", "b"])
    assert slow.started == 2
    assert names_of(quorum.image) == ["a", "b"]
    await quorum.close()


async def test_what_is_not_committed_is_reverted_when_the_lead_is_lost(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    slow = SlowSync(quorum, monkeypatch)
    seen: list[list[str]] = []
    before = quorum.image
    decided = [quorum.submit(creates("a", 1, seen)), quorum.submit(creates("b", 2, seen))]
    await slow.begins()
    quorum.resign()
    decided.append(quorum.submit(creates("c", 3, seen)))
    for each in decided:
        with pytest.raises(ControllerError) as refused:
            await each
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert seen == [[], ["a"]]
    slow.let(9)
    await quorum.close()
    assert quorum.image is before


async def test_no_more_decisions_wait_than_the_bound_says(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "UNCOMMITTED_MAX", 2)
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    slow = SlowSync(quorum, monkeypatch)
    seen: list[list[str]] = []
    waiting = [quorum.submit(creates("a", 1, seen)), quorum.submit(creates("b", 2, seen))]
    with pytest.raises(ControllerError) as refused:
        await quorum.submit(creates("c", 3, seen))
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    slow.let(9)
    assert [await each for each in waiting] == ["a", "b"]
    await quorum.close()


async def test_whoever_asked_may_be_gone(node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    asked = quorum.submit(lambda _: Decision(None, topic("a", 1)))
    asked.cancel()
    await write(quorum, topic("b", 2))
    assert names_of(quorum.image) == ["a", "b"]
    await quorum.close()
    with pytest.raises(ControllerError) as refused:
        await write(quorum, topic("c", 3))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_what_a_snapshot_replaces_is_removed_on_a_worker(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    threads: list[str] = []
    real = Segment.remove_files

    def remove_files(segment: Segment) -> None:
        threads.append(threading.current_thread().name)
        real(segment)

    monkeypatch.setattr(Segment, "remove_files", remove_files)
    await write(quorum, topic("a", 1, 50))
    await quorum.snapshot()
    assert threads and all(name.startswith("headrace") for name in threads)
    directory = tmp_path / "data" / "__cluster_metadata-0"
    assert not list(directory.glob("*.deleted"))
    await write(quorum, topic("b", 2))
    await quorum.close()


async def test_epochs_that_fall_are_damage(node: PosixNode, tmp_path: Path) -> None:
    """A batch's leader epoch lies outside its checksum."""
    config = config_of(tmp_path / "data")
    for _ in range(2):
        quorum, _ = await started(node, config)
        await quorum.close()
    log = tmp_path / "data" / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    last = max(at for at, _ in iter_headers(bytes(data)))
    data[last + 12 : last + 16] = (1).to_bytes(4, "big")
    log.write_bytes(data)
    with pytest.raises(StorageError, match="epoch 1 follows epoch 2"):
        open_quorum(node, config)


async def test_a_snapshot_replaces_the_log_before_it(node: PosixNode, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    await write(quorum, topic("a", 1, 50))
    await quorum.snapshot()
    end = quorum.image.offset + 1
    await write(quorum, topic("b", 2))
    directory = tmp_path / "data" / "__cluster_metadata-0"
    assert [p.name for p in directory.glob("*.checkpoint")] == [snapshot_name(end, quorum.epoch)]
    assert [p.name for p in directory.glob("*.log")] == [f"{end:020d}.log"]
    image = quorum.image
    await quorum.close()
    again, _ = await started(node, config)
    assert same_state(again.image, image)
    assert again.kraft_version == 1
    assert [voter.id for voter in again.voters] == [1]
    await again.close()


async def test_snapshots_come_by_themselves(node: PosixNode, tmp_path: Path) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    quorum._snapshots._policy = SnapshotPolicy(max_new_bytes=2000)
    for number in range(1, 20):
        await write(quorum, topic(f"t{number}", number, 5))
    await quorum.close()
    snapshots = quorum.log.files.ends()
    assert len(snapshots) == 1
    assert snapshots[0].offset > 50


async def test_a_torn_tail_is_cut(node: PosixNode, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    await write(quorum, topic("a", 1))
    image = quorum.image
    log = tmp_path / "data" / "__cluster_metadata-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[-70:-5])
    again, _ = await started(node, config)
    assert same_state(again.image, image)
    await again.close()


async def test_damage_in_the_middle_is_refused(node: PosixNode, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    await write(quorum, topic("a", 1))
    middle = quorum.log.log.size_bytes() - 20
    await write(quorum, topic("b", 2))
    await quorum.close()
    log = tmp_path / "data" / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[middle] ^= 1
    log.write_bytes(data)
    with pytest.raises(StorageError, match="damaged at byte .* was synced up to offset") as refused:
        open_quorum(node, config)
    offset = re.search(r"byte \d+, offset (\d+)", str(refused.value))
    assert offset is not None
    remedy = metadata_remedy(str(log.parent), int(offset[1]))
    assert str(refused.value).endswith(remedy), "what `headrace log verify` says of it too"
    assert log.read_bytes() == data, "nothing is touched"


async def test_a_static_quorum_has_no_voters_in_its_files(node: PosixNode, tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": "1@127.0.0.1:9093",
    }
    config = BrokerConfig.load({"log.dirs": str(tmp_path / "data"), **settings})
    quorum, _ = await started(node, config)
    assert quorum.kraft_version == 0
    assert quorum.voters[0].endpoints[0].port == 9093
    directory = tmp_path / "data" / "__cluster_metadata-0"
    assert b'"data_version":0' in (directory / "quorum-state").read_bytes()
    assert not list(directory.glob("*.checkpoint"))
    await quorum.snapshot()
    await quorum.close()
    again, _ = await started(node, config)
    assert again.kraft_version == 0
    await again.close()


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([mr.FeatureLevelRecord(name=METADATA_VERSION, feature_level=31)], "metadata.version is at level 31"),
        ([mr.FeatureLevelRecord(name=METADATA_VERSION, feature_level=6)], "serves 3.3-IV3 to 4.3-IV0"),
        (
            [mr.AccessControlEntryRecord(id=b"a" * 16, principal="User:x", resource_name="t")],
            "ACLs are stored .*User:x on t",
        ),
        (
            [
                mr.TopicRecord(name="far", topic_id=b"f" * 16),
                mr.PartitionRecord(partition_id=0, topic_id=b"f" * 16, replicas=[1, 2], isr=[1], leader=1),
            ],
            r"far-0 has replicas on other brokers: \[2\]",
        ),
    ],
    ids=["newer", "older", "acls", "replicas elsewhere"],
)
async def test_what_one_node_cannot_serve_is_refused_by_name(
    node: PosixNode, tmp_path: Path, records: list[Any], reason: str
) -> None:
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    await write(quorum, records)
    await quorum.close()
    with pytest.raises(StorageError, match=reason):
        open_quorum(node, config)


async def test_directories_must_agree(node: PosixNode, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    await started(node, config_of(one))
    await started(node, config_of(two))
    with pytest.raises(StorageError, match="belongs to cluster"):
        open_quorum(node, config_of(one, two))
    with pytest.raises(StorageError, match="belongs to node 1, but node.id is 5"):
        open_quorum(node, config_of(one, node_id="5"))
    with pytest.raises(StorageError, match=f"or the first of log.dirs .*: set metadata.log.dir={one}"):
        open_quorum(node, config_of(tmp_path / "new", one))
    with pytest.raises(StorageError, match=f"{tmp_path}/new is not formatted.*, restore it from a copy"):
        (one / "__cluster_metadata-0").rename(tmp_path / "lost")
        open_quorum(node, config_of(tmp_path / "new", one))
    (tmp_path / "lost").rename(one / "__cluster_metadata-0")
    (one / "meta.properties").write_text("version=0\n")
    with pytest.raises(StorageError, match="its version is 0"):
        open_quorum(node, config_of(one))


async def test_the_metadata_may_have_a_directory_of_their_own(node: PosixNode, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data", metadata_log_dir=str(tmp_path / "metadata"))
    quorum, layout = await started(node, config)
    assert set(layout.directory_ids) == {str(tmp_path / "data"), str(tmp_path / "metadata")}
    assert quorum.image.brokers[1].directories == (layout.directory_ids[str(tmp_path / "data")],)
    assert (tmp_path / "metadata" / "__cluster_metadata-0").is_dir()
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()
    await write(quorum, topic("a", 1))
    with pytest.raises(StorageError, match="in use by another broker"):
        open_quorum(node, config)
    await quorum.close()
    again, _ = await started(node, config)
    assert [t.name for t in again.image.topics] == ["a"]
    await again.close()


async def test_a_new_directory_beside_an_old_one_is_formatted(node: PosixNode, tmp_path: Path) -> None:
    _, before = await started(node, config_of(tmp_path / "one"))
    _, after = await started(node, config_of(tmp_path / "one", tmp_path / "two"))
    assert after.directory_ids[str(tmp_path / "one")] == before.directory_ids[str(tmp_path / "one")]
    assert len(set(after.directory_ids.values())) == 2
    assert decode_meta_properties((tmp_path / "two" / "meta.properties").read_bytes()).cluster_id == after.cluster_id


async def test_a_snapshot_without_footer_is_refused(node: PosixNode, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data")
    open_quorum(node, config)
    path = tmp_path / "data" / "__cluster_metadata-0" / snapshot_name(0, 0)
    path.write_bytes(path.read_bytes()[:166])
    with pytest.raises(StorageError, match="no footer"):
        open_quorum(node, config)


@pytest.mark.parametrize("text", ["", "version=1\nnode.id=x\ncluster.id=c", "version=1\nnode.id=1"])
def test_broken_meta_properties_are_an_error(text: str) -> None:
    with pytest.raises(MetaPropertiesError):
        decode_meta_properties(text.encode())


def test_snapshot_names() -> None:
    assert snapshot_name(173, 2) == "00000000000000000173-0000000002.checkpoint"
    assert parse_snapshot_name(snapshot_name(173, 2)) == (173, 2)
    for other in ("bootstrap.checkpoint", f"{snapshot_name(1, 1)}.part", "leader-epoch-checkpoint", "a-b.checkpoint"):
        assert parse_snapshot_name(other) is None


async def test_a_lone_voter_that_hears_of_a_later_epoch_leads_again(node: PosixNode, tmp_path: Path) -> None:
    """A stray candidate costs it an election, and what is decided after that comes true."""
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    await write(quorum, topic("a", 1))
    epoch = quorum.epoch
    stray = VoteRequest(epoch + 7, ReplicaKey(9), quorum.raft.me, Position(epoch, 1 << 40), False)
    answer, _ = await quorum.requested(stray)
    assert answer.epoch == epoch + 7
    with pytest.raises(ControllerError):
        await write(quorum, topic("b", 2))
    await until(lambda: quorum.decides)
    assert quorum.epoch > epoch + 7
    await write(quorum, topic("c", 3))
    assert [each.name for each in quorum.image.topics] == ["a", "c"]
    await quorum.close()
    again, _ = await started(node, config_of(tmp_path / "data"))
    assert same_state(again.image, quorum.image)
    await again.close()
