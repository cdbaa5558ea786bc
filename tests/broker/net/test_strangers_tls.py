"""Strangers at listeners of TLS and SASL: whatever they do, or leave undone, they end, and a neighbour goes on."""

from __future__ import annotations

import gc
import random
import resource
import socket
import ssl
import subprocess
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker.bearer import MODULE, message
from broker.raw import Raw, batch, create_topic, produce
from broker.sasl import FIXED_TEXT, PLAIN_ANN, handshake, plain, token
from fuzz.mutations import mutated
from peers import tls13
from peers.certificates import Authority, write_trust_pem
from peers.tls13 import ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, RawTls, client_hello, handshake_message, record

from headrace.broker.broker import Broker
from headrace.broker.net.connection import Connection
from headrace.broker.net.server import LINES_PER_S
from headrace.metadata.scram_credentials import SCRAM_SHA_256
from headrace.security.jaas import PLAIN_MODULE
from headrace.security.scram import MESSAGE_BYTES_MAX, ScramClient
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest

PATIENCE_S = 60.0
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
NEIGHBOUR_S = 5.0
"""One answer to a neighbour takes no longer, whoever is at the door. Bounds a hang, and is no measurement."""


@dataclass
class Guarded:
    """A broker with a listener of each protocol, and what its clients need."""

    broker: TestBroker
    trust: Path

    def port(self, name: str) -> int:
        return self.broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == name))

    def connected(self, name: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port(name)), timeout=PATIENCE_S)

    def secured(self, name: str) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.trust)
        return context.wrap_socket(self.connected(name), server_hostname="localhost")

    def open_logins(self) -> int:
        return self.broker.call(lambda inside: len(inside.server.shared.logins._deadlines))

    def throttled(self) -> int:
        return self.broker.call(lambda inside: inside.metrics.counter("connections.throttled").value)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.01)


SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,LOGIN://127.0.0.1:0,BARE://127.0.0.1:0",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,LOGIN:SASL_SSL,BARE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    **{f"listener.name.{name}.oauthbearer.sasl.jaas.config": MODULE for name in ("login", "bare")},
    **{
        f"listener.name.{name}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ann="pencil";'
        for name in ("login", "bare")
    },
    "connection.failed.authentication.delay.ms": "20",
    "connection.login.timeout.ms": "60000",
    "max.tls.handshake.rate.per.ip": "100000",
}


def guarded_broker(folder: Path, **more: str) -> tuple[dict[str, str], Path]:
    authority = Authority.new()
    store = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server().write_pem(folder / "server.pem")),
    }
    given = {name.replace("_", "."): value for name, value in more.items()}
    return {**SETTINGS, **store, **given}, write_trust_pem(folder / "ca.pem", [authority])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    settings, trust = guarded_broker(tmp_path_factory.mktemp("strangers"))
    with running_broker(settings) as running:
        made = Guarded(running, trust)
        create_topic(made.port("PLAINTEXT"), "neighbours")
        yield made


