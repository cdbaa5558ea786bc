"""Varints, ids and runs of numbers, at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import uuids
from headrace.wire.primitives import (
    DecodeError,
    EncodeError,
    pack_int8s,
    pack_int16s,
    pack_int32s,
    pack_int64s,
    pack_uuids,
    read_int8s,
    read_int16s,
    read_int32s,
    read_int64s,
    read_uuids,
    read_varint,
    skip_tags,
    string_varint,
    varint,
)


@given(number=st.integers(0, 2**32 - 1))
def test_varints(number: int) -> None:
    encoded = varint(number)
    assert read_varint(b"?" + encoded, 1) == (number, 1 + len(encoded))


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001"), (2**32 - 1, "ffffffff0f")],
)
def test_varints_by_hand(number: int, encoded: str) -> None:
    assert varint(number).hex() == encoded


@pytest.mark.parametrize("encoded", ["ffffffffff01", "ffffffff1f", "808080808000"])
def test_varints_of_more_than_32_bits(encoded: str) -> None:
    with pytest.raises(DecodeError):
        read_varint(bytes.fromhex(encoded), 0)


@given(numbers=st.lists(st.integers(-128, 127), max_size=40))
def test_runs(numbers: list[int]) -> None:
    for pack, read in (
        (pack_int8s, read_int8s),
        (pack_int16s, read_int16s),
        (pack_int32s, read_int32s),
        (pack_int64s, read_int64s),
    ):
        assert read(b"?" + pack(numbers), 1, len(numbers)) == numbers


def test_ids() -> None:
    ids = [bytes(range(16)), uuids.ZERO]
    assert read_uuids(pack_uuids(ids), 0, 2) == ids
    with pytest.raises(DecodeError):
        read_uuids(bytes(31), 0, 2)
    with pytest.raises(EncodeError):
        pack_uuids([b"short"])


@given(one=st.binary(min_size=16, max_size=16))
def test_text_of_ids(one: bytes) -> None:
    text = uuids.to_text(one)
    assert len(text) == 22
    assert uuids.from_text(text) == one


def test_text_of_ids_by_hand() -> None:
    assert uuids.to_text(uuids.ZERO) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuids.to_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    for wrong in ("", "A" * 21, "A" * 23, "A" * 21 + "=", "A" * 21 + "é"):
        with pytest.raises(ValueError, match="not an id"):
            uuids.from_text(wrong)


def test_too_many_tags() -> None:
    with pytest.raises(DecodeError, match="tagged fields"):
        skip_tags(b"\x4f" + bytes(50_000), 0, 0x91)


def test_a_string_of_too_many_bytes() -> None:
    assert string_varint(32_768) == varint(32_768)
    with pytest.raises(EncodeError, match="too long"):
        string_varint(32_769)
