"""One blocking connection over which a test sends any message in any version, and reads the decoded answer."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

from headrace.wire.frame import RequestHeader, decode_response_header, encode_request
from headrace.wire.messages import response_class


class Link:
    """Asks one request at a time. Raises OSError when the connection goes."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """The decoded answer to `request`."""
        self.correlation_id += 1
        header = RequestHeader(request.API_KEY, version, self.correlation_id, "test")
        frame = self.ask_bytes(encode_request(header, request))
        correlation_id, at = decode_response_header(frame, request.API_KEY, version)
        assert correlation_id == self.correlation_id
        return response_class(request.API_KEY).decode(frame, version, at)

    def ask_bytes(self, frame: bytes) -> bytes:
        """The answer's frame, without its size, to a whole request frame."""
        self.socket.sendall(frame)
        return self.receive(int.from_bytes(self.receive(4), "big"))

    def receive(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        data = b""
        while len(data) < size:
            part = self.socket.recv(min(1 << 20, size - len(data)))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data
