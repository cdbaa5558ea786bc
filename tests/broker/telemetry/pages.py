"""One blocking connection to a node's pages that sends bytes as they are given, and reads answers."""

from __future__ import annotations

import socket
from typing import NamedTuple, Self


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Web:
    def __init__(self, port: int, timeout_s: float = 60.0, *, source: str = "127.0.0.1") -> None:
        """`source`: the address of this machine that the node sees."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s, (source, 0))
        self._came = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _more(self) -> None:
        got = self.socket.recv(65536)
        if not got:
            raise ConnectionError("closed")
        self._came += got

    def answer(self, *, to_head: bool = False) -> Answer:
        """The next answer; one to HEAD has no body."""
        while b"\r\n\r\n" not in self._came:
            self._more()
        head, self._came = self._came.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = 0 if to_head else int(headers["content-length"])
        while len(self._came) < length:
            self._more()
        body, self._came = self._came[:length], self._came[length:]
        return Answer(int(first.split()[1]), headers, body)

    def is_closed(self) -> bool:
        """Whether the server closes the connection without another byte."""
        try:
            return not self._came and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def get(self, path: str, *headers: str, method: str = "GET") -> Answer:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        return self.answer(to_head=method == "HEAD")


def get(port: int, path: str) -> Answer:
    """One page over a connection of its own."""
    with Web(port) as web:
        return web.get(path, "Connection: close")
