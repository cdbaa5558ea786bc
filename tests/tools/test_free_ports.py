"""Ports of brokers that tests start: several processes of tests draw them side by side."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers import kafka

OTHER = """
import sys
from pathlib import Path
from peers import kafka
kafka.PORTS, kafka.PORT_LOCKS = (int(sys.argv[1]), int(sys.argv[2])), Path(sys.argv[3])
print(kafka.free_ports(2)[0], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[range]:
    """All the ports that there are to give."""
    ports = kafka.free_ports(4)
    monkeypatch.setattr(kafka, "PORTS", (ports[0], ports[-1] + 1))
    monkeypatch.setattr(kafka, "PORT_LOCKS", tmp_path / "locks")
    monkeypatch.setattr(kafka, "_given", set[int]())
    monkeypatch.setattr(kafka, "_port_locks", functools.cache(kafka._port_locks.__wrapped__))
    yield ports
    os.close(kafka._port_locks())


def test_two_processes_are_never_given_the_same(four: range, tmp_path: Path) -> None:
    command = [sys.executable, "-c", OTHER, str(four[0]), str(four[-1] + 1), str(tmp_path / "locks")]
    other = subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        ours = {kafka.free_port(), kafka.free_port()}
        assert ours == set(four) - {theirs, theirs + 1}
    finally:
        other.communicate("")
    assert {kafka.free_port(), kafka.free_port()} == {theirs, theirs + 1}, "it is over, and they are free again"


def test_several_are_consecutive_and_free(four: range) -> None:
    with socket.create_server(("127.0.0.1", four[0])):
        assert kafka.free_ports(3) == four[1:]
    assert kafka.free_port() == four[0]
