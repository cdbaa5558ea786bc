"""The walk over the batches of a log. `tests/tools/test_wheel.py` runs this for what is not compiled too."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import _walk
from headrace.wire.records import Record, build_batch


def log_of(sizes: list[int], gaps: list[int]) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Batches one after the other, and of each (base offset, next offset, where it begins)."""
    data = bytearray()
    offset = 0
    places = []
    for size, gap in zip(sizes, gaps, strict=True):
        offset += gap
        one = bytearray(build_batch([Record(0, 1, None, b"x" * size, [])] * (1 + size % 3)))
        one[:8] = offset.to_bytes(8, "big")
        places.append((offset, offset + 1 + size % 3, len(data)))
        data += one
        offset = places[-1][1]
    return bytes(data), places


@given(st.data())
def test_batches(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    sizes = data.draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    log, places = log_of(sizes, gaps)
    size = data.draw(st.integers(27, len(log)))
    below = data.draw(st.integers(0, places[-1][1] + 2))
    found = array("q", (0, 0, 0))
    given = _walk.batches(memoryview(log), size, below, found)
    assert given >= 0
    whole = [(base, after, at) for base, after, at in places if base < below]
    ends = [*[at for _, _, at in places[1:]], len(log)]
    fitting = [index for index in range(len(whole)) if ends[index] <= size]
    assert found[0] == (ends[fitting[-1]] if fitting else 0)
    assert found[1] == (places[fitting[-1]][1] if fitting else -1)
    if len(whole) == len(places):
        cut = len(fitting) < len(places) and found[1] >= below
        assert given == (found[0] if cut else size)
    else:
        assert given <= max(min(size, places[len(whole)][2] + 26), found[0])


def test_what_is_no_batch() -> None:
    found = array("q", (0, 0, 0))
    assert _walk.batches(bytes(100), 100, 5, found) == _walk.MALFORMED
    assert _walk.batches(bytes(10), 10, 5, found) == _walk.MALFORMED
    assert _walk.batches(bytes(30), 40, 5, found) == _walk.MALFORMED
    negative = (-1).to_bytes(8, "big", signed=True) + (50).to_bytes(4, "big") + bytes(50)
    assert _walk.batches(negative, len(negative), 5, found) == 62
    assert list(found) == [62, 0, 62]