@pytest.fixture
def neighbour(guarded: Guarded) -> Iterator[Callable[[], None]]:
    """Produces over TLS once for each call, on a connection that is there all the time."""
    with guarded.secured("SSL") as link:
        raw = Raw.over(link)

        def ask() -> None:
            began = time.monotonic()
            answer = raw.ask(produce("neighbours", batch(b"x")), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert time.monotonic() - began < NEIGHBOUR_S

        ask()
        yield ask
        ask()


# --- who goes


@pytest.mark.parametrize("name", ["PLAINTEXT", "BARE", "SSL", "LOGIN"])
def test_who_is_sent_away_leaves_nothing_for_the_garbage_collection(guarded: Guarded, name: str) -> None:
    """It holds the loop for milliseconds, and strangers may come by the thousand."""

    links = [guarded.connected(name) for _ in range(5)]
    ports = {link.getsockname()[1] for link in links}

    def come(broker: Broker) -> list[weakref.ref[Connection]]:
        return [weakref.ref(each) for each in broker.server.connections if each.stream.peer_port in ports]

    guarded.until(lambda: len(guarded.broker.call(come)) == len(links))
    known = guarded.broker.call(come)
    gc.collect()
    gc.disable()
    try:
        for link in links:
            link.sendall(b"garbage that is no frame, and no record of TLS either")
            assert wait_for_end(link)
        guarded.until(lambda: all(each() is None for each in known))
    finally:
        gc.enable()


def wait_for_end(link: socket.socket) -> bool:
    """Whether the other side has ended; what it says before does not matter."""
    with link, suppress(ConnectionResetError):
        while link.recv(4096):
            pass
    return True


# --- who stops


def hello() -> bytes:
    return record(HANDSHAKE, client_hello(random.randbytes(32)), 0x0301)


def silent(guarded: Guarded) -> socket.socket:
    return guarded.connected("SSL")


def one_byte(guarded: Guarded) -> socket.socket:
    link = guarded.connected("LOGIN")
    link.sendall(b"\x16")
    return link


def half_a_hello(guarded: Guarded) -> socket.socket:
    link = guarded.connected("SSL")
    link.sendall(hello()[:80])
    return link


def only_a_hello(guarded: Guarded) -> socket.socket:
    link = guarded.connected("LOGIN")
    link.sendall(hello())
    return link


def hello_and_half_an_answer(guarded: Guarded) -> socket.socket:
    link = guarded.connected("SSL")
    link.sendall(hello())
    link.recv(1)
    link.sendall(record(DATA, bytes(60))[:30])
    return link


def open_and_silent(guarded: Guarded) -> socket.socket:
    return guarded.secured("LOGIN")


def half_a_frame(guarded: Guarded) -> socket.socket:
    link = guarded.secured("LOGIN")
    link.sendall(b"\0\0\1\0\0\x12")
    return link


def knows_the_versions(guarded: Guarded) -> socket.socket:
    link = guarded.secured("LOGIN")
    Raw.over(link).ask(VERSIONS, 3)
    return link


def has_named_a_mechanism(guarded: Guarded) -> socket.socket:
    link = guarded.connected("BARE")
    handshake(Raw.over(link))
    return link


def half_a_token(guarded: Guarded) -> socket.socket:
    link = guarded.secured("LOGIN")
    raw = Raw.over(link)
    handshake(raw)
    link.sendall(raw.frame(SaslAuthenticateRequest(PLAIN_ANN), 2)[:-3])
    return link


def half_a_raw_token(guarded: Guarded) -> socket.socket:
    link = guarded.connected("BARE")
    handshake(Raw.over(link), version=0)
    link.sendall(b"\0\0\0\x40abc")
    return link


def half_a_scram(guarded: Guarded) -> socket.socket:
    link = guarded.secured("LOGIN")
    raw = Raw.over(link)
    handshake(raw, "SCRAM-SHA-256")
    assert token(raw, ScramClient(SCRAM_SHA_256, "ann", "x", random.randbytes).first()).error_code == 0
    return link


def half_a_handshake_of_tls_1_2(guarded: Guarded) -> socket.socket:
    context = ssl.create_default_context(cafile=guarded.trust)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    said, says = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(said, says, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    link = guarded.connected("LOGIN")
    link.sendall(says.read())
    while b"\x0e\0\0\0" not in (heard := link.recv(65536)):  # the server's part is done
        said.write(heard)
    said.write(heard)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    link.sendall(says.read()[:40])
    return link


def refused_and_says_no_goodbye(guarded: Guarded) -> socket.socket:
    link = guarded.connected("BARE")
    raw = Raw.over(link)
    handshake(raw, "OAUTHBEARER")
    assert b"invalid_token" in token(raw, message("no-token")).auth_bytes
    return link


def failed_and_not_read(guarded: Guarded) -> socket.socket:
    link = guarded.connected("BARE")
    raw = Raw.over(link)
    handshake(raw)
    raw.send(SaslAuthenticateRequest(b"\0ann\0wrong"), 2)
    return link


STATES = (
    silent,
    one_byte,
    half_a_hello,
    only_a_hello,
    hello_and_half_an_answer,
    open_and_silent,
    half_a_frame,
    knows_the_versions,
    has_named_a_mechanism,
    half_a_token,
    half_a_raw_token,
    half_a_scram,
    half_a_handshake_of_tls_1_2,
    refused_and_says_no_goodbye,
    failed_and_not_read,
)


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.soak)])
def test_whoever_stops_in_any_state_holds_nobody_up(
    guarded: Guarded, neighbour: Callable[[], None], stack: ExitStack, count: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 3 * count + 500:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * count + 500), hard))
    for number in range(count):
        stack.enter_context(STATES[number % len(STATES)](guarded))
        if number % 10 == 0:
            neighbour()
    assert guarded.open_logins() > count // 2
    stack.close()
    guarded.until(lambda: guarded.open_logins() == 0)
    guarded.until(lambda: guarded.broker.call(lambda inside: len(inside.server.connections)) == 1)
    held = guarded.broker.call(lambda inside: (inside.server.shared.logins._held, inside.server.requests_budget.used))
    assert held == (0, 0)


