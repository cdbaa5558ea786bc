"""The machine's own limit over TLS: loops of MemoryBIO and socket that move the same bytes and know nothing of Kafka.

python -m bench.tls_limits produce CERTIFICATE FRAME_BYTES REPLY_HEX FILE    prints its port, runs until killed
python -m bench.tls_limits fetch CERTIFICATE REQUEST_BYTES HEAD_HEX FILE SLICE_BYTES
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import sys
from collections.abc import Callable

RECEIVE_BYTES = 128 * 1024
PIECE_BYTES = 64 * 1024


class Link:
    """One connection: OpenSSL between two buffers, a socket below."""

    def __init__(self, link: socket.socket, context: ssl.SSLContext) -> None:
        self.socket = link
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self.into, self.out, server_side=True)
        self.shakes = True
        self.partial = 0

    def receive(self, raw: memoryview, plain: memoryview) -> int:
        """Plain bytes of one receive; -1 at the end."""
        got = self.socket.recv_into(raw)
        if not got:
            return -1
        self.into.write(raw[:got])
        have = 0
        try:
            if self.shakes:
                self.session.do_handshake()
                self.shakes = False
                self.flush()
            while True:
                have += int(self.session.read(len(plain) - have, plain[have:]))
        except ssl.SSLWantReadError:
            self.flush()
            return have

    def send(self, data: bytes | memoryview) -> None:
        done = 0
        while done < len(data):
            done += self.session.write(data[done:])
        self.flush()

    def flush(self) -> None:
        if self.out.pending:
            self.socket.sendall(self.out.read())


def serve(listener: socket.socket, context: ssl.SSLContext, handle: Callable[[Link, memoryview], None]) -> None:
    """Calls `handle` with what came over a connection, for ever."""
    raw = memoryview(bytearray(RECEIVE_BYTES))
    plain = memoryview(bytearray(2 * RECEIVE_BYTES))
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    links: dict[int, Link] = {}
    while True:
        for number, _ in poller.poll():
            if number == listener.fileno():
                link, _ = listener.accept()
                links[link.fileno()] = Link(link, context)
                poller.register(link, select.EPOLLIN)
                continue
            got = links[number].receive(raw, plain)
            if got < 0:
                poller.unregister(number)
                links.pop(number).socket.close()
            elif got:
                handle(links[number], plain[:got])


def produce(frame_bytes: int, reply: bytes, path: str) -> Callable[[Link, memoryview], None]:
    """A write of what came, and an answer to each whole frame. What is written stays, as in a log: a file that is cut
    now and then never reaches the disk, and is written at five times the pace."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def handle(link: Link, data: memoryview) -> None:
        os.write(file, data)
        whole, link.partial = divmod(link.partial + len(data), frame_bytes)
        if whole:
            link.send(reply * whole)

    return handle


def fetch(request_bytes: int, head: bytes, path: str, slice_bytes: int) -> Callable[[Link, memoryview], None]:
    """A read of a file and a send of it for each whole request."""
    file = os.open(path, os.O_RDONLY)
    end = os.fstat(file).st_size // slice_bytes * slice_bytes
    at = 0
    buffer = memoryview(bytearray(PIECE_BYTES))

    def handle(link: Link, data: memoryview) -> None:
        nonlocal at
        whole, link.partial = divmod(link.partial + len(data), request_bytes)
        for _ in range(whole):
            if slice_bytes + len(head) <= PIECE_BYTES:
                os.preadv(file, [buffer[: len(buffer) - len(head)][:slice_bytes]], at)
                link.send(head + buffer[:slice_bytes])
            else:
                link.send(head)
                for start in range(0, slice_bytes, PIECE_BYTES):
                    got = os.preadv(file, [buffer[: min(PIECE_BYTES, slice_bytes - start)]], at + start)
                    link.send(buffer[:got])
            at = (at + slice_bytes) % end

    return handle


def main(arguments: list[str]) -> int:
    what, certificate, size, canned, path, *more = arguments
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    reply = bytes.fromhex(canned)
    handle = produce(int(size), reply, path) if what == "produce" else fetch(int(size), reply, path, int(more[0]))
    serve(listener, context, handle)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
