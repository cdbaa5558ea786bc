"""Strangers who want a broker to be of no use to others, one kind in a process of its own.

    python -m bench.attackers KIND PORTS SECONDS     prints how often it did what it does, as a line of JSON

PORTS is JSON, by the name of a listener: `LOGIN` (TLS and SASL), `BARE` (SASL without TLS), `TLS` (TLS alone). The
process has what others leave of the processor (`SCHED_IDLE`): on a machine of its own it would take nothing from the
broker but what it asks for. It comes from 127.0.0.2 on: whoever it stands beside is at 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field

from bench.wire_load import fetch_frame, pack_offset_into
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from tests.peers.tls13 import HANDSHAKE, RawTls, client_hello, record

HOSTS = 200
"""Addresses of this machine that a flood from many comes from."""
STALLED = 1000
AT_ONCE = 200
"""Connections that a flood has open at a time."""
KNOCKING = 40
"""Connections that the listener may not have accepted yet: more than its queue holds knock again, a second later."""
UNHEARD_S = 0.02
"""A connection that has said something is taken for accepted after so long."""
SLOW = 100
SLOW_FETCH_BYTES = 1 << 20
UPDATES = 400
"""Changes of keys that are sent at once."""
TOPIC = "read-slowly"
MB = 1 << 20

Ports = Mapping[str, int]
Script = Generator[bytes, bytes, None]
"""One connection: yields what it sends, is sent what has come, and closes at its end."""


def host(number: int) -> str:
    """One of this machine's addresses, none of them 127.0.0.1."""
    return f"127.0.{number // 250}.{2 + number % 250}"


@dataclass
class Knocker:
    """Plays a script on a number of connections at once, each anew as soon as it has ended."""

    port: int
    script: Callable[[], Script]
    at_once: int = AT_ONCE
    hosts: int = 1
    done: int = 0
    _knocking: dict[int, socket.socket] = field(default_factory=dict)
    _unheard: dict[int, float] = field(default_factory=dict)
    _open: dict[int, tuple[socket.socket, Script]] = field(default_factory=dict)
    _poller: select.epoll = field(default_factory=select.epoll)
    _next: int = 0

    def run(self, seconds: float) -> int:
        """How many ended."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            while len(self._open) + len(self._knocking) < self.at_once and self._has_room():
                self._knock()
            for number, _ in self._poller.poll(0.05):
                if number in self._knocking:
                    self._begin(number)
                else:
                    self._go_on(number)
        for link in (*self._knocking.values(), *(link for link, _ in self._open.values())):
            link.close()
        return self.done

    def _has_room(self) -> bool:
        """Whether those that may not have been accepted yet leave room in the listener's queue."""
        now = time.perf_counter()
        while self._unheard and next(iter(self._unheard.values())) < now - UNHEARD_S:
            del self._unheard[next(iter(self._unheard))]
        return len(self._knocking) + len(self._unheard) < KNOCKING

    def _knock(self) -> None:
        link = socket.socket()
        link.setblocking(False)
        self._next += 1
        link.bind((host(self._next % self.hosts), 0))
        link.connect_ex(("127.0.0.1", self.port))
        self._knocking[link.fileno()] = link
        self._poller.register(link.fileno(), select.EPOLLOUT)

    def _begin(self, number: int) -> None:
        self._open[number] = link, script = self._knocking.pop(number), self.script()
        self._unheard[number] = time.perf_counter()
        self._poller.modify(number, select.EPOLLIN)
        try:
            link.send(next(script))
        except OSError:
            self._end(number)

    def _go_on(self, number: int) -> None:
        link, script = self._open[number]
        self._unheard.pop(number, None)
        try:
            came = link.recv(65536)
            if came:
                link.send(script.send(came))
                return
        except (StopIteration, OSError):
            pass
        self._end(number)

    def _end(self, number: int) -> None:
        link, _ = self._open.pop(number)
        self._unheard.pop(number, None)
        self._poller.unregister(number)
        link.close()
        self.done += 1


# --- what they say


def frame(request: SaslHandshakeRequest | SaslAuthenticateRequest, version: int) -> bytes:
    return encode_request(RequestHeader(request.API_KEY, version, 1, "attack"), request)


def hello() -> Script:
    """A handshake that costs the server its part, and is left then."""
    yield record(HANDSHAKE, client_hello(random.randbytes(32)), 0x0301)


