"""The metadata log on disk: what cannot be read is said in one line that names the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.broker.quorum.metadata_start import open_quorum
from headrace.broker.storage.storage_format import StorageError, snapshot_name
from headrace.config import BrokerConfig
from headrace.env.posix_node import PosixNode
from headrace.metadata.batches import data_batches
from headrace.metadata.framing import encode_record
from headrace.metadata.replay import Replay
from headrace.raft.control import ControlType, control_key
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import TopicRecord
from headrace.wire.records import Record, build_batch


@pytest.mark.parametrize(
    "key", [b"", b"\0\0\0", control_key(ControlType.SNAPSHOT_HEADER)], ids=["none", "short", "whole"]
)
async def test_a_control_record_that_cannot_be_read_names_the_snapshot(tmp_path: Path, key: bytes) -> None:
    config = BrokerConfig.load({"log.dirs": str(tmp_path)})
    node = PosixNode()
    open_quorum(node, config)
    path = tmp_path / "__cluster_metadata-0" / snapshot_name(0, 0)
    path.write_bytes(build_batch([Record(0, 0, key, b"\0", [])], control=True))
    with pytest.raises(StorageError, match="cannot be read") as refused:
        open_quorum(node, config)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)
    await node.close()


@pytest.mark.parametrize("max_bytes", [1, 200, 70_000, 1 << 20])
async def test_a_read_that_ends_within_a_batch_goes_on_with_it(tmp_path: Path, max_bytes: int) -> None:
    """A controller that creates a topic of thousands of partitions writes one batch of them."""
    config = BrokerConfig.load({"log.dirs": str(tmp_path)})
    node = PosixNode()
    quorum, _ = open_quorum(node, config)
    log, first = quorum.log, quorum.log.end_offset
    records = (TopicRecord(name=f"t{number}", topic_id=bytes(14) + number.to_bytes(2)) for number in range(2000))
    topics = [encode_record(record, 0) for record in records]
    for values in (topics[:1], topics[1:2], topics[2:1999], topics[1999:]):
        for batch in data_batches(values, base_offset=log.end_offset, leader_epoch=quorum.epoch, timestamp_ms=0):
            done = log.log.writer.append(batch, leader_epoch=quorum.epoch, now_ms=0, origin="controller")
            assert done.error is ErrorCode.NONE
    offset, reads = first, 0
    while offset < log.end_offset:
        reads += 1
        offset = log.apply(Replay(quorum.image), offset, log.end_offset, max_bytes, 1 << 30)
    assert reads <= 4
    await node.close()


@pytest.mark.parametrize("end", [1, 2, 4], ids=["at-a-batch", "within-a-batch", "at-the-end"])
@pytest.mark.parametrize("newer", [0, 1], ids=["own", "leaders"])
async def test_a_log_that_goes_on_from_another_leaders_records_gives_way(tmp_path: Path, newer: int, end: int) -> None:
    """A deposed leader has loaded the snapshot of the next one, and dies before its own log is cut: what is behind the
    snapshot's end was never committed. A snapshot of its own leaves the log as it is."""
    config = BrokerConfig.load({"log.dirs": str(tmp_path)})
    node = PosixNode()
    quorum, _ = open_quorum(node, config)
    log, first = quorum.log, quorum.log.end_offset
    topics = [encode_record(TopicRecord(name=f"t{n}", topic_id=bytes(15) + bytes([n])), 0) for n in range(1, 5)]
    for values in (topics[:1], topics[1:]):
        for batch in data_batches(values, base_offset=log.end_offset, leader_epoch=quorum.epoch, timestamp_ms=0):
            done = log.log.writer.append(batch, leader_epoch=quorum.epoch, now_ms=0, origin="controller")
            assert done.error is ErrorCode.NONE
    begins = log.log.log_start_offset
    image = replace(quorum.image, offset=first + end - 1, epoch=quorum.epoch + newer)
    log.files.write(image, quorum.sets.newest, 0)
    log.log.flush()
    again, _ = open_quorum(node, config)
    assert again.log.log.log_start_offset == (first + end if newer else begins)
    await node.close()
