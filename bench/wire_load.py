"""The wire-level load generator: prebuilt frames over raw sockets, in a process of its own.

It does as little as it can, so that what it measures is the broker: every request of a run is the same bytes, so a
window of them is one `send`, and every answer has the same length, so answers are counted and not parsed. The error
code of the last whole answer in each read is looked at.

    python -m bench.wire_load '{"mode": "produce", "port": 9092, "topic": "t", ...}'    prints one line of JSON
"""

from __future__ import annotations

import json
import random
import select
import socket
import ssl
import sys
import time
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import Any

from bench.link import FETCH_VERSION, PRODUCE_VERSION
from headrace.wire.frame import RequestHeader, encode_request, encode_response
from headrace.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.records import Record, build_batch

RECEIVE_BYTES = 1 << 20
SOCKET_BUFFER_BYTES = 1 << 21
PATIENCE_S = 60.0
RECORD_BYTES = 100
FETCH_OFFSET_MARK = 0x7A5A5A5A5A5A5A5A
pack_offset_into = Struct(">q").pack_into


@dataclass
class Load:
    """What to do. `size` is the bytes of a batch or of a fetch; `rate` paces one request in flight, 0 is flat out."""

    mode: str
    port: int
    topic: str = "t"
    size: int = 0
    in_flight: int = 1
    connections: int = 1
    seconds: float = 2.0
    rate: float = 0.0
    end_offset: int = 0
    records_per_batch: int = 1
    partitions: int = 1
    codec: int = 0
    authority: str = ""
    """A file of whom to believe: the load goes over TLS."""
    login: str = ""
    """Name and password of who logs in by PLAIN first, with a colon between."""


