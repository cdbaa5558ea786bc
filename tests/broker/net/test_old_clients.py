"""Clients of Kafka 0.9 and 0.10: their connections end, and they come back at once, for ever."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest
from broker.raw import Raw

from headrace.broker.net import old_clients
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest

API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.fixture
def served() -> Iterator[TestBroker]:
    with running_broker() as served:
        yield served


def ask_as_of_old(raw: Raw) -> None:
    """ListOffsets 0, which Kafka 0.9 asks with."""
    body = struct.pack(">hhih", 2, 0, 1, 1) + b"x" + struct.pack(">ii", -1, 0)
    raw.socket.sendall(struct.pack(">i", len(body)) + body)


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "list_offsets has no version 0" in each.getMessage()]


def test_the_connection_ends_in_a_moment_and_holds_nobody_up(served: TestBroker) -> None:
    with Raw(served.port) as raw, Raw(served.port) as other:
        began = time.monotonic()
        ask_as_of_old(raw)
        assert other.ask(API_VERSIONS, 3).error_code == 0
        assert served.call(lambda broker: broker.server.old_clients._silent) == 1
        raw.socket.sendall(raw.frame(API_VERSIONS, 3))  # is not answered any more
        assert raw.is_closed()
        assert time.monotonic() - began >= old_clients.SILENT_S
        assert served.call(lambda broker: broker.server.old_clients._silent) == 0


def test_one_line_for_an_address_and_minute(
    served: TestBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_clients, "SILENT_S", 0.01)
    for source in ("127.0.0.2", "127.0.0.3"):
        for _ in range(5):
            with Raw(served.port, source=source) as raw:
                ask_as_of_old(raw)
                assert raw.is_closed()
    assert len(lines_of(caplog)) == 2
    monkeypatch.setattr(old_clients, "LINE_S", 0.0)
    with Raw(served.port, source="127.0.0.2") as raw:
        ask_as_of_old(raw)
        assert raw.is_closed()
    assert len(lines_of(caplog)) == 3


def test_no_more_than_so_many_are_silent(served: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_clients, "SILENT_MAX", 1)
    with Raw(served.port) as one, Raw(served.port) as two:
        ask_as_of_old(one)
        assert served.call(lambda broker: broker.server.old_clients._silent) <= 1
        ask_as_of_old(two)
        assert two.is_closed()
        assert one.is_closed()