def test_no_state_lasts(tmp_path: Path, stack: ExitStack) -> None:
    settings, trust = guarded_broker(tmp_path, connection_login_timeout_ms="1000")
    guarded = Guarded(stack.enter_context(running_broker(settings)), trust)
    with guarded.secured("SSL") as link:
        inside = Raw.over(link)
        strangers = [(state, stack.enter_context(state(guarded))) for state in STATES]
        for state, stranger in strangers:
            try:
                while stranger.recv(65536):
                    pass
            except TimeoutError:
                raise AssertionError(f"{state.__name__} lasts") from None
            except OSError:
                pass
        # Who is in stays, however long ago that was.
        assert inside.ask(VERSIONS, 3).error_code == 0
        assert guarded.open_logins() == 0


def test_bytes_one_by_one_prolong_nothing(tmp_path: Path, stack: ExitStack) -> None:
    settings, trust = guarded_broker(tmp_path, connection_login_timeout_ms="600")
    guarded = Guarded(stack.enter_context(running_broker(settings)), trust)
    data = hello()
    with guarded.connected("SSL") as drip:
        began = time.monotonic()
        with pytest.raises(OSError):
            for at in range(len(data)):
                drip.sendall(data[at : at + 1])
                time.sleep(0.02)
        assert 0.5 <= time.monotonic() - began < 0.02 * len(data)


# --- who comes too often


@pytest.mark.slow
def test_an_address_begins_only_so_many_handshakes(tmp_path: Path, stack: ExitStack) -> None:
    settings, trust = guarded_broker(tmp_path, max_tls_handshake_rate_per_ip="4")
    guarded = Guarded(stack.enter_context(running_broker(settings)), trust)
    strangers = [stack.enter_context(guarded.connected("SSL")) for _ in range(12)]
    guarded.until(lambda: guarded.broker.call(lambda inside: len(inside.server.handshakes)) >= 4)
    for link in strangers:
        link.sendall(hello())
    # Others have their own, and what is no TLS is not counted.
    with Raw(guarded.port("SSL"), source="127.0.0.2") as other:
        RawTls(other.socket).shake_hands()
    with Raw(guarded.port("PLAINTEXT")) as raw:
        assert raw.ask(VERSIONS, 3).error_code == 0
    assert guarded.broker.call(lambda inside: len(inside.server.handshakes)) > 0
    for link in strangers:
        assert link.recv(1) == b"\x16"  # each has its turn
    for link in strangers:
        link.close()
    guarded.until(lambda: guarded.open_logins() == 0)


@pytest.mark.slow
def test_nobody_waits_for_longer_than_a_login_may_take(tmp_path: Path, stack: ExitStack) -> None:
    few = {"max_tls_handshake_rate_per_ip": "1", "connection_login_timeout_ms": "4000"}
    settings, trust = guarded_broker(tmp_path, **few)
    guarded = Guarded(stack.enter_context(running_broker(settings)), trust)
    strangers = [stack.enter_context(guarded.connected("SSL")) for _ in range(8)]
    guarded.until(lambda: guarded.throttled() >= 5)
    closed = [link for link in strangers if Raw.over(link).is_closed(0.05)]
    assert 4 <= len(closed) <= 5
    for link in strangers:
        link.close()  # amid the wait, too
    guarded.until(lambda: guarded.broker.call(lambda inside: len(inside.server.handshakes)) == 0)


# --- who keeps TLS busy


def frame(request: ApiVersionsRequest, version: int = 3) -> bytes:
    return encode_request(RequestHeader(request.API_KEY, version, 7, "raw"), request)


def answer(tls: RawTls) -> bytes:
    return tls.receive(int.from_bytes(tls.receive(4), "big"))


@pytest.mark.parametrize("wants_one", [False, True])
def test_keys_may_change_and_not_all_the_time(
    guarded: Guarded, neighbour: Callable[[], None], *, wants_one: bool
) -> None:
    with RawTls.connected(guarded.port("SSL")) as tls:
        for _ in range(3):
            tls.socket.sendall(tls.key_update(wants_one=wants_one) + tls.sealed(DATA, frame(VERSIONS)))
            assert answer(tls)[:4] == (7).to_bytes(4, "big")
        with pytest.raises(OSError):
            for _ in range(50):
                tls.socket.sendall(b"".join(tls.key_update(wants_one=wants_one) for _ in range(200)))
                neighbour()
            assert tls.is_closed()
            raise ConnectionError("closed at last")


def changed(data: bytes, at: int, to: int) -> bytes:
    return data[:at] + bytes([to]) + data[at + 1 :]


