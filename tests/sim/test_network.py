"""Streams of the simulated network: in order and whole, cut, silent, stalled, held up, refused."""

from __future__ import annotations

import asyncio
import errno

import pytest

from headrace.env.network import WOULD_BLOCK, Stream
from headrace.sim.disk import SimDisk
from headrace.sim.network import SimStream
from headrace.sim.node import SimNode
from headrace.sim.world import World


class Pair:
    """A server and a client machine, and a connection between them."""

    def __init__(self) -> None:
        self.world = World(1)
        self.server, self.client = self.node("server"), self.node("client")
        self.accepted: list[Stream] = []
        self.connected: list[Stream] = []
        self.failed: list[OSError] = []
        listener = self.server.network.listen(
            "", 9, backlog=1, receive_buffer=-1, send_buffer=-1, on_connection=self.accepted.append, on_failure=print
        )
        listener.pause(False)

    def node(self, host: str) -> SimNode:
        node = SimNode(self.world, host, SimDisk(self.world.rng(host)), self.world.rng(host))
        self.world.add(node)
        return node

    def connect(self, port: int = 9) -> None:
        self.client.network.connect("server", port, on_connected=self.connected.append, on_failure=self.failed.append)
        self.run(1)

    def run(self, seconds: float) -> None:
        self.world.loop.run_until_complete(asyncio.sleep(seconds))


def received(stream: Stream) -> bytes:
    buffer = memoryview(bytearray(1 << 20))
    data = b""
    while (size := stream.receive_into(buffer)) > 0:
        data += bytes(buffer[:size])
    return data


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.connect()
    return pair


def test_bytes_arrive_in_order_whatever_the_pieces(pair: Pair) -> None:
    pair.world.network.small_pieces = True
    data = bytes(range(256)) * 40
    got = b""
    rest = memoryview(data)
    while rest:
        sent = pair.connected[0].send((rest,))
        if sent != WOULD_BLOCK:
            rest = rest[sent:]
        pair.run(0.01)
        got += received(pair.accepted[0])
    pair.run(1)
    assert got + received(pair.accepted[0]) == data


def test_a_full_window_takes_nothing_until_it_is_read(pair: Pair) -> None:
    stream = pair.connected[0]
    total = 0
    while (sent := stream.send((bytes(1 << 20),))) != WOULD_BLOCK:
        total += sent
    room: list[bool] = []
    stream.on_writable(lambda: room.append(True))
    pair.run(1)
    assert not room
    stream.on_writable(None)
    assert len(received(pair.accepted[0])) == total
    assert stream.send((b"more",)) == 4


def test_a_closed_stream_says_so_after_its_last_bytes(pair: Pair) -> None:
    pair.connected[0].send((b"last",))
    pair.connected[0].close()
    pair.run(1)
    buffer = memoryview(bytearray(10))
    assert pair.accepted[0].receive_into(buffer) == 4
    assert pair.accepted[0].receive_into(buffer) == 0


def test_a_cut_is_heard_by_both_and_silence_by_neither(pair: Pair) -> None:
    [stream] = pair.client.streams
    pair.world.network.silence(stream)
    pair.connected[0].send((b"lost",))
    pair.run(100)
    assert pair.accepted[0].receive_into(memoryview(bytearray(9))) == WOULD_BLOCK
    pair.world.network.cut(stream)
    for end in (pair.connected[0], pair.accepted[0]):
        with pytest.raises(ConnectionResetError):
            end.receive_into(memoryview(bytearray(9)))


def test_a_partition_holds_up_what_is_sent(pair: Pair) -> None:
    pair.world.network.partition("server", "client")
    pair.connected[0].send((b"one",))
    pair.connected[0].send((b"two",))
    pair.run(10)
    assert received(pair.accepted[0]) == b""
    pair.world.network.heal()
    pair.run(1)
    assert received(pair.accepted[0]) == b"onetwo"


def test_nobody_listens(pair: Pair) -> None:
    pair.connect(port=10)
    assert isinstance(pair.failed[0], OSError)


