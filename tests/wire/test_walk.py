"""The walks over the batches of a log, and over records for compaction. `tests/tools/test_wheel.py` runs this for what
is not compiled too."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.plain import plain

from headrace.wire import _walk
from headrace.wire._codec import encode_records
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


WALKS = [_walk, plain("_walk")]


def keys(slots: int, first: int = 1, second: int = 2) -> array[int]:
    """An empty map."""
    return array("Q", [first, second, 0] + [0] * (3 * slots))


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (9, "264499060ad9baabc47f8b02bb6d71ed"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (16, "6ee2a4ca67b054bbfd3315bf85230577"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ],
)
def test_a_key_is_held_as_its_siphash(walk: ModuleType, size: int, digest: str) -> None:
    """As OpenSSL computes it: key 00..0f, input 00, 01, 02 and so on, 16 bytes."""
    secret = bytes(range(16))
    first, second = (int.from_bytes(secret[at : at + 8], "little") for at in (0, 8))
    body = bytes(encode_records([Record(0, 0, bytes(range(size)), b"v")], None, 0))
    table, found = keys(1, first, second), array("q", (0, 0))
    assert walk.take_keys(body, 0, len(body), 41, 0, 1, table, found) == len(body)
    assert b"".join(word.to_bytes(8, "little") for word in table[3:5]).hex() == digest
    assert list(table[2:3]) + list(table[5:]) == [1, 42] and list(found) == [1, 41]


@given(st.data())
def test_the_walks_of_compaction_agree_on_anything(data: st.DataObject) -> None:
    """Compiled and plain: what they return, what they write, and that they stay inside."""
    records = data.draw(
        st.lists(
            st.builds(
                Record,
                timestamp=st.sampled_from([0, 1, 2**40, -(2**62)]),
                key=st.one_of(st.none(), st.binary(max_size=9)),
                value=st.one_of(st.none(), st.binary(max_size=3)),
                headers=st.lists(st.tuples(st.text(max_size=2), st.none()), max_size=1),
            ),
            max_size=6,
        )
    )
    body = bytearray(encode_records(records, None, 0))
    for _ in range(data.draw(st.integers(0, 2)) if body else 0):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    at = data.draw(st.sampled_from([0, 0, 0, 1, len(body) + 1]))
    end = len(body) - data.draw(st.sampled_from([0, 0, 0, 1, -1]))
    base = data.draw(st.sampled_from([0, 3, 2**63 - 2]))
    start, stop = data.draw(st.integers(0, 5)), data.draw(st.sampled_from([0, 4, 2**62]))
    room, shift = data.draw(st.integers(1, 7)), data.draw(st.sampled_from([0, 1, -(2**40)]))
    tombstones = data.draw(st.booleans())
    outcomes = []
    for walk in WALKS:
        table, found = keys(8), array("q", bytes(40))
        said = [walk.take_keys(body, at, end, base, start, room, table, found)]
        said += [*table, *found]
        size = walk.retain(body, at, end, base, stop, tombstones, shift, table, None, found)
        said += [size, *found]
        if size > 0:
            out = bytearray(size + 1)
            into = memoryview(out)[:size]
            assert walk.retain(body, at, end, base, stop, tombstones, shift, table, into, found) == size
            assert out[size] == 0
            said += [*out, *found]
        grown = keys(20)
        walk.move_keys(table, grown)
        outcomes.append([*said, *grown])
    assert outcomes[0] == outcomes[1]