BEFORE: dict[str, Callable[[], bytes]] = {
    "empty": lambda: record(HANDSHAKE, b""),
    "longest": lambda: record(HANDSHAKE, bytes(65535)),
    "of no kind": lambda: record(99, b"x" * 40),
    "data": lambda: record(DATA, b"x" * 40),
    "an alert": lambda: record(ALERT, b"\x02\x28"),
    "warnings": lambda: record(ALERT, b"\x01\x5a") * 50,
    "changes of ciphers": lambda: record(CHANGE_CIPHER_SPEC, b"\x01") * 50,
    "no version": lambda: changed(changed(hello(), 1, 0), 2, 0),
    "SSL 2": lambda: b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + bytes(40),
    "SSL 3": lambda: record(HANDSHAKE, changed(client_hello(bytes(32), versions=(0x0300,)), 5, 0), 0x0300),
    "TLS 1.0 alone": lambda: record(HANDSHAKE, client_hello(bytes(32), versions=(0x0301,)), 0x0301),
    "a huge message": lambda: record(HANDSHAKE, b"\x01\xff\xff\xff" + bytes(1000)),
    "an unknown message": lambda: record(HANDSHAKE, handshake_message(77, bytes(20))),
    "a hello cut off": lambda: record(HANDSHAKE, handshake_message(1, client_hello(bytes(32))[4:60])),
    "a bad share": lambda: record(HANDSHAKE, client_hello(bytes(31)), 0x0301),
    "an update of keys": lambda: record(HANDSHAKE, handshake_message(tls13.KEY_UPDATE, b"\x01")),
    "two hellos": lambda: hello() + hello(),
}


@pytest.mark.parametrize("what", BEFORE)
def test_what_is_no_handshake_ends(guarded: Guarded, neighbour: Callable[[], None], what: str) -> None:
    with guarded.connected("LOGIN") as link:
        with suppress(OSError):  # it may have ended by the first bytes
            link.sendall(BEFORE[what]())
            link.shutdown(socket.SHUT_WR)
        assert RawTls(link).is_closed()


AFTER: dict[str, Callable[[RawTls], bytes]] = {
    "not encrypted": lambda _: record(DATA, b"x" * 40),
    "changed on its way": lambda tls: changed(tls.sealed(DATA, b"x" * 40), 20, 0),
    "replayed": lambda tls: tls.sealed(DATA, b"") * 2,
    "too long": lambda tls: tls.sealed(DATA, bytes((1 << 14) + 1)),
    "longest": lambda _: record(DATA, bytes(65535)),
    "empty ones": lambda tls: b"".join(tls.sealed(DATA, b"") for _ in range(100)),
    "padding alone": lambda tls: tls.sealed(0, b"", padding=100),
    "another hello": lambda tls: tls.sealed(HANDSHAKE, client_hello(bytes(32))),
    "a bad update": lambda tls: tls.sealed(HANDSHAKE, handshake_message(tls13.KEY_UPDATE, b"\x07")),
    "half an update and data": lambda tls: tls.sealed(HANDSHAKE, b"\x18\x00") + tls.sealed(DATA, b"x"),
    "a change of ciphers": lambda tls: tls.sealed(CHANGE_CIPHER_SPEC, b"\x01"),
    "an alert": lambda tls: tls.sealed(ALERT, b"\x02\x28"),
    "a long alert": lambda tls: tls.sealed(ALERT, bytes(100)),
    "data behind a farewell": lambda tls: tls.sealed(ALERT, b"\x01\x00") + tls.sealed(DATA, frame(VERSIONS)),
}


@pytest.mark.parametrize("what", AFTER)
def test_what_is_no_record_ends(guarded: Guarded, neighbour: Callable[[], None], what: str) -> None:
    with RawTls.connected(guarded.port("SSL")) as tls:
        tls.socket.sendall(AFTER[what](tls))
        assert tls.is_closed()


