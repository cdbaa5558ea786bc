"""The machine's own limit: bare loops that move the same bytes and know nothing of Kafka, under the same load.

`produce`: read frames of a known size, write them to a file, answer each with a canned reply.
`fetch`: read requests of a known size, answer each with a canned head and a slice of a file by sendfile.

    python -m bench.limits produce FRAME_BYTES REPLY_HEX FILE        prints its port, runs until killed
    python -m bench.limits fetch REQUEST_BYTES HEAD_HEX FILE SLICE_BYTES
"""

from __future__ import annotations

import os
import select
import socket
import sys

RECEIVE_BYTES = 1 << 20
FILE_BYTES_MAX = 1 << 30


def serve_produce(listener: socket.socket, frame_bytes: int, reply: bytes, path: str) -> None:
    """A recv, a write, a send: what a broker cannot do without."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    links: dict[int, socket.socket] = {}
    partial: dict[int, int] = {}
    written = 0
    while True:
        for number, _ in poller.poll():
            if number == listener.fileno():
                link, _ = listener.accept()
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                links[link.fileno()] = link
                partial[link.fileno()] = 0
                poller.register(link, select.EPOLLIN)
                continue
            got = links[number].recv_into(buffer)
            if not got:
                poller.unregister(number)
                links.pop(number).close()
                continue
            written += os.write(file, buffer[:got])
            if written > FILE_BYTES_MAX:
                os.ftruncate(file, 0)
                os.lseek(file, 0, os.SEEK_SET)
                written = 0
            whole, partial[number] = divmod(partial[number] + got, frame_bytes)
            if whole:
                links[number].sendall(reply * whole)


def serve_fetch(listener: socket.socket, request_bytes: int, head: bytes, path: str, slice_bytes: int) -> None:
    """A recv, a send, a sendfile."""
    file = os.open(path, os.O_RDONLY)
    end = os.fstat(file).st_size // slice_bytes * slice_bytes
    at = 0
    while True:
        link, _ = listener.accept()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while link.recv(request_bytes, socket.MSG_WAITALL):
            link.sendall(head, socket.MSG_MORE)
            sent = 0
            while sent < slice_bytes:
                sent += os.sendfile(link.fileno(), file, at + sent, slice_bytes - sent)
            at = (at + slice_bytes) % end
        link.close()


def main(arguments: list[str]) -> int:
    what, size, canned, path, *more = arguments
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    if what == "produce":
        serve_produce(listener, int(size), bytes.fromhex(canned), path)
    else:
        serve_fetch(listener, int(size), bytes.fromhex(canned), path, int(more[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
