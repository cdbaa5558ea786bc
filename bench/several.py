"""How many Produce requests of ten partitions with 1 KB each a broker answers in a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bench.link import PRODUCE_VERSION
from bench.unanswered import answers
from bench.wire_load import connect
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import Record, build_batch

if TYPE_CHECKING:
    from bench.rigs import Rig

PARTITIONS: Final = 10
RECORD_BYTES: Final = 1024
REQUESTS: Final = 20_000
AT_ONCE: Final = 20
"""Requests of one send: they are all answered before the next."""


def requests_per_second(rig: Rig, topic: str) -> float:
    """`topic` has PARTITIONS partitions."""
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * RECORD_BYTES, [])])
    data = [PartitionProduceData(index=index, records=memoryview(batch)) for index in range(PARTITIONS)]
    body = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    sent = bytes(encode_request(RequestHeader(0, PRODUCE_VERSION, 1, "bench"), body)) * AT_ONCE
    with connect(rig.port) as link:
        began = 0.0
        for number in range((REQUESTS + REQUESTS // 4) // AT_ONCE):
            if number == REQUESTS // 4 // AT_ONCE:
                began = time.perf_counter()  # the first quarter is to warm up
            link.sendall(sent)
            answers(link, AT_ONCE)
        return REQUESTS / (time.perf_counter() - began)
