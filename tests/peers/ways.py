"""The ways between the nodes of a cluster, with a proxy in each: it holds up, delays or breaks what passes.

Every node has a port for each other node, and reaches it through that one alone: as a voter by the addresses in its
own server.properties, and as a replica by the address that the other advertises to nodes, where the first frame of a
connection says who has made it. What is held up arrives when the way is open again, as after a cable was out.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import permutations

LOOK_S = 0.02
"""How often what is held up looks whether it may go on."""
PART_BYTES = 64 * 1024
NAMED = re.compile(rb"broker-(\d+)-")
"""How a replica that fetches names itself, as its client id."""


class Ways:
    """`closed` and `delays_s` are by (from, to): of what one node says to another."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.nodes = list(nodes)
        self.closed: set[tuple[int, int]] = set()
        self.delays_s: dict[tuple[int, int], float] = {}
        self._sockets: list[socket.socket] = []
        self._listeners: list[socket.socket] = []
        self._is_over = False

    # --- what may be wrong

    def cut(self, a: int, b: int) -> None:
        """Nothing passes between two nodes."""
        self.closed |= {(a, b), (b, a)}

    def cut_off(self, node: int) -> None:
        """Nothing passes between a node and the others."""
        for other in self.nodes:
            if other != node:
                self.cut(node, other)

    def delay(self, seconds: float) -> None:
        """Each piece of what any node says to another takes so much longer."""
        self.delays_s = dict.fromkeys(permutations(self.nodes, 2), seconds)

    def break_all(self) -> None:
        """Every connection ends here and now; new ones may be made."""
        while self._sockets:
            with suppress(OSError):
                self._sockets.pop().shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Everything passes, at once."""
        self.closed.clear()
        self.delays_s.clear()

    # --- the proxies

    def open(self, port: int, target: int, node: int, source: int | None = None) -> None:
        """From `port` to the port `target` of a node; `source` None: who comes says it."""
        listener = socket.create_server(("127.0.0.1", port))
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, target, node, source), daemon=True).start()

    def close(self) -> None:
        """Ends all."""
        self._is_over = True
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.break_all()

    def _accept(self, listener: socket.socket, target: int, node: int, source: int | None) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near, target, node, source), daemon=True).start()

    def _carry(self, near: socket.socket, target: int, node: int, source: int | None) -> None:
        with near, suppress(OSError):
            first = b""
            if source is None:
                first = near.recv(PART_BYTES)
                named = NAMED.search(first)
                if named is None:
                    return  # a probe, that says nothing
                source = int(named[1])
            way, back = (source, node), (node, source)
            self._wait(way)  # it is reached no earlier than what it is sent
            with socket.create_connection(("127.0.0.1", target)) as far:
                self._sockets += [near, far]
                if self._is_over:
                    return
                returning = threading.Thread(target=self._pass, args=(far, near, back), daemon=True)
                returning.start()
                if first:
                    self._hand_on(first, far, way)
                self._pass(near, far, way)
                returning.join()

    def _pass(self, sender: socket.socket, receiver: socket.socket, way: tuple[int, int]) -> None:
        with suppress(OSError):
            while part := sender.recv(PART_BYTES):
                self._hand_on(part, receiver, way)
        self._wait(way)
        for each in (sender, receiver):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _hand_on(self, part: bytes, receiver: socket.socket, way: tuple[int, int]) -> None:
        time.sleep(self.delays_s.get(way, 0.0))
        self._wait(way)
        receiver.sendall(part)

    def _wait(self, way: tuple[int, int]) -> None:
        while way in self.closed and not self._is_over:
            time.sleep(LOOK_S)


__all__ = ["Ways"]
