"""Connections that are held up: what passes arrives late, whole and in order, and nothing passes between two that are
apart."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import pytest

from headrace.env.network import WOULD_BLOCK, Stream
from headrace.env.posix_network import PosixNetwork
from headrace.testing.faults import KEPT_MAX_BYTES, Faults, FaultyNetwork

DELAY_S = 0.05


async def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


class End:
    """One end of a connection: takes what comes, and sends what it is given as it can."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.came = bytearray()
        self.has_ended = False
        self._rest = b""
        stream.on_readable(self._read)

    def _read(self) -> None:
        buffer = bytearray(65536)
        size = self.stream.receive_into(memoryview(buffer))
        if size == 0:
            self.has_ended = True
            self.stream.on_readable(None)
        elif size != WOULD_BLOCK:
            self.came += buffer[:size]

    def send(self, data: bytes) -> None:
        self._rest += data
        self._write()

    def _write(self) -> None:
        sent = self.stream.send([self._rest])
        self._rest = self._rest[max(sent, 0) :]
        self.stream.on_writable(self._write if self._rest else None)


class Pair:
    """Node 1, which made the connection, and node 2."""

    def __init__(self) -> None:
        peers: dict[int, int] = {}
        self.unfinished: list[Stream] = []
        self.faults = [Faults(peers, self.unfinished) for _ in range(2)]
        self.networks = [FaultyNetwork(PosixNetwork(), faults) for faults in self.faults]
        accepted: list[Stream] = []
        self.listener = self.networks[1].listen(
            "127.0.0.1",
            0,
            backlog=5,
            receive_buffer=-1,
            send_buffer=-1,
            on_connection=accepted.append,
            on_failure=lambda _: None,
        )
        self.listener.pause(False)
        peers[self.listener.port] = 2
        self.accepted = accepted

    async def connected(self) -> tuple[End, End]:
        made: list[Stream] = []
        self.networks[0].connect("127.0.0.1", self.listener.port, on_connected=made.append, on_failure=lambda _: None)
        await until(lambda: made and self.accepted)
        return End(made[-1]), End(self.accepted.pop())

    def set_apart(self, apart: bool) -> None:
        self.faults[0].apart = frozenset({2} if apart else ())
        self.faults[0].changed()

    def close(self) -> None:
        for network in self.networks:
            network.close()


async def test_what_is_slow_arrives_later_whole_and_in_order() -> None:
    pair = Pair()
    one, two = await pair.connected()
    data = os.urandom(2 * KEPT_MAX_BYTES)
    for slow in (pair.faults[0], pair.faults[1]):
        slow.delay_s = DELAY_S
        slow.changed()
        for sender, receiver in ((one, two), (two, one)):
            receiver.came.clear()
            began = time.monotonic()
            sender.send(data)
            await until(lambda receiver=receiver: receiver.came)  # type: ignore[misc]
            assert time.monotonic() - began >= DELAY_S
            slow.delay_s = 0  # in the middle: what comes quickly does not overtake
            slow.changed()
            await until(lambda receiver=receiver: len(receiver.came) == len(data))  # type: ignore[misc]
            assert receiver.came == data
            slow.delay_s = DELAY_S
            slow.changed()
        slow.delay_s = 0
        slow.changed()
    one.send(b"last")
    one.stream.close()
    await until(lambda: two.has_ended)
    assert two.came.endswith(b"last")
    pair.close()


@pytest.mark.parametrize("closes", [False, True])
async def test_nothing_passes_between_two_that_are_apart(closes: bool) -> None:
    pair = Pair()
    one, two = await pair.connected()
    pair.set_apart(True)
    one.send(b"there")
    two.send(b"back")
    if closes:
        one.stream.close()
    await asyncio.sleep(0.05)
    assert (bytes(one.came), bytes(two.came), two.has_ended) == (b"", b"", False)
    pair.set_apart(False)
    await until(lambda: two.came == b"there")
    await until(lambda: two.has_ended if closes else one.came == b"back")
    pair.close()


async def test_a_connection_is_made_when_the_two_are_together_again() -> None:
    pair = Pair()
    pair.set_apart(True)
    making = asyncio.create_task(pair.connected())
    await asyncio.sleep(0.05)
    assert not making.done()
    pair.set_apart(False)
    one, two = await making
    one.send(b"at last")
    await until(lambda: two.came == b"at last")
    pair.close()


async def test_the_end_of_a_node_that_is_apart_is_heard_later() -> None:
    pair = Pair()
    _, two = await pair.connected()
    pair.set_apart(True)
    pair.networks[0].close()
    await asyncio.sleep(0.05)
    assert not two.has_ended
    pair.unfinished.pop().close()
    await until(lambda: two.has_ended)
    pair.close()
