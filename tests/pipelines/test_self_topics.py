"""`log-monitor` on the log of a broker that publishes it: its windows count the lines that the topic has."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from peers.headrace import HeadracePeer

import headrace
from headrace.broker.self_topics import LOGS_TOPIC

from .drivers import drive, finish, latest, make
from .expected import windows_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.soak]

PATIENCE_S = 30
PARTITIONS = 8
BAD_CONNECTIONS = 60


def lines(bootstrap: str) -> list[dict[str, Any]]:
    rows = headrace.scan(LOGS_TOPIC, bootstrap=bootstrap, columns=["value"]).to_pylist()
    return [json.loads(row["value"]) for row in rows]


def warnings(bootstrap: str) -> int:
    return sum("connection closed" in line["message"] and "a frame of" in line["message"] for line in lines(bootstrap))


@pytest.mark.timeout(300)
def test_windows_count_the_lines_of_the_broker(tmp_path: Path) -> None:
    """Half of a topic's partitions lie in a directory that is gone: an error each. Bad input: a warning each."""
    here, gone = tmp_path / "here", tmp_path / "gone"
    peer = HeadracePeer(tmp_path, {"log.dirs": f"{here},{gone}"})
    with peer:
        make(peer.bootstrap, "t", partitions=PARTITIONS)
    lost = len(list(gone.glob("t-*")))
    assert 0 < lost < PARTITIONS
    with HeadracePeer(tmp_path, {"log.dirs": str(here)}, options=["--self-topics"]) as peer:
        for _ in range(BAD_CONNECTIONS):
            with socket.create_connection(("127.0.0.1", peer.port)) as raw:
                raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert raw.recv(1) == b""
        patience = time.monotonic() + PATIENCE_S
        while warnings(peer.bootstrap) < BAD_CONNECTIONS:
            assert time.monotonic() < patience
            time.sleep(0.1)
        arguments = ["log-monitor", "--from", LOGS_TOPIC, "--to", "alerts", "--window", "1s", "--once"]
        batches = finish(drive(peer.bootstrap, tmp_path / "state", *arguments))
        count = sum(batch["rows"] for batch in batches)
        read = lines(peer.bootstrap)[:count]
        found = latest(peer.bootstrap, "alerts")
    assert sum(batch["unreadable"] + batch["late"] for batch in batches) == 0
    assert found == windows_of([{**line, "time": line["time"] / 1000} for line in read], 1)
    assert sum(window["lines"] for window in found.values()) == count >= BAD_CONNECTIONS + lost
    assert sum(window["errors"] for window in found.values()) == lost
