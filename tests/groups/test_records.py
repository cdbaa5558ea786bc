"""The coordinator's records against the generated codecs, bytes that Kafka wrote, and bytes that nobody wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.records import (
    GroupRecord,
    Offset,
    OffsetRecord,
    StoredGroup,
    UnservedRecord,
    decode,
    encode,
    encode_offset,
    encode_offset_generally,
    encode_offset_key,
)
from headrace.wire.messages.group_records import MemberMetadata, OffsetCommitKey
from headrace.wire.primitives import DecodeError

TEXT = st.text(st.characters(codec="utf-8"), max_size=80)
OFFSETS = st.builds(
    Offset,
    position=st.integers(-(2**63), 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(st.characters(codec="utf-8"), max_size=200),
    committed_ms=st.integers(-1, 2**62),
    topic_id=st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
)


@given(TEXT, TEXT, st.integers(0, 2**31 - 1), OFFSETS)
def test_offsets_written_by_hand_are_those_of_the_codec(group: str, topic: str, partition: int, offset: Offset) -> None:
    key = encode_offset_key(group, topic, partition)
    assert key == b"\x00\x01" + OffsetCommitKey(group, topic, partition).encode(0)
    assert encode_offset(offset) == encode_offset_generally(offset)
    assert decode(*encode(OffsetRecord(group, topic, partition, offset))) == OffsetRecord(
        group, topic, partition, offset
    )


@given(TEXT, OFFSETS, st.integers(0, 2**62))
def test_an_expiry_of_the_clients_own_takes_version_1(group: str, offset: Offset, expires_ms: int) -> None:
    offset.expires_ms = expires_ms
    key, value = encode(OffsetRecord(group, "t", 0, offset))
    assert value is not None and value[:2] == b"\x00\x01"
    read = decode(key, value)
    assert isinstance(read, OffsetRecord) and read.offset is not None
    assert (read.offset.position, read.offset.expires_ms) == (offset.position, expires_ms)


def test_a_generation_survives() -> None:
    member = MemberMetadata("m-1", "i", "client", "/127.0.0.1", 60_000, 10_000, b"subscribed", b"assigned")
    stored = StoredGroup("consumer", 7, "range", "m-1", 1_700_000_000_000, [member])
    key, value = encode(GroupRecord("g", stored))
    assert value is not None and value[:2] == b"\x00\x03"
    assert decode(key, value) == GroupRecord("g", stored)
    assert decode(key, None) == GroupRecord("g", None)


@pytest.mark.parametrize(
    ("value", "offset"),
    [
        # Version 0 and 3 as older releases wrote them.
        ("0000000000000000002a00016d0000018bcfe56800", Offset(42, -1, "m", 1_700_000_000_000)),
        ("0003000000000000002a0000000500016d0000018bcfe56800", Offset(42, 5, "m", 1_700_000_000_000)),
    ],
)
def test_older_offset_values(value: str, offset: Offset) -> None:
    record = decode(encode_offset_key("g", "t", 1), bytes.fromhex(value))
    assert record == OffsetRecord("g", "t", 1, offset)


def test_legacy_keys_name_the_same_partition() -> None:
    key = b"\x00\x00" + encode_offset_key("g", "t", 1)[2:]
    assert decode(key, None) == OffsetRecord("g", "t", 1, None)


def test_records_of_newer_groups_keep_their_bytes() -> None:
    key, value = b"\x00\x0a\x00\x01g\x00\x01m", b"\x00\x00anything"
    record = decode(key, value)
    assert record == UnservedRecord("g", 10, key, value)
    assert record is not None and encode(record) == (key, value)


def test_what_nobody_knows_is_skipped() -> None:
    assert decode(b"\x03\xe7rest", b"\x00\x00") is None


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_garbage_is_refused_or_skipped(key: bytes, value: bytes | None) -> None:
    try:
        decode(key, value)
    except DecodeError:
        pass


@given(st.integers(0, 23), st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_garbage_of_a_known_type_is_refused(kind: int, key: bytes, value: bytes | None) -> None:
    try:
        decode(kind.to_bytes(2, "big") + key, value)
    except DecodeError:
        pass