def test_a_connection_that_is_begun_while_machines_are_apart_is_tried_again(pair: Pair) -> None:
    network = pair.world.network
    network.cut_one_way("server", "client")  # what it answers is lost
    pair.connect()  # until 1 s after the first try
    pair.run(1.5)  # the second try comes meanwhile
    network.heal()
    pair.run(0.4)
    assert len(pair.accepted) == len(pair.connected) == 1
    pair.run(0.2)  # it is 3 s after the first
    assert len(pair.accepted) == len(pair.connected) == 2 and not pair.failed


def test_a_connection_to_a_machine_without_power_is_refused_when_it_is_back(pair: Pair) -> None:
    pair.world.set_power("server", False)
    pair.connect(port=10)  # until 1 s after the first try
    pair.run(0.5)  # the second comes meanwhile
    pair.world.set_power("server", True)
    pair.run(1.4)
    assert not pair.failed
    pair.run(0.2)
    assert [each.errno for each in pair.failed] == [errno.ECONNREFUSED]


def test_who_gives_up_is_not_connected_later(pair: Pair) -> None:
    pair.world.network.partition("server", "client")
    connecting = pair.client.network.connect("server", 9, on_connected=pair.connected.append, on_failure=print)
    pair.run(1.5)
    connecting.cancel()
    pair.world.network.heal()
    pair.run(200)
    assert len(pair.accepted) == len(pair.connected) == 1


def test_a_connection_that_is_never_answered_times_out(pair: Pair) -> None:
    pair.world.network.partition("server", "client")
    pair.connect()
    pair.run(125)
    assert not pair.failed
    pair.run(2)
    assert [each.errno for each in pair.failed] == [errno.ETIMEDOUT]


def test_who_refuses_new_connections_keeps_those_that_it_has(pair: Pair) -> None:
    network = pair.world.network
    network.refuse("client", "server")
    pair.connect()
    assert [each.errno for each in pair.failed] == [errno.ECONNREFUSED] and len(pair.accepted) == 1
    pair.connected[0].send((b"on it goes",))
    pair.run(1)
    assert received(pair.accepted[0]) == b"on it goes"
    network.reconnect("server", "client")
    pair.connect()
    assert len(pair.failed) == 1 and len(pair.accepted) == 2


def test_a_killed_process_resets_and_a_machine_without_power_is_silent_until_it_is_back(pair: Pair) -> None:
    pair.connect()
    first, second = pair.connected
    pair.server.kill()
    pair.world.set_power("server", False)
    pair.world.network.gone(pair.server, power=True)
    pair.run(10)
    assert first.receive_into(memoryview(bytearray(9))) == WOULD_BLOCK
    pair.world.set_power("server", True)
    pair.world.network.power_back("server")
    pair.run(1)
    for stream in (first, second):
        with pytest.raises(ConnectionResetError):
            stream.receive_into(memoryview(bytearray(9)))
    assert not pair.world.network.is_cut(pair.server, pair.client)


def test_one_connection_stalls_and_no_other_waits(pair: Pair) -> None:
    pair.connect()
    first, second = pair.connected
    assert isinstance(first, SimStream)
    first.send((b"before",))
    pair.world.network.stall(first, 5.0)
    first.send((b" and after",))
    second.send((b"another way",))
    pair.accepted[0].send((b"an answer",))
    pair.run(2)
    assert received(pair.accepted[0]) == b"before"
    assert received(pair.accepted[1]) == b"another way"
    assert received(first) == b"an answer"
    pair.run(4)
    assert received(pair.accepted[0]) == b" and after"


def test_a_peer_that_has_ended_is_noticed_without_reading(pair: Pair) -> None:
    stream = pair.accepted[0]
    assert not stream.has_hung_up(None)
    pair.connected[0].send((b"last words",))
    pair.connected[0].close()
    pair.run(1)
    assert not stream.has_hung_up()
    assert stream.has_hung_up(None)
    assert stream.has_hung_up(10)
    assert received(stream) == b"last words"
    assert stream.has_hung_up()
