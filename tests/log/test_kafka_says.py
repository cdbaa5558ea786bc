"""Apache Kafka's DumpLogSegments reads what our logs leave, and says what is in it and whether it is sound."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log.cleaning import clean
from peers.kafka import kafka_tool

from headrace.log import cleaner
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.sim.workloads.log_crash import StillClock
from headrace.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, seal_batch, unsealed

pytestmark = pytest.mark.jvm

NOW_MS = 1_700_000_000_000
SMALL = {"segment_bytes": 3000, "index_interval_bytes": 300}


def dump(*arguments: str, files: list[Path]) -> str:
    said = kafka_tool("org.apache.kafka.tools.DumpLogSegments", *arguments, "--files", ",".join(map(str, files)))
    return str(getattr(said, "stdout", said))


def test_segments_and_their_indexes_agree(open_at: Callable[..., Log], append: Any, make_batch: Any) -> None:
    log = open_at(SMALL)
    for index in range(60):
        append(log, *[b"%d" % index] * (index % 3 + 1), timestamp=NOW_MS + index * 7 % 50, compression=index % 5)
    for index in range(20):
        append(log, b"v", producer_id=77, producer_epoch=2, base_sequence=index)
    log.close()
    folder = Path(log.directory)
    files = sorted(path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".snapshot"))
    assert len(log.segments) > 2
    said = dump("--deep-iteration", files=files)
    for problem in ("Mismatches in", "Non-secutive", "Could not find", "not found", "out of order", "isvalid: false"):
        assert problem not in said, said
    base_offsets = [int(found) for found in re.findall(r"baseOffset: (\d+)", said)]
    assert base_offsets[0] == 0 and len(base_offsets) == 80
    assert f"lastOffset: {log.end_offset - 1}" in said
    assert re.search(r"producerId: 77 producerEpoch: 2", said)
    indexes = [path for path in files if path.suffix == ".index"]
    assert dump("--index-sanity-check", files=indexes).count("passed sanity check.") == len(indexes)


def test_aborted_transactions(open_at: Callable[..., Log], append: Any) -> None:
    log = open_at()
    append(log, b"t", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    key, value = b"\0\0\0\0", b"\0\0\0\0\0\3"
    record = bytes([0, 0, 0, len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\0"
    marker = seal_batch(
        unsealed(bytes([len(record) * 2]) + record),
        record_count=1,
        last_offset_delta=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
        producer_id=5,
        producer_epoch=0,
    )
    log.writer.append(marker, leader_epoch=0, now_ms=NOW_MS, origin="coordinator")
    log.close()
    folder = Path(log.directory)
    said = dump("--deep-iteration", files=[folder / f"{0:020d}.txnindex", folder / f"{0:020d}.log"])
    assert re.search(r"producerId: 5 firstOffset: 0 lastOffset: 1 lastStableOffset: 2", said), said
    assert re.search(r"endTxnMarker: ABORT coordinatorEpoch: 3", said), said


def test_a_compacted_segment(open_at: Callable[..., Log], append: Any) -> None:
    log = open_at({**SMALL, "cleanup_policy": frozenset({"compact"})})
    for index in range(60):
        append(log, None if index == 59 else b"%d" % index, key=b"k%d" % (index % 7), compression=index % 5)
    append(log, b"p", key=b"k1", producer_id=9, producer_epoch=0, base_sequence=0)
    append(log, b"q", key=b"k1")
    log.writer.roll(now_ms=NOW_MS)
    log.flush()
    found = cleaner.candidate(log, None, log.end_offset, NOW_MS)
    assert found is not None

    replaced: list[Segment] = []
    clean(found, NOW_MS, cleaner.CleanerThrottle(StillClock(), 1e12, lambda: False), replaced.extend)
    for segment in replaced:
        segment.remove_files()
    log.close()
    files = [Path(segment.path) for segment in log.segments]
    said = dump("--deep-iteration", "--print-data-log", files=files)
    assert "isvalid: false" not in said and "Mismatches" not in said
    assert re.search(rf"deleteHorizonMs: (OptionalLong\[)?{NOW_MS + 86_400_000}", said), said
    offsets = [int(found) for found in re.findall(r"\| offset: (\d+)", said)]
    assert offsets == [53, 54, 55, 56, 58, 59, 61]
    assert re.search(r"baseOffset: 60 lastOffset: 60 count: 0 .*producerId: 9", said), said
