"""A listener takes its address at once, and nobody can connect before it goes on for the first time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from headrace.env.network import Stream
from headrace.env.posix_network import PosixListener, PosixNetwork


def listen(network: PosixNetwork, port: int, on_connection: Callable[[Stream], None]) -> PosixListener:
    return network.listen(
        "127.0.0.1",
        port,
        backlog=5,
        receive_buffer=-1,
        send_buffer=-1,
        on_connection=on_connection,
        on_failure=lambda error: pytest.fail(str(error)),
    )


async def test_nobody_can_connect_before_it_goes_on() -> None:
    network = PosixNetwork()
    heard = asyncio.Event()
    listener = listen(network, 0, lambda _: heard.set())
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", listener.port)
    listener.pause(False)
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    await asyncio.wait_for(heard.wait(), 10)
    writer.close()
    with pytest.raises(OSError) as taken:
        listen(network, listener.port, lambda _: None)
    assert taken.value.errno == errno.EADDRINUSE
    network.close()


async def test_whoever_goes_on_first_has_the_address() -> None:
    network = PosixNetwork()
    first = listen(network, 0, lambda _: None)
    second = listen(network, first.port, lambda _: None)
    second.pause(False)
    with pytest.raises(OSError) as taken:
        first.pause(False)
    assert taken.value.errno == errno.EADDRINUSE
    network.close()