@dataclass
class Outcome:
    """What came of it: bytes are those of the batches, latencies in seconds (only where requests are paced)."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)


def batch_of(size: int, codec: int = 0) -> tuple[bytes, int]:
    """A batch of about `size` bytes of 1 KB records, or of one of 100 bytes when `size` is 0; and its record count."""
    now_ms = int(time.time() * 1000)
    if size == 0:
        return bytes(build_batch([Record(0, now_ms, None, b"x" * RECORD_BYTES, [])])), 1
    count = max(1, (size - 61) // 1034)
    value = b"x" * 1024 if codec == 0 else random.Random(1).randbytes(512) * 2  # halves under a codec
    records = [Record(each, now_ms, None, value, []) for each in range(count)]
    return bytes(build_batch(records, compression=codec)), count


def produce_frame(topic: str, batch: bytes, partition: int = 0, client_id: str = "bench") -> bytes:
    """A whole Produce request with acks=all."""
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    body = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    return encode_request(RequestHeader(0, PRODUCE_VERSION, 7, client_id), body)


def produce_reply(topic: str, error_code: int = 0) -> bytes:
    """The answer that a broker gives, so as to know its length and where its error code is."""
    part = PartitionProduceResponse(index=0, error_code=error_code, log_append_time_ms=-1, log_start_offset=0)
    body = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[part])])
    return bytes(encode_response(0, PRODUCE_VERSION, 7, body))


def fetch_frame(topic: str, size: int) -> tuple[bytearray, int]:
    """A whole Fetch request, and where its offset is."""
    part = FetchPartition(partition=0, fetch_offset=FETCH_OFFSET_MARK, partition_max_bytes=size)
    body = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=max(size, 1 << 20), session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )  # fmt: skip
    frame = bytearray(encode_request(RequestHeader(1, FETCH_VERSION, 7, "bench"), body))
    at = frame.index(FETCH_OFFSET_MARK.to_bytes(8, "big"))
    return frame, at


def connect(port: int) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
    return link


def connect_by(load: Load) -> socket.socket | TlsLink:
    """As `load` says: over TLS, or in the clear."""
    link = connect(load.port)
    made = TlsLink(link, load.authority) if load.authority else link
    if load.login:
        log_in(made, *load.login.split(":", 1))
    return made


def log_in(link: socket.socket | TlsLink, name: str, password: str) -> None:
    """By PLAIN. Raises AssertionError where the broker refuses it."""
    token = f"\0{name}\0{password}".encode()
    for request, version in ((SaslHandshakeRequest("PLAIN"), 1), (SaslAuthenticateRequest(token), 1)):
        link.sendall(encode_request(RequestHeader(request.API_KEY, version, 7, "bench"), request))
        came = bytearray(4096)
        have = link.recv_into(came)
        while have < 4 or have < 4 + int.from_bytes(came[:4], "big"):
            got = link.recv_into(memoryview(came)[have:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            have += got
        code = int.from_bytes(came[8:10], "big")
        if code:
            raise AssertionError(f"the login is refused with error {code}")


class TlsLink:
    """A socket of TLS of which one receive takes all that has come: a poller does not know what OpenSSL holds."""

    def __init__(self, link: socket.socket, authority: str) -> None:
        self._link = ssl.create_default_context(cafile=authority).wrap_socket(link, server_hostname="localhost")
        self.sendall, self.fileno, self.close = self._link.sendall, self._link.fileno, self._link.close

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """See socket."""
        view = memoryview(buffer)
        have = self._link.recv_into(view)
        while self._link.pending() and have < len(view):
            have += self._link.recv_into(view[have:])
        return have


class Window:
    """One connection with a number of equal requests in flight."""

    def __init__(self, load: Load, frame: bytes, reply: bytes, error_at: int) -> None:
        self.link = connect_by(load)
        self.size = len(frame)
        self.block = memoryview(frame * load.in_flight)
        self.reply_bytes = len(reply)
        self.error_at = error_at
        self.buffer = bytearray(RECEIVE_BYTES)
        self.partial = 0
        self.answered = 0
        self.waiting = 0

    def send(self, count: int) -> None:
        self.link.sendall(self.block[: count * self.size])
        self.waiting += count

    def receive(self) -> int:
        """Answers that have come whole with this read."""
        before = self.partial
        got = self.link.recv_into(self.buffer)
        if not got:
            raise ConnectionError("the broker closed the connection")
        whole, self.partial = divmod(before + got, self.reply_bytes)
        start = (whole - 1) * self.reply_bytes - before
        if whole and start >= 0:
            code = int.from_bytes(self.buffer[start + self.error_at : start + self.error_at + 2], "big")
            size = int.from_bytes(self.buffer[start : start + 4], "big")
            if code or size != self.reply_bytes - 4:
                raise AssertionError(f"an answer of {size} bytes with error {code}")
        self.answered += whole
        self.waiting -= whole
        return whole


def produce(load: Load) -> Outcome:
    """`connections` windows of `in_flight` requests each, flat out for `seconds`."""
    batch, _ = batch_of(load.size, load.codec)
    reply, wrong = produce_reply(load.topic), produce_reply(load.topic, 0x0101)
    error_at = next(at for at in range(len(reply)) if reply[at] != wrong[at])
    windows = [
        Window(load, produce_frame(load.topic, batch, each % load.partitions), reply, error_at)
        for each in range(load.connections)
    ]
    before = time.perf_counter()
    deadline = before + load.seconds
    if len(windows) == 1:
        _drive_one(windows[0], load.in_flight, deadline)
    else:
        _drive_many(windows, load.in_flight, deadline)
    spent = time.perf_counter() - before
    done = sum(window.answered for window in windows)
    for window in windows:
        while window.waiting:
            window.receive()
        window.link.close()
    return Outcome(done, done * len(batch), spent)


def _drive_one(window: Window, in_flight: int, deadline: float) -> None:
    window.send(in_flight)
    clock, send, receive = time.perf_counter, window.send, window.receive
    while clock() < deadline:
        count = receive()
        if count:
            send(count)


def _drive_many(windows: list[Window], in_flight: int, deadline: float) -> None:
    poller = select.epoll()
    by_number = {window.link.fileno(): window for window in windows}
    for number, window in by_number.items():
        poller.register(number, select.EPOLLIN)
        window.send(in_flight)
    while time.perf_counter() < deadline:
        for number, _ in poller.poll(PATIENCE_S):
            window = by_number[number]
            count = window.receive()
            if count:
                window.send(count)
    poller.close()


def produce_paced(load: Load) -> Outcome:
    """One request in flight at `rate` a second; the time of each."""
    batch, _ = batch_of(load.size)
    reply = produce_reply(load.topic)
    window = Window(load, produce_frame(load.topic, batch), reply, len(reply) - 2)
    window.error_at = 4  # the correlation id's upper half: zero; the code is looked at in produce()
    latencies: list[float] = []
    before = time.perf_counter()
    due = before
    while due < before + load.seconds:
        pause = due - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        started = time.perf_counter()
        window.send(1)
        while window.waiting:
            window.receive()
        latencies.append(time.perf_counter() - started)
        due = max(due + 1 / load.rate, time.perf_counter() - 1.0)
    window.link.close()
    return Outcome(len(latencies), len(latencies) * len(batch), time.perf_counter() - before, latencies)


def fetch(load: Load) -> Outcome:
    """One fetch after the other through the log, from its beginning again at its end; sizes are the batches'."""
    link = connect_by(load)
    frame, offset_at = fetch_frame(load.topic, load.size)
    batch_bytes = len(batch_of(load.size)[0])
    buffer = memoryview(bytearray(1 << 24))
    offset = requests = 0
    before = time.perf_counter()
    deadline = before + load.seconds
    while time.perf_counter() < deadline:
        pack_offset_into(frame, offset_at, offset)
        link.sendall(frame)
        size = link.recv_into(buffer)
        total = int.from_bytes(buffer[:4], "big") + 4
        while size < total:
            got = link.recv_into(buffer[size:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            size += got
        batches = total // batch_bytes
        if not batches:
            raise AssertionError(f"an answer of {total} bytes at offset {offset}")
        requests += batches
        offset += batches * load.records_per_batch
        if offset >= load.end_offset:
            offset = 0
    spent = time.perf_counter() - before
    link.close()
    return Outcome(requests, requests * batch_bytes, spent)


def main(argument: str) -> int:
    asked: dict[str, Any] = json.loads(argument)
    load = Load(**asked)
    run = {"produce": produce, "produce-paced": produce_paced, "fetch": fetch}[load.mode]
    print(json.dumps(asdict(run(load))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
