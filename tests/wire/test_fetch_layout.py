"""The places of a consumer's Fetch against the codec: every version, requests and answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace.wire.fetch_layout import FetchLayout
from headrace.wire.frame import RequestHeader, encode_request, encode_response_parts
from headrace.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

VERSIONS = range(4, 19)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.one_of(st.just("t"), st.text("abc-ü", min_size=1, max_size=249))


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=tried(25))
@given(data=st.data())
def test_a_request_is_read_as_it_was_written(version: int, data: st.DataObject) -> None:
    layout = FetchLayout(version)
    has_epochs = version >= 9
    topics = [
        FetchTopic(
            topic=data.draw(NAMES),
            topic_id=data.draw(st.binary(min_size=16, max_size=16)),
            partitions=[
                FetchPartition(
                    partition=data.draw(NUMBERS),
                    current_leader_epoch=data.draw(NUMBERS) if has_epochs else -1,
                    fetch_offset=data.draw(LONGS),
                    partition_max_bytes=data.draw(NUMBERS),
                )
                for _ in range(data.draw(st.sampled_from((0, 1, 2, 3, 130))))
            ],
        )
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    request = FetchRequest(
        max_wait_ms=5, min_bytes=data.draw(NUMBERS), max_bytes=data.draw(NUMBERS), isolation_level=1, topics=topics,
        rack_id=data.draw(st.sampled_from(("", "a", "rack" * 50))) if version >= 11 else "",
    )  # fmt: skip
    if layout.has_sessions:
        request.session_id, request.session_epoch = data.draw(NUMBERS), data.draw(NUMBERS)
    client_id = data.draw(st.sampled_from((None, "", "client")))
    frame = memoryview(encode_request(RequestHeader(1, version, 7, client_id), request))[12:]

    before, behind = layout.before(client_id), layout.behind(request.rack_id)
    assert frame[: len(before)] == before
    assert frame[len(frame) - len(behind) :] == behind
    session = (request.session_id, request.session_epoch) if layout.has_sessions else ()
    head = layout.read_head(frame, len(before))
    assert head == (request.min_bytes, request.max_bytes, 1, *session)
    count, at = layout.read_count(frame, len(before) + layout.head_bytes)
    assert count == len(topics)
    for topic in topics:
        found, at = layout.read_topic(frame, at)
        assert found == (topic.topic_id if layout.has_topic_ids else topic.topic.encode())
        count, at = layout.read_count(frame, at)
        assert count == len(topic.partitions)
        for each in topic.partitions:
            epochs = (each.current_leader_epoch,) if has_epochs else ()
            last = (each.last_fetched_epoch,) if layout.is_flexible else ()
            expected = (each.partition, *epochs, each.fetch_offset, *last, each.partition_max_bytes)
            assert layout.read_partition(frame, at) == expected
            at += layout.partition_bytes
        at += layout.is_flexible
    assert at == len(frame) - len(behind)
    if topics and len(topics[-1].partitions) > 0:
        offset = topics[-1].partitions[-1].fetch_offset.to_bytes(8, "big", signed=True)
        assert frame[at - layout.offset_from_end :][:8] == offset


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=tried(25))
@given(data=st.data())
def test_an_answer_is_what_the_codec_writes(version: int, data: st.DataObject) -> None:
    layout = FetchLayout(version)
    committed = data.draw(st.booleans())
    topics = [
        FetchableTopicResponse(
            topic=data.draw(NAMES),
            topic_id=data.draw(st.binary(min_size=16, max_size=16)),
            partitions=[
                PartitionData(
                    data.draw(NUMBERS), 0, data.draw(LONGS), data.draw(LONGS),
                    data.draw(LONGS) if version >= 5 else -1,
                    aborted_transactions=[] if committed else None,
                    records=b"r" * data.draw(st.sampled_from((0, 1, 200, 20_000))),
                )
                for _ in range(data.draw(st.sampled_from((0, 1, 2, 130))))
            ],
        )
        for _ in range(data.draw(st.integers(0, 3)))
    ]  # fmt: skip
    answer = FetchResponse(responses=topics)
    if layout.has_sessions:
        answer.session_id = data.draw(NUMBERS)
    made = bytearray(layout.answer_head(answer.session_id, len(topics)))
    for topic in topics:
        made += layout.topic_head(topic.topic, topic.topic_id, len(topic.partitions))
        for each in topic.partitions:
            records = bytes(each.records or b"")  # type: ignore[arg-type]
            made += layout.partition_head(
                each.partition_index, each.high_watermark, each.last_stable_offset, each.log_start_offset,
                committed, len(records),
            )  # fmt: skip
            made += records + layout.after_records
        made += layout.after_records
    made += layout.after_records
    parts = encode_response_parts(1, version, 7, answer)
    assert bytes(made) == b"".join(bytes(part) for part in parts)[8:]  # type: ignore[arg-type]
