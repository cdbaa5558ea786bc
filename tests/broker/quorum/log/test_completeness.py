"""A metadata log that lacks what was synced once: the node that has it does not vote, or does not start; and what a
crash may leave is told apart from damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from broker.controllers import started

from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.log.recovery_point import KEPT_EVERY_SYNCS, PAGE_BYTES, RecoveryPoint
from headrace.broker.quorum.metadata_start import format_storage, open_quorum
from headrace.broker.storage.storage_format import StorageError
from headrace.config import BrokerConfig
from headrace.env.posix import PosixDisk
from headrace.env.posix_node import PosixNode
from headrace.metadata.batches import data_batches
from headrace.metadata.damage import INCOMPLETE_FILE, RECOVERY_POINT_FILE
from headrace.metadata.framing import encode_record
from headrace.raft import events as ev
from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.messages import (
    BeginQuorumEpochRequest,
    Entries,
    FetchResponse,
    Position,
    ReplicaKey,
    VoteRequest,
    VoteResponse,
)
from headrace.raft.quorum_state import QuorumState
from headrace.wire import uuids
from headrace.wire.batch import iter_headers
from headrace.wire.messages.metadata_records import TopicRecord

CLUSTER = uuids.to_text(b"c" * 16)
IDS = {node: bytes([node]) * 16 for node in (1, 2, 3)}


def config_of(root: Path, *, kraft_version: int = 0) -> BrokerConfig:
    """Node 1 of three controllers."""
    others = {"controller.quorum.voters": "1@127.0.0.1:9191,2@127.0.0.1:9192,3@127.0.0.1:9193"}
    if kraft_version:
        others = {"controller.quorum.bootstrap.servers": "127.0.0.1:9192,127.0.0.1:9193"}
    return BrokerConfig.load(
        {
            "node.id": "1",
            "process.roles": "controller",
            "listeners": "CONTROLLER://127.0.0.1:9191",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(root),
            **others,
        }
    )


def formatted(node: PosixNode, root: Path, kraft_version: int = 0) -> BrokerConfig:
    config = config_of(root, kraft_version=kraft_version)
    endpoint = VoterEndpoint("CONTROLLER", "127.0.0.1", 9191)
    voters = [Voter(each, IDS[each], (endpoint._replace(port=9190 + each),)) for each in IDS] if kraft_version else []
    format_storage(node, config, CLUSTER, voters=voters)
    return config


def opened(node: PosixNode, config: BrokerConfig) -> QuorumDriver:
    quorum, _ = open_quorum(node, config)
    return quorum


def topics(count: int, first: int) -> list[bytes]:
    """Batches of one record each, of epoch 1, from an offset on."""
    values = [encode_record(TopicRecord(name=f"t{at}", topic_id=bytes([at + 1]) * 16), 0) for at in range(count)]
    return [
        next(iter(data_batches([value], base_offset=first + at, leader_epoch=1, timestamp_ms=0)))
        for at, value in enumerate(values)
    ]


async def filled(node: PosixNode, config: BrokerConfig, synced: int = 3, unsynced: int = 0) -> None:
    """Node 1 voted in epoch 1 and has some records of its leader's, of which the last ones are not synced; it is gone
    without a word."""
    quorum = opened(node, config)
    version = quorum.kraft_version
    quorum.log.write_quorum_state(QuorumState(2, 1, 2, IDS[2] if version else bytes(16), (), version), version)
    for at, data in enumerate(topics(synced + unsynced, quorum.log.end_offset)):
        if at == synced:
            quorum.log.sync()
        quorum.log.append(Entries(quorum.log.end_offset, 1, 1, data), 0)
    if not unsynced:
        quorum.log.sync()
    release(quorum)


def release(quorum: QuorumDriver) -> None:
    if quorum.lock is not None:
        quorum.lock.release()


def segment(root: Path) -> Path:
    return root / "__cluster_metadata-0" / f"{0:020d}.log"


def empty_files(root: Path) -> None:
    """What an operator leaves that empties the log, and keeps the votes."""
    for file in (root / "__cluster_metadata-0").iterdir():
        if file.name != "quorum-state":
            file.unlink()


def empty_all(root: Path) -> None:
    shutil.rmtree(root / "__cluster_metadata-0")


def empty_as_in_older_releases(root: Path) -> None:
    """Which kept no recovery point."""
    for file in (root / "__cluster_metadata-0").glob("*.log"):
        file.unlink()
    (root / RECOVERY_POINT_FILE).unlink()


def cut(root: Path) -> None:
    """Of the log a copy was restored that is older."""
    data = segment(root).read_bytes()
    first = next(iter(iter_headers(data)))[1]
    segment(root).write_bytes(data[: first.size])


def write_note(root: Path) -> None:
    (root / INCOMPLETE_FILE).write_text("")


@pytest.mark.parametrize("kraft_version", [0, 1])
@pytest.mark.parametrize("harm", [empty_files, empty_all, empty_as_in_older_releases, cut, write_note])
async def test_a_voter_that_lacks_something_does_not_vote(
    node: PosixNode, tmp_path: Path, kraft_version: int, harm: Callable[[Path], None]
) -> None:
    config = formatted(node, tmp_path, kraft_version)
    await filled(node, config)
    harm(tmp_path)
    for _ in range(2):  # and not after another start
        quorum = opened(node, config)
        raft = quorum.raft
        assert (tmp_path / INCOMPLETE_FILE).exists()
        raft.start(0)
        me = ReplicaKey(1, IDS[1] if kraft_version else bytes(16))
        for pre_vote in (True, False):
            asked = VoteRequest(8, ReplicaKey(3), me, Position(7, 90), pre_vote)
            (reply,) = raft.step(ev.Requested("t", asked), 0).reply
            assert isinstance(reply.message, VoteResponse) and not reply.message.granted
        assert not raft.may_campaign
        release(quorum)


@pytest.mark.parametrize("kraft_version", [0, 1])
@pytest.mark.parametrize("stored", [False, True])
async def test_a_first_start_lacks_nothing(node: PosixNode, tmp_path: Path, kraft_version: int, stored: bool) -> None:
    """Also where the power went after the first vote, and before the first record was synced."""
    config = formatted(node, tmp_path, kraft_version)
    if stored:
        await filled(node, config, synced=0)
    quorum = opened(node, config)
    assert quorum.raft.may_campaign and not (tmp_path / INCOMPLETE_FILE).exists()
    release(quorum)


async def test_the_note_goes_when_all_is_there_again(node: PosixNode, tmp_path: Path) -> None:
    config = formatted(node, tmp_path)
    await filled(node, config)
    empty_files(tmp_path)
    quorum = opened(node, config)
    raft = quorum.raft
    raft.start(0)

    def begun(epoch: int) -> ev.Send:
        out = raft.step(ev.Requested("t", BeginQuorumEpochRequest(epoch, 2, ReplicaKey(1))), 0)
        return out.send[-1]

    def answered(fetch: ev.Send, *entries: Entries, mark: int) -> ev.Output:
        return raft.step(ev.Answered(2, fetch.number, FetchResponse(raft.epoch, 2, mark, entries=entries)), 0)

    first, second = topics(1, 0)[0], topics(2, 0)[1]
    # A high watermark of an epoch before the leader's own may be an old one.
    out = answered(begun(3), Entries(0, 1, 1, first), mark=1)
    quorum.log.append(out.append[0], 0)
    quorum.log.sync()
    out = raft.step(ev.Synced(raft.log.last), 0)
    assert not out.is_complete
    later = bytearray(second)
    later[12:16] = (3).to_bytes(4)  # the leader's epoch
    out = answered(out.send[-1], Entries(1, 3, 1, bytes(later)), mark=2)
    assert not out.is_complete, "it is not synced yet"
    quorum.log.append(out.append[0], 0)
    quorum.log.sync()
    out = raft.step(ev.Synced(raft.log.last), 0)
    assert out.is_complete and raft.may_campaign
    release(quorum)


@pytest.mark.parametrize("harm", [empty_files, cut, write_note])
async def test_a_node_that_votes_alone_and_lacks_something_does_not_start(
    node: PosixNode, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    config = BrokerConfig.load({"log.dirs": str(tmp_path)})
    quorum, _ = await started(node, config)
    await quorum.close()
    snapshot = next((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
    kept = snapshot.read_bytes()
    harm(tmp_path)
    snapshot.write_bytes(kept)
    with pytest.raises(StorageError, match="no other node votes: restore it from a copy"):
        open_quorum(node, config)


def zeroed(root: Path, batch: int) -> None:
    """The page of a batch did not reach the disk, and those of later ones did."""
    data = bytearray(segment(root).read_bytes())
    at, header = list(iter_headers(bytes(data)))[batch]
    data[at + 30 : at + header.size] = bytes(header.size - 30)
    segment(root).write_bytes(data)


@pytest.mark.parametrize("missing", [0, 1, 2])
async def test_what_was_not_synced_is_cut_at_its_first_hole(node: PosixNode, tmp_path: Path, missing: int) -> None:
    config = formatted(node, tmp_path)
    await filled(node, config, synced=2, unsynced=3)
    zeroed(tmp_path, 2 + missing)
    quorum = opened(node, config)
    assert quorum.log.end_offset == 2 + missing
    assert quorum.raft.may_campaign, "nobody was told of what is gone"
    release(quorum)


async def test_a_batch_whose_offset_was_not_written_is_cut(node: PosixNode, tmp_path: Path) -> None:
    """Its first bytes lie in a page that did not reach the disk, and no checksum covers them; the next one is lost."""
    config = formatted(node, tmp_path)
    await filled(node, config, synced=2, unsynced=3)
    data = bytearray(segment(tmp_path).read_bytes())
    at, header = list(iter_headers(bytes(data)))[3]
    data[at : at + 8] = bytes(8)
    data[at + header.size :] = bytes(len(data) - at - header.size)
    segment(tmp_path).write_bytes(data)
    quorum = opened(node, config)
    assert quorum.log.end_offset == 3
    release(quorum)


@pytest.mark.parametrize("batch", [0, 1])
async def test_a_hole_in_what_was_synced_is_refused(node: PosixNode, tmp_path: Path, batch: int) -> None:
    """The last batch of it too, behind which nothing sound need follow."""
    config = formatted(node, tmp_path)
    await filled(node, config, synced=2)
    zeroed(tmp_path, batch)
    before = segment(tmp_path).read_bytes()
    with pytest.raises(StorageError, match=rf"offset {batch} .*was synced up to offset 2.*--truncate-at {batch}`"):
        open_quorum(node, config)
    assert segment(tmp_path).read_bytes() == before


async def test_a_cut_that_the_quorum_wants_is_no_loss(node: PosixNode, tmp_path: Path) -> None:
    config = formatted(node, tmp_path)
    await filled(node, config, synced=3)
    quorum = opened(node, config)
    quorum.log.truncate_to(1)
    release(quorum)
    quorum = opened(node, config)
    assert quorum.log.end_offset == 1 and quorum.raft.may_campaign
    quorum.log.start_at(40, 0)
    assert quorum.log.point.offset == 1 and quorum.log.log.recovery_point == 40
    release(quorum)


def test_a_page_that_is_torn_leaves_the_other(tmp_path: Path) -> None:
    disk = PosixDisk()
    point = RecoveryPoint(disk, str(tmp_path))
    assert point.offset is None
    point.reached(0)
    point.reached(7)  # the first records: on stable storage
    point.reached(9)
    point.close()
    file = tmp_path / RECOVERY_POINT_FILE
    whole = file.read_bytes()
    for page, left in ((0, 9), (PAGE_BYTES, 7)):
        file.write_bytes(whole[:page] + b"\xff" * 6 + whole[page + 6 :])
        assert RecoveryPoint(disk, str(tmp_path)).offset == left
    file.write_bytes(bytes(2 * PAGE_BYTES)[:100])
    assert RecoveryPoint(disk, str(tmp_path)).offset is None


def test_it_is_kept_now_and_then(tmp_path: Path) -> None:
    disk = PosixDisk()
    point = RecoveryPoint(disk, str(tmp_path))
    for offset in range(KEPT_EVERY_SYNCS + 1):
        point.reached(offset)
    data = (tmp_path / RECOVERY_POINT_FILE).read_bytes()
    assert int.from_bytes(data[:8]) == KEPT_EVERY_SYNCS - 1
    point.lower(5)
    assert RecoveryPoint(disk, str(tmp_path)).offset == 5
    point.lower(6)
    assert point.offset == 5
