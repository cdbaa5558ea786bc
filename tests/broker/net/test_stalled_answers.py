"""Clients that do not take their answers, while others wait for the memory: the oldest of them give way."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.raw import Raw, create_topic
from peers.waiting import until

from headrace.broker.net import server
from headrace.testing.running import TestBroker
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest

RESPONSE_BYTES = 1048576


def test_who_takes_no_answer_gives_way_to_who_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STALLED_OUTPUT_S", 0.2)
    monkeypatch.setattr(server, "SWEEP_S_MAX", 0.1)
    settings = {"queued.max.response.bytes": RESPONSE_BYTES, "socket.send.buffer.bytes": 4096}
    node = TestBroker(tmp_path / "data", settings)
    node.start()
    create_topic(node.port, "wide", 5000)
    with Raw(node.port, receive_buffer=4096) as silent, Raw(node.port, timeout_s=30) as other:
        names = [f"{number:0>200}" for number in range(2000)]
        for _ in range(10):
            silent.send(DescribeGroupsRequest(groups=names), 5)
        until(lambda: node.call(lambda inside: inside.server.responses_budget.exhausted), "memory is spent")
        assert len(other.ask(MetadataRequest(topics=None), 12).topics) == 1
        until(lambda: node.call(lambda inside: inside.server.responses_budget.used) == 0, "it is given back")
    node.stop()
