"""Between clients and a broker: all frames pass as they are, but metadata may deny that partitions have leaders, and
the broker may be away: nobody listens, or somebody listens and never answers.

The broker advertises the proxy's address, so every connection comes through it. `deny_leaders` has each client (by its
client id) told LEADER_NOT_AVAILABLE a number of times; what it was told is counted in `denied`.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter, deque
from contextlib import suppress
from typing import Self

from headrace.testing.running import broker as running_broker
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, decode_request_header, decode_response_header, encode_response
from headrace.wire.messages.k03_metadata import MetadataResponse

from .kafka import free_port


class ProxiedBroker:
    """A broker of its own behind a proxy; `bootstrap` is the proxy's."""

    def __init__(self) -> None:
        self.denied: Counter[str] = Counter()
        self._leaderless: set[tuple[str, int]] = set()
        self._times = 0
        self._silent = False
        self.port = free_port()  # nobody else gets it while the broker is away
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._broker = running_broker({"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"})
        self._sockets: list[socket.socket] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._target = self._broker.__enter__().port
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        self._broker.__exit__(None, None, None)

    def leave(self) -> None:
        """Connections are cut, and new ones refused, until `come_back`."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def come_back(self) -> None:
        """Be there again, at the same address."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def fall_silent(self) -> None:
        """Whatever is asked from now on is never answered, until `speak`; what was asked meanwhile not even then."""
        self._silent = True

    def speak(self) -> None:
        """Answer again."""
        self._silent = False

    def deny_leaders(self, *partitions: tuple[str, int], times: int) -> None:
        """From now on each client hears so many times that these have no leader; its connections are cut before."""
        self.denied.clear()
        self._leaderless, self._times = set(partitions), times
        self.hang_up()

    def hang_up(self) -> None:
        """Cuts every connection."""
        while self._sockets:
            with suppress(OSError):
                self._sockets.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, broker]
            asked: deque[RequestHeader] = deque()
            threading.Thread(target=self._carry, args=(client, broker, asked), daemon=True).start()
            threading.Thread(target=self._carry_back, args=(broker, client, asked), daemon=True).start()

    def _carry(self, client: socket.socket, broker: socket.socket, asked: deque[RequestHeader]) -> None:
        with client, client.makefile("rb") as stream, suppress(OSError):
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head, "big"))
                if self._silent:
                    continue
                asked.append(decode_request_header(frame)[0])
                broker.sendall(head + frame)
        with suppress(OSError):
            broker.shutdown(socket.SHUT_RDWR)

    def _carry_back(self, broker: socket.socket, client: socket.socket, asked: deque[RequestHeader]) -> None:
        with broker, broker.makefile("rb") as stream, suppress(OSError):
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head, "big"))
                header = asked.popleft()  # answers come in the order of their requests
                metadata = header.api_key == ApiKey.METADATA
                client.sendall(self._without_leaders(header, frame) if metadata else head + frame)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _without_leaders(self, header: RequestHeader, frame: bytes) -> bytes:
        key, version, client_id = header.api_key, header.api_version, header.client_id or ""
        correlation_id, at = decode_response_header(frame, key, version)
        response = MetadataResponse.decode(memoryview(frame), version, at)
        if self.denied[client_id] < self._times:
            for topic in response.topics:
                for partition in topic.partitions:
                    if (topic.name, partition.partition_index) in self._leaderless:
                        partition.error_code, partition.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1
                        self.denied[client_id] += 1
        return bytes(encode_response(key, version, correlation_id, response))


__all__ = ["ProxiedBroker"]
