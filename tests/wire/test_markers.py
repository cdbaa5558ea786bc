"""The batch that ends a transaction, to the byte."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.wire.batch import read_header
from headrace.wire.markers import ABORT, COMMIT, EndMarker, build_marker, marker_of, read_marker
from headrace.wire.records import Record, build_batch, decode_batch


@pytest.mark.parametrize(("committed", "kind"), [(False, ABORT), (True, COMMIT)])
def test_it_says_how_a_transaction_ends(committed: bool, kind: int) -> None:
    batch = build_marker(EndMarker(7, 3, 258, committed), 1_700_000_000_000)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (7, 3, -1, 1)
    assert header.is_control and header.is_transactional
    (record,) = decode_batch(batch)
    assert record.key == bytes([0, 0, 0, kind]) and record.value == bytes([0, 0, 0, 0, 1, 2])
    assert read_marker(record) == (kind, 258)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, bytes(6)), (bytes(4), None), (bytes(3), bytes(6)), (bytes(4), bytes(5)), (b"\0\0\0\2", bytes(6))],
)
def test_other_control_records_are_none(key: bytes | None, value: bytes | None) -> None:
    assert read_marker(Record(0, 0, key, value)) is None


@pytest.mark.parametrize("more", [{}, {"compression": 1}, {"log_append_time": 9_000}])
@pytest.mark.parametrize("headers", [[], [("h", b"v")]])
def test_a_marker_is_read_whatever_its_batch_looks_like(more: dict[str, Any], headers: list[tuple[str, bytes]]) -> None:
    plain = decode_batch(build_marker(EndMarker(7, 3, 258, True), 5_000))[0]
    record = Record(0, 5_000, plain.key, plain.value, headers)
    batch = build_batch([record], producer_id=7, producer_epoch=3, transactional=True, control=True, **more)
    assert marker_of(read_header(batch), batch) == (COMMIT, 258, more.get("log_append_time", 5_000))
