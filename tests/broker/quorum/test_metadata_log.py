"""The metadata log on disk: what cannot be read is said in one line that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker.quorum.metadata_start import open_quorum
from headrace.broker.storage.storage_format import StorageError, snapshot_name
from headrace.config import BrokerConfig
from headrace.env.posix_node import PosixNode
from headrace.raft.control import ControlType, control_key
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
