"""The batch that ends a transaction, to the byte."""

from __future__ import annotations

import pytest

from headrace.wire.batch import read_header
from headrace.wire.markers import ABORT, COMMIT, EndMarker, build_marker, read_marker
from headrace.wire.records import Record, decode_batch


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