def stalled() -> Script:
    yield record(HANDSHAKE, client_hello(random.randbytes(32)), 0x0301)[:80]


def wrong_plain() -> Script:
    said = yield frame(SaslHandshakeRequest("PLAIN"), 1)
    said = yield frame(SaslAuthenticateRequest(b"\0nobody\0" + random.randbytes(8).hex().encode()), 2)
    while said:
        said = yield b""


def wrong_scram() -> Script:
    nonce = random.randbytes(12).hex().encode()
    yield frame(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    said = yield frame(SaslAuthenticateRequest(b"n,,n=nobody,r=" + nonce), 2)
    at = said.find(b"r=" + nonce)
    combined = said[at + 2 :].partition(b",")[0]
    proof = b"c=biws,r=" + combined + b",p=" + b"A" * 43 + b"="
    said = yield frame(SaslAuthenticateRequest(proof), 2)
    while said:
        said = yield b""


def oversized() -> Script:
    """As much as is taken before a login, and it never ends."""
    said = yield (500_000).to_bytes(4, "big") + b"\0\x11\0\x01" + bytes(200_000)
    while said:
        said = yield b""


def too_large() -> Script:
    said = yield (100 * MB).to_bytes(4, "big") + bytes(1000)
    while said:
        said = yield b""


def garbage() -> Script:
    said = yield random.randbytes(1000)
    while said:
        said = yield b""


# --- who has shaken hands


def _each(begin: Callable[[int], socket.socket], count: int) -> Iterator[socket.socket]:
    for number in range(count):
        with contextlib.suppress(OSError):
            yield begin(number)


def key_updates(ports: Ports, seconds: float) -> int:
    """Changes keys as quickly as it can, on one connection after the other."""
    until, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        link = socket.socket()
        link.settimeout(1.0)
        try:
            link.bind((host(done % HOSTS), 0))
            link.connect(("127.0.0.1", ports["TLS"]))
            tls = RawTls(link)
            tls.shake_hands()
            while time.perf_counter() < until:
                link.sendall(b"".join(tls.key_update(wants_one=True) for _ in range(UPDATES)))
                done += UPDATES
        except OSError:
            pass
        finally:
            link.close()
    return done


def slow_readers(ports: Ports, seconds: float) -> int:
    """Asks for megabytes on many connections and takes a few bytes of them now and then."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def begin(number: int) -> socket.socket:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        link.settimeout(5.0)
        link.bind((host(number), 0))
        link.connect(("127.0.0.1", ports["TLS"]))
        secured = context.wrap_socket(link)
        asked, offset_at = fetch_frame(TOPIC, SLOW_FETCH_BYTES)
        pack_offset_into(asked, offset_at, 0)
        secured.sendall(bytes(asked) * 4)
        return secured

    links = list(_each(begin, SLOW))
    until, taken = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        for link in links:
            with contextlib.suppress(OSError):
                taken += len(link.recv(1024))
        time.sleep(0.05)
    return taken


KINDS: dict[str, Callable[[Ports, float], int]] = {
    "stalled-handshakes": lambda ports, s: Knocker(ports["LOGIN"], stalled, STALLED, HOSTS).run(s),
    "handshakes-one-address": lambda ports, s: Knocker(ports["LOGIN"], hello).run(s),
    "handshakes-many-addresses": lambda ports, s: Knocker(ports["LOGIN"], hello, hosts=HOSTS).run(s),
    "failing-plain": lambda ports, s: Knocker(ports["BARE"], wrong_plain).run(s),
    "failing-scram": lambda ports, s: Knocker(ports["BARE"], wrong_scram).run(s),
    "oversized": lambda ports, s: Knocker(ports["BARE"], oversized).run(s),
    "too-large": lambda ports, s: Knocker(ports["BARE"], too_large).run(s),
    "garbage": lambda ports, s: Knocker(ports["BARE"], garbage).run(s),
    "garbage-tls": lambda ports, s: Knocker(ports["LOGIN"], garbage, hosts=HOSTS).run(s),
    "key-updates": key_updates,
    "slow-readers": slow_readers,
}
"""What each attack is, by the name of its row."""


def main(arguments: list[str]) -> int:
    kind, ports, seconds = arguments
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    print("ready", flush=True)
    print(json.dumps(KINDS[kind](json.loads(ports), float(seconds))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
