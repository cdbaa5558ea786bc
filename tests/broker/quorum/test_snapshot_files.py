"""Snapshots as files: pieces become a snapshot only when they are whole, and old ones go by Kafka's rule."""

from __future__ import annotations

import random

import pytest

from headrace.broker.quorum.snapshot_files import SnapshotFiles
from headrace.broker.quorum.snapshots import SnapshotPolicy, oldest_kept
from headrace.broker.storage.storage_format import StorageError
from headrace.metadata.image import ClusterImage, Features
from headrace.raft.events import Piece
from headrace.raft.messages import Position
from headrace.raft.voter_set import VoterSet
from headrace.sim.disk import SimDisk

END = Position(3, 20)
IMAGE = ClusterImage(cluster_id="c", offset=19, epoch=3, timestamp_ms=77, features=Features({"metadata.version": 30}))


def directory() -> tuple[SimDisk, SnapshotFiles, bytes]:
    """An empty directory, and the bytes of a snapshot of `IMAGE`."""
    disk = SimDisk(random.Random(1))
    disk.make_dirs("/data/there")
    disk.make_dirs("/data/here")
    files = SnapshotFiles(disk, "/data/there")
    files.write(IMAGE, VoterSet(kraft_version=0), 5)
    disk.sync_directory("/data")
    return disk, SnapshotFiles(disk, "/data/here"), disk.read_file(files.path(END))


def test_pieces_become_a_snapshot_that_a_crash_leaves() -> None:
    disk, files, data = directory()
    assert files.store(Piece(END, 0, data[:50], False), "c") is None
    assert files.ends() == []
    content = files.store(Piece(END, 50, data[50:], True), "c")
    assert content is not None and (content.end, content.image) == (END, IMAGE)
    disk.crash()
    assert files.ends() == [END] and files.read(END, "c").image == IMAGE
    assert files.last_record_ms(END) == 77
    assert files.piece(END, 10, 20) == (data[10:30], len(data))


@pytest.mark.parametrize("at", [20, 70, -1])
def test_damage_never_gets_a_name(at: int) -> None:
    _, files, data = directory()
    damaged = bytearray(data)
    damaged[at] ^= 1
    for bad in (bytes(damaged), data[:-1], data[: len(data) // 2], data + b"x"):
        with pytest.raises(StorageError):
            files.store(Piece(END, 0, bad, True), "c")
        assert files.ends() == []
    assert files.store(Piece(END, 0, data, True), "c") is not None, "it begins again"


def test_a_piece_that_does_not_follow_is_refused() -> None:
    _, files, data = directory()
    files.store(Piece(END, 0, data[:50], False), "c")
    with pytest.raises(StorageError, match="has 50 bytes, and byte 60 follows"):
        files.store(Piece(END, 60, data[60:], True), "c")


def test_parts_are_removed_and_nothing_else() -> None:
    disk, files, data = directory()
    files.store(Piece(END, 0, data[:50], False), "c")
    files.store(Piece(Position(1, 10), 0, data, True), "c")
    disk.write_file("/data/here/mine.part", b"")
    files.remove_parts()
    assert disk.list("/data/here") == ["00000000000000000010-0000000001.checkpoint", "mine.part"]


@pytest.mark.parametrize(
    ("policy", "held", "now_ms", "start"),
    [
        (SnapshotPolicy(retention_bytes=-1, retention_ms=-1), 10**9, 10**15, 0),
        (SnapshotPolicy(retention_bytes=10_000, retention_ms=-1), 100, 10**15, 0),
        (SnapshotPolicy(retention_bytes=0, retention_ms=-1), 100, 0, 30),
        (SnapshotPolicy(retention_bytes=-1, retention_ms=100), 0, 150, 20),
        (SnapshotPolicy(retention_bytes=-1, retention_ms=100), 0, 10**6, 30),
    ],
    ids=["no bound", "small", "large", "one is old", "all are old"],
)
def test_the_log_begins_where_the_oldest_snapshot_ends_that_is_kept(
    policy: SnapshotPolicy, held: int, now_ms: int, start: int
) -> None:
    _, files, _ = directory()
    for offset in (10, 20, 30):
        image = ClusterImage(offset=offset - 1, epoch=1, timestamp_ms=offset * 4, features=IMAGE.features)
        files.write(image, VoterSet(kraft_version=0), 5)
    newest = Position(1, 30)
    assert oldest_kept(files, policy, Position(0, 0), newest, held, now_ms).offset == start
    assert oldest_kept(files, policy, newest, newest, held, now_ms) == newest, "it never goes back"


def test_a_log_never_begins_behind_its_own_snapshot() -> None:
    _, files, _ = directory()
    for offset in (10, 20, 500):
        image = ClusterImage(offset=offset - 1, epoch=1, timestamp_ms=1, features=IMAGE.features)
        files.write(image, VoterSet(kraft_version=0), 5)
    nothing = SnapshotPolicy(retention_bytes=0)
    assert oldest_kept(files, nothing, Position(0, 0), Position(1, 20), 0, 0) == (1, 20), "500 is the leader's"
