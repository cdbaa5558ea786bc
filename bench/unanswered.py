"""What a Produce request costs that wants no answer (acks=0), over one that waits for its leader (acks=1)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.link import PRODUCE_VERSION
from bench.wire_load import connect
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import Record, build_batch

if TYPE_CHECKING:
    import socket

    from bench.rigs import Rig

RECORD_BYTES = 100
MESSAGES = 60_000
AT_ONCE = 200
"""Requests of one send: those with acks=1 are all answered before the next."""


def _frame(topic: str, acks: int, correlation_id: int) -> bytes:
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * RECORD_BYTES, [])])
    data = PartitionProduceData(index=0, records=memoryview(bytes(batch)))
    body = ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return bytes(encode_request(RequestHeader(0, PRODUCE_VERSION, correlation_id, "bench"), body))


def answers(link: socket.socket, count: int) -> None:
    """Waits for so many."""
    data = bytearray()
    while count:
        data += link.recv(1 << 20) or b""
        at = 0
        while len(data) - at >= 4 and len(data) - at >= 4 + (size := int.from_bytes(data[at : at + 4], "big")):
            at += 4 + size
            count -= 1
        del data[:at]


def _cpu_s(rig: Rig, topic: str, acks: int) -> float:
    """CPU of the broker until a closing request with acks=1 is answered: everything before it was handled."""
    sent = _frame(topic, acks, 1) * AT_ONCE
    before = rig.cpu_s()
    with connect(rig.port) as link:
        for _ in range(MESSAGES // AT_ONCE):
            link.sendall(sent)
            if acks:
                answers(link, AT_ONCE)
        link.sendall(_frame(topic, 1, 2))
        answers(link, 1)
    return rig.cpu_s() - before


def cpu_over_answered(rig: Rig, topic: str) -> float:
    """CPU of a message of 100 B with acks=0, over that of one with acks=1."""
    answered = _cpu_s(rig, topic, 1)
    return _cpu_s(rig, topic, 0) / max(answered, 0.01)
