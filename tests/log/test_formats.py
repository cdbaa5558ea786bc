"""The formats around the segments, byte by byte: names, checkpoints, indexes."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from threading import RLock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.env.posix import PosixDisk
from headrace.log import checkpoints, filenames, transaction_index
from headrace.log.checkpoints import CheckpointError
from headrace.log.epochs import LeaderEpochs
from headrace.log.offset_index import IndexCache, OffsetIndex, TimeIndex
from headrace.log.scan import Scan

TOPICS = st.text(alphabet="abcXYZ019._-", min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))


@given(topic=TOPICS, partition=st.integers(0, 2**31 - 1))
def test_folder_names_are_parsed_back(topic: str, partition: int) -> None:
    assert filenames.parse_directory_name(filenames.directory_name(topic, partition)) == (topic, partition, "")
    for make, state in (
        (filenames.delete_directory_name, "-delete"),
        (filenames.future_directory_name, "-future"),
        (filenames.stray_directory_name, "-stray"),
    ):
        name = make(topic, partition, bytes(range(16)))
        parsed = filenames.parse_directory_name(name)
        assert parsed is not None and parsed[1:] == (partition, state) and topic.startswith(parsed[0])
        assert len(name) <= 255


@pytest.mark.parametrize("name", ["", "-0", "t", "t-", "t-x", "t-99999999999", "t-0-delete-", ".lock", "t-١"])
def test_other_names_are_no_partitions(name: str) -> None:
    assert filenames.parse_directory_name(name) is None


def test_segment_names() -> None:
    assert filenames.offset_name(42, filenames.TIME_INDEX) == "00000000000000000042.timeindex"
    assert filenames.parse_offset_name("00000000000000000042.snapshot", ".snapshot") == 42
    assert filenames.parse_offset_name("00000000000000000042-0000000007.checkpoint", ".checkpoint") is None
    assert filenames.parse_offset_name("00000000000000000042.log.deleted", ".log") is None


def test_checkpoints() -> None:
    offsets = {("b", 1): 7, ("a", 10): 0, ("a", 2): 2**62}
    data = checkpoints.encode_offsets(offsets)
    assert data == b"0\n3\na 2 4611686018427387904\na 10 0\nb 1 7\n"
    assert checkpoints.decode_offsets("x", data) == offsets
    assert checkpoints.encode_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    for bad in (b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na b c\n", b"\xff\xfe"):
        with pytest.raises(CheckpointError):
            checkpoints.decode_offsets("x", bad)
    assert checkpoints.decode_clean_shutdown(b"") == -1
    assert checkpoints.decode_clean_shutdown(checkpoints.encode_clean_shutdown(9)) == 9


@given(st.integers(-1, 2**63 - 1))
def test_the_clean_shutdown_file_is_read_back(broker_epoch: int) -> None:
    assert checkpoints.decode_clean_shutdown(checkpoints.encode_clean_shutdown(broker_epoch)) == broker_epoch


@given(st.binary(max_size=60))
def test_any_clean_shutdown_file_is_read(data: bytes) -> None:
    assert isinstance(checkpoints.decode_clean_shutdown(data), int)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"brokerEpoch":1e999}', b"[]", b"7", b"{}"], ids=lambda d: d[:30])
def test_a_clean_shutdown_file_of_another_form_has_no_epoch(data: bytes) -> None:
    assert checkpoints.decode_clean_shutdown(data) == -1


def test_partition_metadata() -> None:
    data = checkpoints.encode_partition_metadata(bytes(range(16)))
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.decode_partition_metadata("x", data + b"\n") == bytes(range(16))
    with pytest.raises(CheckpointError):
        checkpoints.decode_partition_metadata("x", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw")


def test_leader_epochs(tmp_path: Path) -> None:
    epochs = LeaderEpochs(PosixDisk(), str(tmp_path))
    for epoch, offset in ((1, 0), (2, 10), (2, 15), (5, 20), (6, 20), (7, 30)):
        epochs.assign(epoch, offset)
    assert epochs.entries() == [(1, 0), (2, 10), (6, 20), (7, 30)]
    assert [epochs.epoch_at(offset) for offset in (0, 9, 10, 25, 99)] == [1, 1, 2, 6, 7]
    assert epochs.end_offset_for(7, 44) == (7, 44)
    assert epochs.end_offset_for(4, 44) == (2, 20)
    assert epochs.end_offset_for(0, 44) == (0, 0)
    assert epochs.end_offset_for(8, 44) == (-1, -1)
    epochs.truncate_from_start(12)
    assert epochs.entries() == [(2, 12), (6, 20), (7, 30)]
    epochs.truncate_from_end(30)
    epochs.write(durable=True)
    again = LeaderEpochs(PosixDisk(), str(tmp_path))
    again.load()
    assert again.entries() == [(2, 12), (6, 20)]


@given(gaps=st.lists(st.tuples(st.integers(1, 100), st.integers(61, 10_000)), max_size=80), data=st.data())
def test_the_offset_index_finds_the_last_entry_at_or_below(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    path = str(tmp_path_factory.mktemp("index") / "0.index")
    index = OffsetIndex(PosixDisk(), path, IndexCache(RLock()))
    entries: list[tuple[int, int]] = []
    offset = position = 0
    for more, size in gaps:
        offset, position = offset + more, position + size
        index.append(offset, position)
        entries.append((offset, position))
        if data.draw(st.booleans()):
            index.write_out()
    for wanted in data.draw(st.lists(st.integers(0, offset + 10), max_size=10)):
        expected = max((p for o, p in entries if o <= wanted), default=0)
        assert index.lookup(wanted) == expected
    index.file_to_sync().close()
    assert Path(path).read_bytes() == b"".join(struct.pack(">ii", *entry) for entry in entries)
    again = OffsetIndex(PosixDisk(), path, IndexCache(RLock()))
    again.load(position + 1)
    assert len(again) == len(entries) and again.last == index.last
    cut = data.draw(st.integers(0, offset + 1))
    again.truncate(cut)
    assert [entry >> 32 for entry in again.entries()] == [o for o, _ in entries if o < cut]


def test_an_index_that_points_beyond_its_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(struct.pack(">iiii", 5, 100, 9, 200))
    with pytest.raises(ValueError, match="beyond the log"):
        OffsetIndex(PosixDisk(), str(path), IndexCache(RLock())).load(150)


def test_the_time_index(tmp_path: Path) -> None:
    index = TimeIndex(PosixDisk(), str(tmp_path / "0.timeindex"))
    for timestamp, offset in ((100, 3), (100, 5), (90, 6), (120, 8)):
        index.maybe_append(timestamp, offset)
    assert index.entries() == [(100, 3), (120, 8)]
    assert [index.lookup(t) for t in (99, 100, 119, 120, 500)] == [(-1, 0), (100, 3), (100, 3), (120, 8), (120, 8)]
    index.file_to_sync().close()
    assert (tmp_path / "0.timeindex").read_bytes() == struct.pack(">qiqi", 100, 3, 120, 8)
    with (tmp_path / "0.timeindex").open("ab") as file:
        file.write(bytes(1200))
    again = TimeIndex(PosixDisk(), index.path)
    again.load()
    assert again.entries() == [(100, 3), (120, 8)] and again.last_timestamp == 120


def test_the_transaction_index() -> None:
    entries = [transaction_index.AbortedTransaction(7, 1, 5, 3), transaction_index.AbortedTransaction(8, 3, 9, 10)]
    data = transaction_index.encode(entries)
    assert data[:34] == struct.pack(">hqqqq", 0, 7, 1, 5, 3)
    assert transaction_index.decode("x", data + b"\0" * 5) == entries
    with pytest.raises(transaction_index.TransactionIndexError):
        transaction_index.decode("x", data[34:] + data[:34])


def test_a_scan_stops_at_anything_that_is_no_batch(tmp_path: Path) -> None:
    from headrace.wire.records import Record, build_batch

    rng = random.Random(5)
    good = [build_batch([Record(0, 0, None, bytes(size), [])]) for size in (10, 70_000, 500, 3)]
    whole = b"".join(good)
    file = PosixDisk().open(str(tmp_path / "f"), create=True)
    file.append([whole])
    for read_bytes in (61, 1000, 1 << 20):
        scan = Scan(file, 0, len(whole), read_bytes=read_bytes)
        assert [bytes(data) for _, _, data in scan] == good and scan.problem is None
    for _ in range(200):
        at = rng.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        file.write_at(0, damaged)
        scan = Scan(file, 0, len(whole))
        seen = [bytes(data) for _, _, data in scan]
        first_bad = next(index for index in range(4) if at < sum(map(len, good[: index + 1])))
        within = at - sum(map(len, good[:first_bad]))
        if within < 8 or 12 <= within < 16:
            continue  # base offset and leader epoch are not covered by the checksum
        assert seen == good[:first_bad] and scan.problem


@pytest.mark.parametrize("zeros", [0, 3])
def test_a_torn_partition_metadata_is_told_from_a_damaged_one(zeros: int) -> None:
    whole = checkpoints.encode_partition_metadata(bytes(range(16)))
    for size in range(len(whole)):
        assert checkpoints.is_torn_partition_metadata(whole[:size] + bytes(zeros))
    for damaged in (b"garbage\n", whole, whole + b"x", b"version: 1\ntopic_id: ", whole[:15] + b"?", b"\xff"):
        assert not checkpoints.is_torn_partition_metadata(damaged + bytes(zeros))
