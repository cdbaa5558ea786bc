"""Produce 0 to 2: advertised, as old librdkafka does not compress without them (KAFKA-18659), but never served.

The answer has UNSUPPORTED_VERSION for every partition of the request; version 1 adds the throttle time, version 2 the
append time.
"""

from __future__ import annotations

from struct import Struct

from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader
from headrace.wire.messages.k00_produce import ProduceRequest

_NO_TRANSACTIONAL_ID = b"\xff\xff"
_FIRST_LAYOUT_VERSION = 3

_pack_count = Struct(">i").pack
_pack_length = Struct(">h").pack
_pack_partition = Struct(">ihq").pack
_pack_time = Struct(">q").pack
_pack_head = Struct(">ii").pack


def answer_old_version(frame: memoryview, at: int, header: RequestHeader) -> bytes | None:
    """Returns a whole response frame, or None if acks=0 forbids one. Raises DecodeError."""
    # The layout is that of version 3 without the leading transactional id.
    request = ProduceRequest.decode(_NO_TRANSACTIONAL_ID + bytes(frame[at:]), _FIRST_LAYOUT_VERSION)
    if request.acks == 0:
        return None
    body = [_pack_count(len(request.topic_data))]
    for topic in request.topic_data:
        name = topic.name.encode()
        body += _pack_length(len(name)), name, _pack_count(len(topic.partition_data))
        for partition in topic.partition_data:
            body.append(_pack_partition(partition.index, ErrorCode.UNSUPPORTED_VERSION, -1))
            if header.api_version >= 2:
                body.append(_pack_time(-1))
    if header.api_version >= 1:
        body.append(_pack_count(0))
    payload = b"".join(body)
    return _pack_head(len(payload) + 4, header.correlation_id) + payload