def s_client(guarded: Guarded, says: str, *more: str) -> str:
    """What OpenSSL's own client prints when it is told `says`."""
    where = f"127.0.0.1:{guarded.port('SSL')}"
    command = ["openssl", "s_client", "-connect", where, "-CAfile", str(guarded.trust), *more]
    done = subprocess.run(command, input=says, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.stdout + done.stderr


def test_nothing_is_negotiated_again(guarded: Guarded, neighbour: Callable[[], None]) -> None:
    assert "no renegotiation" in s_client(guarded, "R\n", "-tls1_2").lower()


def test_a_fallback_that_was_not_needed_is_refused(guarded: Guarded, neighbour: Callable[[], None]) -> None:
    assert "inappropriate fallback" in s_client(guarded, "Q\n", "-tls1_2", "-fallback_scsv").lower()


# --- who logs in with too much


def test_an_oversized_first_message_is_not_kept(guarded: Guarded) -> None:
    first = b"n,,n=ann,r=" + b"a" * MESSAGE_BYTES_MAX
    with guarded.secured("LOGIN") as link:
        raw = Raw.over(link)
        assert handshake(raw, "SCRAM-SHA-256").error_code == 0
        said = token(raw, first)
        assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert said.error_message == FIXED_TEXT.format("SCRAM-SHA-256")


def test_an_oversized_mechanism_does_not_fill_the_log(guarded: Guarded, capfd: pytest.CaptureFixture[str]) -> None:
    with guarded.connected("BARE") as link:
        assert handshake(Raw.over(link), "M" * 30_000).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert Raw.over(link).is_closed()
    said = capfd.readouterr()
    assert "M" * 1000 not in said.out + said.err


def test_strangers_do_not_fill_the_log(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    def closed() -> int:
        return guarded.broker.call(lambda inside: inside.metrics.counter("connections.closed_for_bad_input").value)

    new_second(guarded)
    before, count = closed(), 8 * LINES_PER_S
    began = time.monotonic()
    for _ in range(count):
        with guarded.connected("BARE") as link:
            link.sendall(bytes(8))
            Raw.over(link).is_closed()
    seconds = int(time.monotonic() - began) + 2
    assert closed() == before + count
    lines = [record for record in caplog.records if "connection closed" in record.getMessage()]
    assert 0 < len(lines) <= seconds * LINES_PER_S
    new_second(guarded)
    with guarded.connected("BARE") as link:
        link.sendall(bytes(8))
        assert Raw.over(link).is_closed()
    if len(lines) < count:
        guarded.until(lambda: "unsaid" in caplog.text)


def new_second(guarded: Guarded) -> None:
    """With the next line another second of lines begins, whoever had those of the last one."""
    guarded.broker.call(lambda inside: setattr(inside.server, "_lines_since", float("-inf")))


# --- fuzz


def logins() -> list[bytes]:
    """Logins as they should be, each the bytes of a whole connection."""
    scram = b"n,,n=ann,r=" + b"a" * 24
    found = []
    for version in (0, 1, 2):
        head = encode_request(RequestHeader(18, 3, 1, "raw"), VERSIONS)
        head += encode_request(RequestHeader(17, 1, 2, "raw"), SaslHandshakeRequest("PLAIN"))
        found.append(head + encode_request(RequestHeader(36, version, 3, "raw"), SaslAuthenticateRequest(PLAIN_ANN)))
    named = encode_request(RequestHeader(17, 1, 2, None), SaslHandshakeRequest("SCRAM-SHA-256"))
    found.append(named + encode_request(RequestHeader(36, 2, 3, "raw"), SaslAuthenticateRequest(scram)))
    for mechanism, said in (("PLAIN", PLAIN_ANN), ("SCRAM-SHA-256", scram)):
        named = encode_request(RequestHeader(17, 0, 2, "raw"), SaslHandshakeRequest(mechanism))
        found.append(named + len(said).to_bytes(4, "big") + said)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, pytest.param(30_000, marks=pytest.mark.soak)])
def test_mutated_logins_let_nobody_in(guarded: Guarded, neighbour: Callable[[], None], count: int) -> None:
    chance = random.Random(count)
    seeds = logins()
    for number in range(count):
        data = mutated(chance.choice(seeds), chance)
        with guarded.connected("BARE") as link:
            try:
                link.sendall(data)
                link.shutdown(socket.SHUT_WR)
                while link.recv(65536):
                    pass
            except OSError:
                pass
        if number % 100 == 0:
            neighbour()
    guarded.until(lambda: guarded.open_logins() == 0)
    with guarded.secured("LOGIN") as link:
        assert plain(Raw.over(link)).error_code == 0


@pytest.mark.parametrize("count", [300, pytest.param(30_000, marks=pytest.mark.soak)])
def test_mutated_hellos_open_nothing(guarded: Guarded, neighbour: Callable[[], None], count: int) -> None:
    chance = random.Random(count)
    for number in range(count):
        with guarded.connected("SSL") as link:
            try:
                link.sendall(mutated(hello(), chance))
                link.shutdown(socket.SHUT_WR)
                while link.recv(65536):
                    pass
            except OSError:
                pass
        if number % 100 == 0:
            neighbour()
    guarded.until(lambda: guarded.open_logins() == 0)
