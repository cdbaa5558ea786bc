"""Batches of coordinators: how many records each has, and how it is compressed."""

from __future__ import annotations

import pytest

from headrace.machine.batches import build_coordinator_batch
from headrace.wire.batch import read_header
from headrace.wire.records import Compression, decode_batch

PAIRS = [(b"key%d" % at, b"value" * 20) for at in range(10)]


@pytest.mark.parametrize("producer", [None, (7, 3)])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD, Compression.LZ4])
def test_a_batch_is_compressed_as_it_is_asked_for(codec: Compression, producer: tuple[int, int] | None) -> None:
    batch = build_coordinator_batch(PAIRS, 5, codec, producer)
    header = read_header(batch)
    assert header.attributes & 7 == codec
    assert [(record.key, record.value) for record in decode_batch(batch)] == PAIRS
    assert (header.producer_id, header.producer_epoch) == (producer or (-1, -1))
    assert header.is_transactional is (producer is not None)
