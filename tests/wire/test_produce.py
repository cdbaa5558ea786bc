"""The loops over plain Produce requests: what is compiled does what the Python file does, and no more than is plain.
`tests/tools/test_wheel.py` runs this for what is not compiled too."""

from __future__ import annotations

import sys
from array import array
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.wire
from headrace.wire import _produce
from headrace.wire._walk import largest_timestamp
from headrace.wire.checksum import crc32c
from headrace.wire.records import Record, build_batch

LATEST = 10_000
MOST = 400
CHECKED_FROM = 21
CRC_AT = 17


def uncompiled() -> ModuleType:
    """The Python file, whatever was compiled."""
    path = Path(headrace.wire.__file__).parent / "_produce.py"
    spec = spec_from_file_location("uncompiled_produce", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


PLAIN = uncompiled()
FORMS = pytest.mark.parametrize("form", [_produce, PLAIN], ids=["built", "python"])


def writable(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


def batch(count: int = 1, size: int = 10, **fields: Any) -> bytes:
    return bytes(build_batch([Record(0, 1000 + n, None, b"x" * size, []) for n in range(count)], **fields))


def signed(data: bytes) -> bytes:
    """With the checksum that belongs to it."""
    return data[:CRC_AT] + crc32c(data[CHECKED_FROM:]).to_bytes(4, "big") + data[CHECKED_FROM:]


def checked(form: ModuleType, chunks: list[memoryview], offset: int = 7, position: int = 90) -> tuple[int, list[int]]:
    count = len(chunks)
    found = array("q", bytes(24 * (count + 1)))
    found[0], found[count + 1] = offset, position
    outcome = form.check(chunks, LATEST, MOST, crc32c, found)
    return outcome, list(found) if outcome >= 0 else []


@FORMS
def test_plain_batches(form: ModuleType) -> None:
    one, two = batch(3), batch(2, producer_id=5, producer_epoch=1, base_sequence=8)
    chunks = [writable(one), writable(two)]
    outcome, found = checked(form, chunks)
    assert outcome == 1
    assert found == [7, 10, 12, 90, 90 + len(one), 90 + len(one) + len(two), 1002, 1001, 1002]
    form.stamp(chunks, array("q", found), 77)
    for chunk, data, offset in ((chunks[0], one, 7), (chunks[1], two, 10)):
        assert bytes(chunk[:8]) == offset.to_bytes(8, "big")
        assert bytes(chunk[8:12]) == data[8:12]
        assert bytes(chunk[12:16]) == (77).to_bytes(4, "big")
        assert bytes(chunk[16:]) == data[16:]
    assert checked(form, [writable(one)])[0] == 0


@FORMS
@pytest.mark.parametrize(
    ("at", "value"),
    [
        (7, b"\1"), (8, b"\1"), (16, b"\1"), (CRC_AT, b"\0\0\0\0"), (22, b"\x08"), (22, b"\x10"), (22, b"\x20"),
        (22, b"\x40"), (22, b"\5"), (23, b"\0\0\0\5"), (27, b"\0" * 8), (35, b"\xff" * 8),
        (35, b"\0" * 5 + b"\xff" * 3),
        (43, b"\0" * 8), (57, b"\0\0\0\0"), (57, b"\xff" * 4), (61, b"\0"), (65, b"\x7f"),
    ],
)  # fmt: skip
def test_what_is_not_plain(form: ModuleType, at: int, value: bytes) -> None:
    data = batch()
    changed = data[:at] + value + data[at + len(value) :]
    if at > CHECKED_FROM:
        changed = signed(changed)
    assert checked(form, [writable(data), writable(changed)])[0] == form.NOT_PLAIN


@FORMS
def test_what_is_no_place_for_a_plain_batch(form: ModuleType) -> None:
    data = batch()
    assert checked(form, [memoryview(data)])[0] == form.NOT_PLAIN, "it may not be written to"
    assert checked(form, [bytearray(data)])[0] == form.NOT_PLAIN  # type: ignore[list-item]
    assert checked(form, [writable(data[:60])])[0] == form.NOT_PLAIN
    assert checked(form, [writable(b"")])[0] == form.NOT_PLAIN
    assert checked(form, [writable(batch(1, MOST))])[0] == form.NOT_PLAIN
    found = array("q", bytes(24))
    assert form.check([writable(data)], LATEST, MOST, crc32c, found) == form.NOT_PLAIN, "there is no room"


@given(st.data())
def test_what_is_compiled_checks_as_python_does(data: st.DataObject) -> None:
    one = bytearray(batch(data.draw(st.integers(1, 4)), data.draw(st.integers(0, 50)), compression=0))
    for _ in range(data.draw(st.integers(0, 2))):
        one[data.draw(st.integers(0, len(one) - 1))] = data.draw(st.integers(0, 255))
    cut = one[: data.draw(st.integers(0, len(one)))] if data.draw(st.booleans()) else one
    if len(cut) > CHECKED_FROM:
        cut = bytearray(signed(bytes(cut)))
    built = checked(_produce, [writable(bytes(cut))])
    assert built == checked(PLAIN, [writable(bytes(cut))])
    if built[0] >= 0:
        count, base = int.from_bytes(cut[57:61], "big"), int.from_bytes(cut[27:35], "big", signed=True)
        assert built[1][1] - 7 == count
        if not cut[22] & 7:
            assert largest_timestamp(cut, 61, len(cut), count, base) == built[1][-1]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@given(
    st.lists(st.binary(max_size=6), min_size=2, max_size=5),
    st.integers(0, 3),
    st.data(),
)
def test_records_between_gaps(gaps: list[bytes], before: int, data: st.DataObject) -> None:
    width = len(gaps) - 1
    records = [
        bytes(data.draw(st.binary(min_size=1, max_size=2))) * data.draw(st.integers(30, 5000)) for _ in range(width)
    ]
    frame = bytearray(before) + gaps[0]
    for one, gap in zip(records, gaps[1:], strict=True):
        frame += varint(len(one) + 1) + one + gap
    end = len(frame)
    frame += b"behind"
    forbidden = data.draw(st.sampled_from([0, 0x10, 0xFF]))
    if data.draw(st.booleans()):
        frame[data.draw(st.integers(before, end - 1))] ^= 1 << data.draw(st.integers(0, 7))
    end += data.draw(st.sampled_from([0, 0, 0, -1, 1, 100]))
    places = array("q", bytes(16 * width))
    outcomes = []
    for form in (_produce, PLAIN):
        chunks: list[list[memoryview]] = [[] for _ in range(width)]
        outcomes.append((form.records_of(memoryview(frame), before, end, gaps, forbidden, places, chunks), chunks))
    assert outcomes[0] == outcomes[1]
    found, chunks = outcomes[0]
    assert [len(each) for each in chunks] == [int(found)] * width, "all or nothing"
    if found:
        rebuilt = gaps[0]
        for (chunk,), gap in zip(chunks, gaps[1:], strict=True):
            assert len(chunk) >= 61
            assert not chunk[22] & forbidden
            rebuilt += varint(len(chunk) + 1) + bytes(chunk) + gap
        assert rebuilt == frame[before:end]


@FORMS
def test_lengths_that_lead_nowhere(form: ModuleType) -> None:
    places = array("q", bytes(16))
    for length in (b"", b"\x80", b"\x80" * 4, b"\xff" * 4 + b"\1", b"\xff\xff\xff\x7f", b"\0", b"\1"):
        chunks: list[list[memoryview]] = [[]]
        frame = memoryview(b"a" + length + bytes(70))
        assert not form.records_of(frame, 0, 1 + len(length), [b"a", b""], 0, places, chunks)
        assert not form.records_of(frame, 0, len(frame), [b"a", b""], 0, places, chunks)
        assert chunks == [[]]
    good = memoryview(b"a" + varint(71) + bytes(70))
    assert form.records_of(good, 0, len(good), [b"a", b""], 0, places, [[]])
    bad: Any
    for bad in (
        (good, -1, len(good), [b"a", b""], 0, places, [[]]),
        (good, 0, len(good) + 1, [b"a", b""], 0, places, [[]]),
        (good, 0, len(good), [b"a"], 0, places, [[]]),
        (good, 0, len(good), [b"a", b""], 0, places[:1], [[]]),
    ):
        assert not form.records_of(*bad)


@FORMS
def test_numbers_into_a_block(form: ModuleType) -> None:
    block = bytearray(b"." * 40)
    form.put(block, 2, 12, 3, 8, array("q", [9, 1, -2, 3]), 1)
    form.put(block, 34, 0, 1, 4, array("q", [0x01020304]), 0)
    numbers = [(1).to_bytes(8, "big"), b"\xff" * 7 + b"\xfe", (3).to_bytes(8, "big")]
    assert block == b".." + b"....".join(numbers) + b"\1\2\3\4" + b".."
    form.put(block, 100, 12, 0, 8, array("q"), 0)
    for at, step, count, first in ((33, 1, 1, 0), (0, 20, 3, 0), (0, 8, 2, 3), (-1, 1, 1, 0)):
        with pytest.raises(AssertionError):
            form.put(block, at, step, count, 8, array("q", [0, 0, 0, 0]), first)
