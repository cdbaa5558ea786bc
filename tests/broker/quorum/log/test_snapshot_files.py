"""Snapshots as files: pieces become a snapshot only when they are whole, and old ones go by Kafka's rule."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from headrace.broker.quorum.log import snapshot_files
from headrace.broker.quorum.log.snapshot_files import SnapshotFiles
from headrace.broker.quorum.log.snapshots import SnapshotPolicy, oldest_kept
from headrace.broker.storage.storage_format import SNAPSHOT_BATCH_RECORDS, StorageError
from headrace.metadata.image import ClusterImage, Features, Topic, TopicsImage
from headrace.metadata.snapshot import image_records
from headrace.raft.events import Piece
from headrace.raft.messages import Position
from headrace.raft.voter_set import VoterSet
from headrace.sim.disk import SimDisk, SimFile
from headrace.wire.primitives import Buffer

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


def _many_topics(count: int) -> ClusterImage:
    ids = [number.to_bytes(16, "big") for number in range(1, count + 1)]
    topics = {topic_id: Topic(topic_id.hex(), topic_id, ()) for topic_id in ids}
    return replace(IMAGE, topics=TopicsImage(topics, {topic.name: topic for topic in topics.values()}))


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


def test_a_snapshot_is_written_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    image, written, drawn = _many_topics(10_000), list[tuple[int, int]](), 0
    append = SimFile.append

    def noted(file: SimFile, parts: Sequence[Buffer]) -> int:
        written.append((drawn, sum(map(len, parts))))
        return append(file, parts)

    def counted(each: ClusterImage) -> Iterator[Any]:
        nonlocal drawn
        for record in image_records(each):
            drawn += 1
            yield record

    monkeypatch.setattr(SimFile, "append", noted)
    monkeypatch.setattr(snapshot_files, "image_records", counted)
    monkeypatch.setattr(snapshot_files, "WRITE_BYTES", 50_000)
    _, files, _ = directory()
    del written[:]
    drawn, size = 0, files.write(image, VoterSet(kraft_version=0), 5)
    records = [each for each, _ in written]
    assert files.read(END, "c").image == image
    assert sum(each for _, each in written) == size == files.size(END)
    assert max(after - before for before, after in pairwise([0, *records])) <= 2 * SNAPSHOT_BATCH_RECORDS
    assert max(each for _, each in written) < 150_000, "what it wanted to write, and the end of a batch"


def test_a_snapshot_that_finds_no_room_leaves_it() -> None:
    disk, files, _ = directory()
    disk.room_bytes = before = 40
    with pytest.raises(OSError, match="full"):
        files.write(IMAGE, VoterSet(kraft_version=0), 5)
    assert (disk.list("/data/here"), disk.room_bytes) == ([], before)


def test_a_snapshot_that_a_crash_cut_short_is_written_again() -> None:
    disk, files, data = directory()
    disk.write_file(files.path(END) + ".tmp", b"x" * 1000)
    files.write(IMAGE, VoterSet(kraft_version=0), 5)
    disk.crash()
    assert disk.read_file(files.path(END)) == data


def test_parts_are_removed_and_nothing_else() -> None:
    disk, files, data = directory()
    disk.write_file(files.path(END) + ".tmp", b"x")
    disk.write_file("/data/here/quorum-state.tmp", b"")
    files.store(Piece(END, 0, data[:50], False), "c")
    files.store(Piece(Position(1, 10), 0, data, True), "c")
    disk.write_file("/data/here/mine.part", b"")
    files.remove_parts()
    assert disk.list("/data/here") == [
        "00000000000000000010-0000000001.checkpoint",
        "mine.part",
        "quorum-state.tmp",
    ]


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
