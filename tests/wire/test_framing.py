"""Every framing of every codec: what is stored is what Apache Kafka's reader reads, and what is read is no less."""

from __future__ import annotations

import gzip
import random

import pytest
from wire import framings
from wire.framings_read import READ

from headrace.wire.records import Compression, CorruptBatch, decompress, opened_size

ROWS = framings.rows()
WIDER = {(Compression.LZ4, name) for name in ("linked", "marked linked", "dictionary", "skippable first")}
"""What only we read."""


LIMIT = 4 << 20
"""More than any of the bodies holds; what lies of its size is given all of it."""


def opened(codec: Compression, body: bytes, narrow: bool) -> bool:
    """Whether the body is read, as the records that it was made of."""
    try:
        return bytes(decompress(codec, body, LIMIT, narrow=narrow)) == framings.PLAIN
    except CorruptBatch:
        return False


@pytest.mark.parametrize(("codec", "name"), ROWS)
def test_what_is_stored_and_what_is_read(codec: Compression, name: str) -> None:
    body = ROWS[codec, name]
    assert opened(codec, body, narrow=True) == ((codec, name) in READ)
    assert opened(codec, body, narrow=False) == ((codec, name) in READ or (codec, name) in WIDER)


@pytest.mark.parametrize(("codec", "name"), sorted(READ))
def test_the_size_that_a_body_says_is_an_upper_bound(codec: Compression, name: str) -> None:
    if codec != Compression.GZIP:
        assert opened_size(codec, ROWS[codec, name], 1 << 30) >= len(framings.PLAIN)
    assert len(decompress(codec, ROWS[codec, name], len(framings.PLAIN))) == len(framings.PLAIN)
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, ROWS[codec, name], len(framings.PLAIN) - 1)


def test_streams_of_snappy_that_hold_nothing_are_bounded() -> None:
    empty = framings.xerial(b"")
    assert opened(Compression.SNAPPY, empty * 999 + framings.xerial(framings.PLAIN), narrow=True)
    assert not opened(Compression.SNAPPY, empty * 1001 + framings.xerial(framings.PLAIN), narrow=True)


def test_members_of_gzip_in_pieces_of_any_size() -> None:
    draw = random.Random(7)
    for _ in range(8):
        cuts = sorted(draw.randrange(len(framings.PLAIN)) for _ in range(draw.randrange(8)))
        parts = [framings.PLAIN[a:b] for a, b in zip([0, *cuts], [*cuts, len(framings.PLAIN)], strict=True)]
        assert opened(Compression.GZIP, b"".join(map(gzip.compress, parts)), narrow=True)


def test_noise_of_any_length_inflates_whole() -> None:
    draw = random.Random(8)
    for size in (0, 1, 1023, 1 << 16, 3_000_000):
        data = draw.randbytes(size) + bytes(size)
        assert bytes(decompress(Compression.GZIP, gzip.compress(data))) == data
