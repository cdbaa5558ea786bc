"""Every message in every version: what is encoded is decoded again, and broken input is refused in one way only."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, fields, is_dataclass, replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from wire.message_values import Choices, message_class, names, plans, value, versions

from headrace.wire.file_slice import FileSlice
from headrace.wire.messages import MODULES, request_class, response_class
from headrace.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsResponse
from headrace.wire.messages.k75_describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from headrace.wire.messages.metadata_records import METADATA_RECORDS, PartitionChangeRecord
from headrace.wire.primitives import DecodeError, EncodeError, varint

FEW = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
CHOICES = st.binary(max_size=400)


@pytest.mark.parametrize("name", names())
@FEW
@given(data=CHOICES)
@example(data=b"")
@example(data=bytes(range(1, 250)))
def test_round_trip_of_every_version(name: str, data: bytes) -> None:
    round_trip(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
@MANY
@given(data=st.binary(max_size=2000))
def test_round_trip_of_every_version_at_length(name: str, data: bytes) -> None:
    round_trip(name, data)


def round_trip(name: str, data: bytes) -> None:
    cls = message_class(name)
    for version in versions(name):
        before = value(name, version, Choices(data))
        encoded = before.encode(version)
        assert cls.decode(encoded, version) == before
        shifted = bytearray(b"\xff\xff\xff" + encoded)
        assert cls.decode(memoryview(shifted), version, 3) == before
        out = bytearray(b"head")
        before.encode_onto(out, version)
        assert out == b"head" + encoded


@pytest.mark.parametrize("name", names())
@FEW
@given(data=CHOICES, cut=st.floats(0, 1, exclude_max=True), noise=st.binary(min_size=3, max_size=3))
def test_broken_input_is_a_decode_error(name: str, data: bytes, cut: float, noise: bytes) -> None:
    broken_input(name, data, cut, noise)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
@MANY
@given(data=CHOICES, cut=st.floats(0, 1, exclude_max=True), noise=st.binary(min_size=3, max_size=3))
def test_broken_input_is_a_decode_error_at_length(name: str, data: bytes, cut: float, noise: bytes) -> None:
    broken_input(name, data, cut, noise)


def broken_input(name: str, data: bytes, cut: float, noise: bytes) -> None:
    cls = message_class(name)
    for version in versions(name):
        whole = value(name, version, Choices(data)).encode(version)
        if not whole:
            continue
        place = int(cut * len(whole))
        with pytest.raises(DecodeError):
            cls.decode(whole[:place], version)
        flipped = bytearray(whole)
        flipped[place] ^= noise[0] | 1
        flipped[-1 - place] = noise[1]
        for attempt in (flipped, bytes(flipped) + noise, data, noise * 9):
            try:
                cls.decode(attempt, version)
            except DecodeError:
                continue


@pytest.mark.parametrize("name", names())
def test_unknown_versions_are_refused(name: str) -> None:
    cls = message_class(name)
    for version in (versions(name)[0] - 1, versions(name)[-1] + 1):
        with pytest.raises(DecodeError, match="has no version"):
            cls.decode(bytes(200), version)
        with pytest.raises(EncodeError, match="has no version"):
            cls().encode(version)


def test_what_a_version_cannot_say() -> None:
    """A field that the version lacks is refused where it is set, unless the schema calls it ignorable."""
    lost = ambiguous = 0
    for name, (_, message) in plans().items():
        for item in message.fields:
            for version in versions(name):
                if item.versions.within(version, version) or item.array or item.is_struct:
                    continue
                made = message_class(name)()
                other = {"string": "set", "uuid": b"u" * 16, "bool": not getattr(made, item.name)}
                setattr(made, item.name, other.get(item.type, 77))
                if item.ignorable:
                    made.encode(version)
                    ambiguous += 1
                else:
                    with pytest.raises(EncodeError, match=f"{item.name} is set, and version {version}"):
                        made.encode(version)
                    lost += 1
    assert lost > 50
    assert ambiguous > 50


def test_null_and_empty_arrays_differ() -> None:
    for version in (1, 8, 9, 13):
        assert MetadataRequest.decode(MetadataRequest(topics=None).encode(version), version).topics is None
        assert MetadataRequest.decode(MetadataRequest(topics=[]).encode(version), version).topics == []
    with pytest.raises(EncodeError, match="topics is null"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(DecodeError):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0)


def test_nullable_struct() -> None:
    absent = DescribeTopicPartitionsRequest(cursor=None)
    given_one = DescribeTopicPartitionsRequest(cursor=Cursor("t", 3))
    assert absent.encode(0).endswith(b"\xff\0")
    assert given_one.encode(0).endswith(b"\x01\x02t\0\0\0\x03\0\0")
    for one in (absent, given_one):
        assert DescribeTopicPartitionsRequest.decode(one.encode(0), 0) == one


def test_unknown_tags_are_skipped_and_the_last_of_a_known_one_counts() -> None:
    """As in Kafka, tags may come in any order and more than once."""
    plain = ApiVersionsResponse(error_code=35, finalized_features_epoch=9).encode(3)
    assert plain.endswith(b"\x01\x01\x08" + bytes(7) + b"\x09")
    body = plain[: -len(b"\x01\x01\x08" + bytes(8))]
    epoch = [b"\x01\x08" + number.to_bytes(8, "big") for number in (5, 6)]
    unknown = varint(900) + varint(200) + b"?" * 200
    read = ApiVersionsResponse.decode(body + b"\x04" + epoch[0] + unknown + epoch[1] + b"\x03\x01\x01", 3)
    assert read.finalized_features_epoch == 6
    assert read.zk_migration_ready
    with pytest.raises(DecodeError):
        ApiVersionsResponse.decode(body + b"\x01" + unknown[:-1], 3)


def test_trailing_bytes_are_ignored() -> None:
    assert ApiVersionsResponse.decode(ApiVersionsResponse().encode(0) + b"more", 0) == ApiVersionsResponse()


@pytest.mark.parametrize(
    ("body", "version", "why"),
    [
        (b"\xff\xff\0\0\0\0\0\0\x7f\xff\xff\xff", 3, "announces 2147483647 elements"),
        (b"\xff\xff\0\0\0\0\0\0\xff\xff\xff\xff", 3, "negative"),
        (b"\xff\xff\0\0\0\0\0\0\0\x0f\x42\x41" + bytes(99), 3, "1000001 elements"),
        (b"\xff\xff\0\0\0\0\0\0\0\0\x01\0" + bytes(99), 3, "256 elements"),
        (b"\0\0\0\0\0\0\0\xff\xff\xff\xff\x0f", 9, "elements"),
        (b"\0\0\0\0\0\0\0\0", 9, "topic_data is null"),
        (b"\0\0\0\0\0\0\0\x02\0\x01\0\0", 9, "topic_data.name is null"),
        (b"\x02\xff\0\0\0\0\0\0\x01\0", 9, "not UTF-8"),
        (b"\xff\xff\xff\xff\xff\x01", 9, "varint"),
        (b"\x05abc", 9, "too early|beyond"),
        (b"\xfe\xff\0\0", 3, "negative length"),
        (b"\0\0\0\0\0\0\0\x01\x91\x4e" + bytes(30_000), 9, "tagged fields"),
        (b"\0\0\0\0\0\0\0\x01\x01\x05\x7f", 9, "tagged field 5"),
        (b"", 9, "too early"),
    ],
)
def test_lies_about_lengths(body: bytes, version: int, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        ProduceRequest.decode(body, version)


def test_nested_counts_are_paid_from_the_same_bytes() -> None:
    """A hundred topics that each announce more partitions than their request has room for."""
    topic = b"\0\x01a" + (90).to_bytes(4, "big")
    body = b"\xff\xff\0\0\0\0\0\0" + (100).to_bytes(4, "big") + topic * 100
    with pytest.raises(DecodeError, match="topic_data.partition_data announces 90 elements"):
        ProduceRequest.decode(body, 3)


class PretendFile:
    """Stands in for a file whose bytes say where they are."""

    def fileno(self) -> int:
        return 9

    def read(self, at: int, size: int) -> bytes:
        return bytes((at + place) % 251 for place in range(size))

    def read_ahead(self, at: int, size: int) -> None:
        raise AssertionError("nothing here is on a disk")


def test_records_are_views_when_read_and_parts_when_written() -> None:
    batch = b"b" * 5000
    request = ProduceRequest(topic_data=[TopicProduceData("t", bytes(16), [PartitionProduceData(0, batch)])])
    parts = request.encode_parts(9)
    assert any(part is batch for part in parts)
    frame = request.encode(9)
    assert b"".join(bytes(part) for part in parts) == frame  # type: ignore[arg-type]
    read = ProduceRequest.decode(frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(read, memoryview)
    assert read.obj is frame
    assert read == batch


@pytest.mark.parametrize("version", range(4, 19))
def test_file_slices_stay_slices(version: int) -> None:
    slices = [FileSlice(PretendFile(), 100 * place, 10 + place) for place in range(3)]
    partitions = [PartitionData(place, records=one) for place, one in enumerate(slices)]
    response = FetchResponse(responses=[FetchableTopicResponse("t", b"i" * 16, partitions)])
    head = bytearray(b"head")
    parts = response.encode_parts(version, head)
    assert parts[0] is head
    assert [part for part in parts if isinstance(part, FileSlice)] == slices
    whole = response.encode(version)
    assert sum(map(len, parts)) == 4 + len(whole)
    read = FetchResponse.decode(whole, version).responses[0].partitions
    assert [bytes(part.records) for part in read] == [one.read() for one in slices]  # type: ignore[arg-type]


def test_a_tagged_struct_of_defaults_is_not_sent() -> None:
    """As in Kafka; read back, it is None, as one that was never set."""
    plain = FetchRequest().encode(15)
    assert FetchRequest(replica_state=ReplicaState()).encode(15) == plain
    assert FetchRequest.decode(plain, 15).replica_state is None
    other = FetchRequest(replica_state=ReplicaState(3))
    assert FetchRequest.decode(other.encode(15), 15) == other
    with pytest.raises(EncodeError, match="replica_state is set"):
        other.encode(14)


def test_the_bytes_of_a_produce_response() -> None:
    """Written down by hand from the schema, so that both halves of the codec cannot be wrong together."""
    response = ProduceResponse([TopicProduceResponse("flights", bytes(16), [PartitionProduceResponse(1, 3, 258)])], 7)
    numbers = "00000001 0003 0000000000000102 ffffffffffffffff"
    classic = f"00000001 0007{b'flights'.hex()} 00000001 {numbers} 00000007"
    assert response.encode(3).hex() == classic.replace(" ", "")
    numbers += "ffffffffffffffff"
    compact = f"02 08{b'flights'.hex()} 02 {numbers} 01 00 00 00 00000007 00"
    assert response.encode(9).hex() == compact.replace(" ", "")


def test_the_bytes_of_a_partition_change() -> None:
    change = PartitionChangeRecord(2, bytes(range(16)), isr=[1], leader=1)
    wanted = f"00000002 {bytes(range(16)).hex()} 02 00 05 02 00000001 01 04 00000001"
    assert change.encode(0).hex() == wanted.replace(" ", "")


def test_classes_by_key() -> None:
    assert request_class(1) is FetchRequest
    assert response_class(1) is FetchResponse
    assert METADATA_RECORDS[5] is PartitionChangeRecord
    for key in MODULES:
        assert request_class(key).API_KEY == response_class(key).API_KEY == key
    with pytest.raises(KeyError):
        request_class(4)


def test_messages_are_dataclasses_to_whoever_asks() -> None:
    data = TopicProduceData("t", partition_data=[PartitionProduceData(1, b"r")])
    assert is_dataclass(data)
    assert [field.name for field in fields(data)] == ["name", "topic_id", "partition_data"]
    assert [field.name for field in fields(PartitionProduceData)] == ["index", "records"]
    assert replace(data, name="u") == TopicProduceData("u", partition_data=data.partition_data)
    assert asdict(data)["partition_data"] == [{"index": 1, "records": b"r"}]
    assert repr(data.partition_data[0]) == "PartitionProduceData(index=1, records=b'r')"
    assert data != PartitionProduceData()
    match data:
        case TopicProduceData("t", _, [PartitionProduceData(index=1)]):
            pass
        case _:
            pytest.fail("no match")
    assert TopicProduceData().partition_data is not TopicProduceData().partition_data
    with pytest.raises(TypeError):
        hash(data)


def test_messages_are_imported_when_asked_for() -> None:
    code = "import sys, headrace.wire.messages; print([m for m in sys.modules if m.startswith('headrace.wire')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['headrace.wire', 'headrace.wire.messages']"
