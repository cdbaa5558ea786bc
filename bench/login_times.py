"""Whether the time of a failed login tells who exists: an unknown user beside a wrong password, by every mechanism.

    python -m bench.login_times [--tries N]

The wait after a failure is off (`connection.failed.authentication.delay.ms=0`), which nobody should do elsewhere. Tries
of both kinds take turns, in an order drawn anew each time, each on a connection of its own. What is timed is how long
each message of a login waits for its answer; a line of JSON for each says the medians in microseconds, and how far they
are apart.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.link import Link
from bench.rigs import DATA, Ours
from headrace.metadata.scram_credentials import MECHANISMS, salted_password
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tests.peers.kafka import free_port

APART_MAX = 0.01
"""What medians may differ by."""
USERS = 50
"""Real ones; there are as many names that nobody has, of the same length."""
WARM_UP = 300
PLAIN = "PLAIN"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
KINDS = ("wrong", "unknown")
SALT = b"0123456789abcdefghijklmno"


def name_of(kind: str, number: int) -> str:
    """A user with a wrong password, or nobody."""
    return f"{'user' if kind == 'wrong' else 'none'}-{number:03}"


class Door:
    """One login, message by message."""

    def __init__(self, port: int) -> None:
        self.link = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: SaslHandshakeRequest | SaslAuthenticateRequest) -> tuple[bytes, float]:
        """The answer, and how long it took in microseconds."""
        frame = encode_request(RequestHeader(request.API_KEY, 1, 1, "times"), request)
        began = time.perf_counter()
        self.link.sendall(frame)
        said = self.link.recv(4096)
        return said, (time.perf_counter() - began) * 1e6


def times_of(port: int, mechanism: str, name: str) -> list[float]:
    """How long each message of one failed login took."""
    door = Door(port)
    try:
        door.ask(SaslHandshakeRequest(mechanism))
        if mechanism == PLAIN:
            return [door.ask(SaslAuthenticateRequest(f"\0{name}\0{random.randbytes(8).hex()}".encode()))[1]]
        nonce = random.randbytes(12).hex().encode()
        said, first_us = door.ask(SaslAuthenticateRequest(b"n,,n=" + name.encode() + b",r=" + nonce))
        combined = said[said.index(b"r=" + nonce) + 2 :].partition(b",")[0]
        proof = b"A" * 43 + b"=" if mechanism.endswith("256") else b"A" * 86 + b"=="
        said, last_us = door.ask(SaslAuthenticateRequest(b"c=biws,r=" + combined + b",p=" + proof))
        assert b"invalid credentials" in said, said
        return [first_us, last_us]
    finally:
        door.link.close()


def compared(port: int, mechanism: str, tries: int) -> list[dict[str, Any]]:
    """A line of each message."""
    found: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for number in range(tries + WARM_UP):
        for kind in random.sample(KINDS, len(KINDS)):
            took = times_of(port, mechanism, name_of(kind, random.randrange(USERS)))
            if number >= WARM_UP:
                found[kind].append(took)
    lines = []
    for at, message in enumerate(["only"] if mechanism == PLAIN else ["first", "last"]):
        medians = {kind: median(each[at] for each in found[kind]) for kind in KINDS}
        apart = abs(medians["unknown"] / medians["wrong"] - 1)
        lines.append(
            {
                "mechanism": mechanism,
                "message": message,
                "tries": tries,
                **{f"{kind}_us": round(value, 2) for kind, value in medians.items()},
                "apart": round(apart, 4),
                "holds": apart <= APART_MAX,
            }
        )
    return lines


def broker_of() -> tuple[Ours, int]:
    """A broker that has USERS users of each mechanism, and the port where they log in."""
    broker, port = Ours(), free_port()
    broker.directory = DATA / "login-times"
    plain = f"PLAINTEXT://127.0.0.1:{broker.port}"
    users = " ".join(f'user_{name_of("wrong", number)}="right"' for number in range(USERS))
    broker.options = ("--set", f"advertised.listeners={plain},BARE://localhost:{port}")
    broker.settings = (
        f"listeners={plain},BARE://127.0.0.1:{port}",
        "inter.broker.listener.name=PLAINTEXT",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BARE:SASL_PLAINTEXT",
        f"sasl.enabled.mechanisms={PLAIN},{','.join(MECHANISMS)}",
        f"listener.name.bare.plain.sasl.jaas.config={MODULE} required {users};",
        "connection.failed.authentication.delay.ms=0",
    )
    return broker, port


def add_users(broker: Ours) -> None:
    """Of both mechanisms."""
    with Link(broker.port) as link:
        for mechanism in MECHANISMS.values():
            salted = salted_password(mechanism, b"right", SALT, 4096)
            made = [
                ScramCredentialUpsertion(name_of("wrong", number), mechanism.code, 4096, SALT, salted)
                for number in range(USERS)
            ]
            answer = link.ask(AlterUserScramCredentialsRequest([], made))
            assert not any(each.error_code for each in answer.results), answer


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.login_times", description=__doc__)
    parser.add_argument("--tries", type=int, default=10_000, help="of each kind and mechanism")
    asked = parser.parse_args(arguments)
    broker, port = broker_of()
    try:
        broker.start()
        add_users(broker)
        lines = [line for each in (PLAIN, *MECHANISMS) for line in compared(port, each, asked.tries)]
    finally:
        broker.clean()
    for line in lines:
        print(json.dumps(line), flush=True)
    return 0 if all(line["holds"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
