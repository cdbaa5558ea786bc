"""What a service manager hears of a node: that it serves, runs and stops, at paths and at abstract addresses."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.env import posix_service
from headrace.env.posix_service import ServiceManager, without_manager

PATIENCE_S = 120


@pytest.fixture(params=["a path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """NOTIFY_SOCKET, and the manager's end of it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        if request.param == "abstract":
            end.bind("")  # Linux chooses a free name
            name = "@" + end.getsockname()[1:].decode()
        else:
            name = str(tmp_path / "notify")
            end.bind(name)
        end.settimeout(PATIENCE_S)
        yield name, end


@pytest.fixture
async def service(manager: tuple[str, socket.socket]) -> AsyncIterator[ServiceManager]:
    made = ServiceManager({"NOTIFY_SOCKET": manager[0]})
    yield made
    made.close()


def heard(end: socket.socket) -> list[str]:
    """The lines of all datagrams that have come."""
    lines: list[str] = []
    end.setblocking(False)
    while True:
        try:
            lines += end.recv(65536).decode().split("\n")
        except BlockingIOError:
            return lines


async def test_a_start_a_service_and_a_stop(service: ServiceManager, manager: tuple[str, socket.socket]) -> None:
    _, end = manager
    extension = f"EXTEND_TIMEOUT_USEC={posix_service.EXTENSION_US}"
    assert heard(end) == ["STATUS=starts, and reads its logs", extension]
    service.ready("PLAINTEXT listens\non 127.0.0.1:9092" + "x" * 1000)
    ready, status = heard(end)
    assert ready == "READY=1"
    assert status.startswith("STATUS=PLAINTEXT listens on 127.0.0.1:9092x")
    assert len(status) == len("STATUS=") + posix_service.STATUS_CHARS_MAX
    service.stopping()
    assert heard(end) == ["STOPPING=1", "STATUS=stops", extension]
    service.close()
    service.close()
    service.ready("nobody hears this")
    assert heard(end) == []


async def test_a_watchdog_is_fed_from_the_loop(manager: tuple[str, socket.socket]) -> None:
    name, end = manager
    end.setblocking(False)
    fed = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(os.getpid())})
    try:
        fed.ready("serves")
        heard(end)
        for _ in range(3):
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(end, 4096), 30) == b"WATCHDOG=1"
    finally:
        fed.close()


@pytest.mark.parametrize(
    "variables",
    [
        {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {},
    ],
)
async def test_a_watchdog_of_another_process_is_not_fed(
    manager: tuple[str, socket.socket], variables: dict[str, str]
) -> None:
    name, end = manager
    made = ServiceManager({"NOTIFY_SOCKET": name, **variables})
    made.ready("serves")
    made.close()
    assert "WATCHDOG=1" not in heard(end)


async def test_what_a_full_socket_has_no_room_for_is_sent_later(manager: tuple[str, socket.socket]) -> None:
    name, end = manager
    address = "\0" + name[1:] if name.startswith("@") else name
    made = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000"})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                other.sendto(b"X=1", address)
    try:
        made.ready("serves")
        assert "READY=1" not in heard(end)  # this makes room
        end.setblocking(False)
        said = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(end, 4096), 30)
        assert {"READY=1", "STATUS=serves", "WATCHDOG=1"} <= set(said.decode().split("\n"))
    finally:
        made.close()


@pytest.mark.parametrize("name", ["", "vsock:2:1234", "relative"])
async def test_without_a_manager_nothing_is_sent(name: str) -> None:
    made = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000"})
    made.ready("serves")
    made.stopping()
    made.close()


async def test_a_manager_that_is_gone_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    made.ready("serves")
    made.close()
    assert [record.message for record in caplog.records] == [
        "the service manager cannot be notified: [Errno 2] No such file or directory"
    ]


def test_a_child_of_a_service_has_no_manager() -> None:
    assert without_manager({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "PATH": "y"}) == {
        "PATH": "y"
    }


@pytest.mark.parametrize("brokers", [(), ("--brokers", "1")], ids=["one", "several"])
def test_a_broker_is_ready_once_it_listens_and_says_that_it_stops(
    manager: tuple[str, socket.socket], tmp_path: Path, brokers: tuple[str, ...]
) -> None:
    name, end = manager
    command = [sys.executable, "-m", "headrace.cli", "serve", "--data", str(tmp_path / "data"), *brokers]
    command += ["--listen", "127.0.0.1:0", "--set", "metrics.listener=127.0.0.1:0"]
    environment = {**os.environ, "NOTIFY_SOCKET": name}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        said: list[str] = []
        while "READY=1" not in said:
            said += end.recv(65536).decode().split("\n")
        assert said.count("READY=1") == 1
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, error
        assert "127.0.0.1:" in out
        assert heard(end).count("STOPPING=1") == 1
    finally:
        process.kill()
        process.wait()
