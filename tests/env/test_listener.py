"""A listener takes its address at once, and nobody can connect before it goes on for the first time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from headrace.env.network import Stream
from headrace.env.posix_network import PosixListener, PosixNetwork


class Asked:
    """Turns that somebody else gives."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []
        self.any = asyncio.Event()

    def ask(self, step: Callable[[], None]) -> None:
        self.steps.append(step)
        self.any.set()

    def give(self) -> None:
        self.any.clear()
        self.steps.pop()()


def listen(
    network: PosixNetwork, port: int, on_connection: Callable[[Stream], None], turns: Asked | None = None
) -> PosixListener:
    return network.listen(
        "127.0.0.1",
        port,
        backlog=5,
        receive_buffer=-1,
        send_buffer=-1,
        on_connection=on_connection,
        on_failure=lambda error: pytest.fail(str(error)),
        turns=turns,
    )


async def test_nobody_can_connect_before_it_goes_on() -> None:
    network = PosixNetwork()
    heard = asyncio.Event()
    listener = listen(network, 0, lambda _: heard.set())
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", listener.port)
    listener.pause(False)
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    await asyncio.wait_for(heard.wait(), 60)
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


async def test_who_knocks_waits_for_a_turn_and_costs_nothing_before() -> None:
    network, turns = PosixNetwork(), Asked()
    came: list[Stream] = []
    listener = listen(network, 0, came.append, turns)
    listener.pause(False)
    writers = [(await asyncio.open_connection("127.0.0.1", listener.port))[1] for _ in range(3)]
    await asyncio.wait_for(turns.any.wait(), 60)
    assert len(turns.steps) == 1 and not came
    turns.give()
    assert len(came) == 3
    writers.append((await asyncio.open_connection("127.0.0.1", listener.port))[1])
    await asyncio.wait_for(turns.any.wait(), 60)
    listener.pause(True)
    turns.give()
    assert len(came) == 3  # it was paused while it waited
    listener.pause(False)
    await asyncio.wait_for(turns.any.wait(), 60)
    turns.give()
    assert len(came) == 4
    writers.append((await asyncio.open_connection("127.0.0.1", listener.port))[1])
    await asyncio.wait_for(turns.any.wait(), 60)
    listener.close()
    turns.give()
    assert len(came) == 4
    for writer in writers:
        writer.close()
    network.close()
