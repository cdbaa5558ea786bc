"""The quorum-state file, and the control records."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.raft.control import (
    ControlType,
    Voter,
    VoterEndpoint,
    control_key,
    decode_control,
    encode_control,
    kraft_version,
    leader_change,
    snapshot_footer,
    snapshot_header,
    voters_record,
)
from headrace.raft.quorum_state import QuorumState, QuorumStateError, decode_quorum_state, encode_quorum_state
from headrace.wire.primitives import DecodeError

# What Apache Kafka 4.3.1 leaves in the file, at kraft.version 1.
KAFKA_WROTE = (
    b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
VOTER = Voter(1, b"d" * 16, (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),))


def test_the_file_is_kafkas_to_the_byte() -> None:
    state = decode_quorum_state(KAFKA_WROTE)
    assert state == QuorumState(leader_id=1, leader_epoch=1)
    assert encode_quorum_state(state, 1) == KAFKA_WROTE


def test_version_0_names_the_voters() -> None:
    state = QuorumState(leader_id=1, leader_epoch=4, voters=(1, 2), data_version=0)
    data = encode_quorum_state(state, 0)
    assert data == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":4,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert decode_quorum_state(data) == state


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"x", b'{"data_version":2}', b'{"data_version":1,"leaderId":"a"}'])
def test_a_broken_file_is_an_error(data: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_quorum_state(data)


INT32 = st.integers(-(2**31), 2**31 - 1)
STATES = st.builds(
    QuorumState,
    leader_id=INT32,
    leader_epoch=INT32,
    voted_id=INT32,
    voted_directory_id=st.binary(min_size=16, max_size=16),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "currentVoters")


@given(state=STATES, voters=st.lists(INT32, max_size=5), version=st.sampled_from([0, 1]))
def test_what_is_written_is_read(state: QuorumState, voters: list[int], version: int) -> None:
    """Data version 0 has no directories, and 1 no voters."""
    if version == 0:
        state = replace(state, voted_directory_id=bytes(16), voters=tuple(voters), data_version=0)
    assert decode_quorum_state(encode_quorum_state(state, version)) == state


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_other_file_is_an_error_by_name(data: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_quorum_state(data)


@given(st.fixed_dictionaries({"data_version": st.sampled_from([0, 1])}, optional=dict.fromkeys(FIELDS, JSON)))
def test_values_of_any_kind_are_read_or_refused_by_name(fields: dict[str, Any]) -> None:
    try:
        assert len(decode_quorum_state(json.dumps(fields).encode()).voted_directory_id) == 16
    except QuorumStateError:
        return


@given(st.text(max_size=30) | st.from_regex(r"[-0-9A-Za-z_]{20,24}", fullmatch=True))
def test_a_directory_is_16_bytes_or_an_error(directory: str) -> None:
    fields = {"leaderId": 1, "leaderEpoch": 1, "votedId": -1, "votedDirectoryId": directory, "data_version": 1}
    try:
        assert len(decode_quorum_state(json.dumps(fields).encode()).voted_directory_id) == 16
    except QuorumStateError:
        return


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, KAFKA_WROTE.replace(b'"leaderId":1', b'"leaderId":1e999')], ids=["deep", "infinite"]
)
def test_a_file_that_python_chokes_on_is_an_error(data: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_quorum_state(data)


@pytest.mark.parametrize(
    "record",
    [leader_change(1, [1], [1]), kraft_version(1), voters_record([VOTER]), snapshot_header(77), snapshot_footer()],
    ids=lambda record: record.type.name,
)
def test_control_records_survive_their_encoding(record: object) -> None:
    assert decode_control(*encode_control(record)) == record  # type: ignore[arg-type]


def test_a_control_record_of_a_later_release_is_left_alone() -> None:
    assert decode_control(control_key(ControlType.COMMIT)[:3] + b"\x63", b"") is None


@given(key=st.binary(max_size=6), value=st.binary(max_size=60))
def test_any_control_record_is_read_or_refused_by_name(key: bytes, value: bytes) -> None:
    for each in (key, *map(control_key, ControlType)):
        try:
            decode_control(each, value)
        except DecodeError:
            continue


@given(data=st.data())
def test_a_mutated_control_record_is_read_or_refused_by_name(data: st.DataObject) -> None:
    record = data.draw(st.sampled_from([leader_change(1, [1, 2], [2]), voters_record([VOTER]), kraft_version(1)]))
    key, value = encode_control(record)
    at = data.draw(st.integers(0, len(value) - 1))
    mutated = value[:at] + data.draw(st.binary(max_size=3)) + value[at + data.draw(st.integers(0, 3)) :]
    try:
        decode_control(key, mutated)
    except DecodeError:
        return


def test_a_leader_writes_who_votes_and_who_voted_for_it() -> None:
    message: Any = leader_change(1, [1, 2, 3], [1, 3]).message
    assert message.leader_id == 1
    assert [each.voter_id for each in message.voters] == [1, 2, 3]
    assert [each.voter_id for each in message.granting_voters] == [1, 3]
