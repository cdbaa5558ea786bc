"""Records of consumer groups: what is written is what is read, in Apache Kafka's bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.consumer.records import (
    ConsumerRecord,
    CurrentAssignment,
    Kind,
    Member,
    MemberState,
    Resolved,
    Value,
)
from headrace.groups.modern.epochs import AssignmentEpoch, GroupEpoch
from headrace.groups.records import decode, encode
from headrace.wire.messages.newer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from headrace.wire.primitives import DecodeError

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
MAYBE = st.none() | TEXT
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC_IDS = st.binary(min_size=16, max_size=16)
PARTITIONS = st.dictionaries(TOPIC_IDS, st.frozensets(INT32, min_size=1, max_size=5), max_size=3)
HELD = st.dictionaries(TOPIC_IDS, st.dictionaries(INT32, INT32, min_size=1, max_size=5), max_size=3)
CLASSIC = st.builds(
    ClassicMemberMetadata, INT32, st.lists(st.builds(ClassicProtocol, TEXT, st.binary(max_size=9)), max_size=2)
)
VALUES: dict[Kind, st.SearchStrategy[Value]] = {
    Kind.EPOCH: st.builds(GroupEpoch, INT32, INT64),
    Kind.PARTITION_METADATA: st.binary(),
    Kind.MEMBER: st.builds(
        Member, MAYBE, MAYBE, TEXT, TEXT, st.frozensets(TEXT, max_size=3), TEXT, INT32, MAYBE, st.none() | CLASSIC
    ),
    Kind.TARGET_EPOCH: st.builds(AssignmentEpoch, INT32, INT64),
    Kind.TARGET: PARTITIONS,
    Kind.CURRENT: st.builds(CurrentAssignment, INT32, INT32, st.sampled_from(list(MemberState)), HELD, HELD),
    Kind.REGEX: st.builds(Resolved, st.frozensets(TEXT, max_size=3), INT64, INT64),
}
OF_THE_GROUP = (Kind.EPOCH, Kind.PARTITION_METADATA, Kind.TARGET_EPOCH)


@st.composite
def records(draw: st.DrawFn) -> ConsumerRecord:
    kind = draw(st.sampled_from(Kind))
    name = "" if kind in OF_THE_GROUP else draw(TEXT)
    return ConsumerRecord(draw(TEXT), kind, name, draw(st.none() | VALUES[kind]))


@given(records())
def test_what_is_written_is_read(record: ConsumerRecord) -> None:
    assert decode(*encode(record)) == record


def test_a_state_of_a_newer_release_is_unknown() -> None:
    key, value = encode(ConsumerRecord("g", Kind.CURRENT, "m", CurrentAssignment()))
    assert value is not None
    record = decode(key, value[:10] + b"\x07" + value[11:])
    assert isinstance(record, ConsumerRecord) and record.value == CurrentAssignment(state=MemberState.UNKNOWN)


def test_without_assignment_epochs_the_members_own_stands_in() -> None:
    """Releases before 4.2 wrote none."""
    key, _ = encode(ConsumerRecord("g", Kind.CURRENT, "m", None))
    has = ConsumerGroupCurrentMemberAssignmentTopicPartitions(bytes(16), [0, 4], None)
    said = ConsumerGroupCurrentMemberAssignmentValue(5, 4, 0, [has], [])
    record = decode(key, b"\x00\x00" + said.encode(0))
    assert isinstance(record, ConsumerRecord)
    assert record.value == CurrentAssignment(5, 4, MemberState.STABLE, {bytes(16): {0: 5, 4: 5}})


def test_partitions_and_epochs_that_are_not_as_many_are_refused() -> None:
    key, _ = encode(ConsumerRecord("g", Kind.CURRENT, "m", None))
    has = ConsumerGroupCurrentMemberAssignmentTopicPartitions(bytes(16), [0, 4], [1])
    with pytest.raises(DecodeError, match="2 partitions have 1 assignment epochs"):
        decode(key, b"\x00\x00" + ConsumerGroupCurrentMemberAssignmentValue(5, 4, 0, [has], []).encode(0))


def test_a_version_that_nobody_knows_is_refused() -> None:
    key, value = encode(ConsumerRecord("g", Kind.EPOCH, "", GroupEpoch(1)))
    assert value is not None
    with pytest.raises(DecodeError, match="version 1"):
        decode(key, b"\x00\x01" + value[2:])


@given(st.sampled_from(Kind), st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_garbage_is_refused(kind: Kind, key: bytes, value: bytes | None) -> None:
    try:
        decode(kind.to_bytes(2, "big") + key, value)
    except DecodeError:
        pass
