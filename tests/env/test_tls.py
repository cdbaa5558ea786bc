"""TLS over any stream: what goes in at one end comes out at the other, whatever the sockets take and give at once."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.certificates import EXPIRED, NOT_YET, Authority, Identity, der_of, named
from peers.tls13 import DATA, RawTls
from peers.tried import tried

from headrace.env.network import WOULD_BLOCK
from headrace.env.posix_tls import (
    TlsMaterial,
    TlsMaterialError,
    TlsRules,
    client_context,
    openssl_name,
    server_context,
)
from headrace.env.tls import (
    OWN_BYTES_MAX,
    PIECE_BYTES,
    QUIET_RECEIVE_BYTES,
    QUIET_RECORDS_MAX,
    ROOM_GROWS,
    TINY_RECORDS_MAX,
    Scratch,
    TlsFailure,
    TlsStream,
)
from headrace.env.turns import SlicedTurns
from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer

AUTHORITY = Authority.new()
SERVER = AUTHORITY.server()
TRUSTED = (der_of(AUTHORITY.root),)


def material(identity: Identity | None, trusted: tuple[bytes, ...] | None = TRUSTED) -> TlsMaterial:
    if identity is None:
        return TlsMaterial(trusted=trusted)
    return TlsMaterial(identity.key_pem().encode(), tuple(der_of(each) for each in identity.chain), trusted)


class Loop:
    """Turns of an event loop by hand."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()
        self.now = 0.0
        self.ends: list[End] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def turns(self) -> SlicedTurns:
        """For those who may wait; time stands still, so nobody does for long."""
        return SlicedTurns(SimpleNamespace(soon=self.call_soon), lambda: self.now)

    def turn(self) -> bool:
        """One turn; False where nothing was to be done."""
        calls, self.soon = self.soon, deque()
        for call in calls:
            call()
        did = bool(calls)
        for end in self.ends:
            if end.readable is not None and end.has_input:
                did = True
                end.readable()
            if end.writable is not None and end.has_room:
                did = True
                end.writable()
        return did

    def until_quiet(self) -> None:
        for _ in range(100_000):
            if not self.turn():
                return
        raise AssertionError("the loop never rests")


class End:
    """One end of a pipe that takes and gives only so much at once."""

    def __init__(self, loop: Loop, takes: int, gives: int) -> None:
        self.peer_host, self.peer_port = "127.0.0.1", 1
        self.readable: Callable[[], None] | None = None
        self.writable: Callable[[], None] | None = None
        self.other: End
        self.arrived = bytearray()
        self.ended = False
        self.closed = False
        self.room = takes
        self._gives = gives
        loop.ends.append(self)

    @property
    def has_input(self) -> bool:
        return bool(self.arrived) or self.ended

    @property
    def has_room(self) -> bool:
        return len(self.other.arrived) < self.room

    def receive_into(self, buffer: memoryview) -> int:
        if not self.arrived:
            return 0 if self.ended else WOULD_BLOCK
        got = min(len(buffer), len(self.arrived), self._gives)
        buffer[:got] = self.arrived[:got]
        del self.arrived[:got]
        return got

    def send(self, parts: Sequence[Buffer], more: bool = False) -> int:
        data = b"".join(parts)[: self.room - len(self.other.arrived)]
        if not data:
            return WOULD_BLOCK
        self.other.arrived += data
        return len(data)

    def send_slice(self, part: FileSlice, at: int, size: int, *, may_wait: bool = False) -> int:
        raise AssertionError("a file goes encrypted")

    def read_slice(self, part: FileSlice, at: int, buffer: memoryview, *, may_wait: bool = False) -> int:
        return 0

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self.readable = callback

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self.writable = callback

    def has_hung_up(self, unread_max: int | None = 0) -> bool:
        return self.ended and (unread_max is None or len(self.arrived) <= unread_max)

    def close(self) -> None:
        self.closed = True
        self.readable = self.writable = None
        self.other.ended = True


class Talker:
    """Who sends a text over a stream, and keeps what comes."""

    def __init__(self, stream: TlsStream, says: bytes, reads: int = 64 * 1024) -> None:
        self.stream = stream
        self.left = memoryview(says)
        self.heard = bytearray()
        self.failure: str | None = None
        self.ended = False
        self._buffer = memoryview(bytearray(reads))
        stream.on_readable(self.readable)
        if says:
            stream.on_writable(self.write)

    def readable(self) -> None:
        try:
            got = self.stream.receive_into(self._buffer)
        except TlsFailure as failure:
            self.failure = str(failure)
            self.stream.close()
            return
        if got > 0:
            self.heard += self._buffer[:got]
        elif got == 0:
            self.ended = True
            self.stream.close()

    def write(self) -> None:
        while self.left:
            sent = self.stream.send([self.left[:100], self.left[100:]])
            if sent == WOULD_BLOCK:
                return
            self.left = self.left[sent:]
        self.stream.on_writable(None)


class Pair:
    """A client and a server of TLS on one loop."""

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        says: tuple[bytes, bytes] = (b"", b""),
        *,
        takes: int = 1 << 20,
        gives: int = 1 << 20,
        reads: int = 64 * 1024,
        on_open: Callable[[TlsStream], None] | None = None,
    ) -> None:
        self.loop = Loop()
        ends = End(self.loop, takes, gives), End(self.loop, takes, gives)
        ends[0].other, ends[1].other = ends[1], ends[0]
        soon = self.loop.call_soon
        turns = self.loop.turns()
        scratch = Scratch()
        self.server = Talker(
            TlsStream(ends[0], server, server_side=True, scratch=scratch, soon=soon, turns=turns),
            says[0],
            reads,
        )
        self.server.stream.on_open = on_open
        self.client = Talker(
            TlsStream(
                ends[1],
                client,
                server_side=False,
                scratch=scratch,
                soon=soon,
                turns=turns,
                server_hostname="localhost",
            ),
            says[1],
            reads,
        )
        self.ends = ends


class Stranger:
    """A server's stream, and a client that chooses every byte."""

    def __init__(self, takes: int = 1 << 20) -> None:
        self.loop = Loop()
        ends = End(self.loop, takes, 1 << 20), End(self.loop, 1 << 20, 1 << 20)
        ends[0].other, ends[1].other = ends[1], ends[0]
        self._end = ends[1]
        turns = self.loop.turns()
        context = contexts()[0]
        stream = TlsStream(ends[0], context, server_side=True, scratch=Scratch(), soon=self.loop.call_soon, turns=turns)
        self.server = Talker(stream, b"")
        self.tls = RawTls(self)  # type: ignore[arg-type]
        self.tls.shake_hands()
        self.loop.until_quiet()

    def sendall(self, data: bytes) -> None:
        assert self._end.send((data,)) == len(data)

    def recv(self, size: int) -> bytes:
        """What the server has said; all that it has to do is done first."""
        self.loop.until_quiet()
        said = bytes(self._end.arrived[:size])
        del self._end.arrived[:size]
        return said


def contexts(auth: str = "none", client: Identity | None = None) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    rules = TlsRules()
    return server_context(material(SERVER), rules, auth), client_context(material(client), rules, checks_name=True)


@settings(max_examples=tried(40))
@given(
    st.integers(0, 300_000),
    st.integers(0, 300_000),
    st.integers(50, 100_000),
    st.integers(1, 100_000),
    st.integers(1, 100_000),
)
def test_all_arrives_whatever_is_taken_at_once(there: int, back: int, takes: int, gives: int, reads: int) -> None:
    if min(takes, gives, reads) < 1000:
        there, back = there % 3000, back % 3000
    says = bytes(range(256)) * (there // 256 + 1), b"back" * (back // 4 + 1)
    pair = Pair(*contexts(), says, takes=takes, gives=gives, reads=reads)
    pair.loop.until_quiet()
    assert bytes(pair.client.heard) == says[0]
    assert bytes(pair.server.heard) == says[1]
    assert pair.server.stream.protocol == "TLSv1.3"


def test_a_farewell_is_an_end_and_no_failure() -> None:
    pair = Pair(*contexts(), (b"", b"x" * 10))
    pair.loop.until_quiet()
    pair.client.stream.close()
    pair.loop.until_quiet()
    assert pair.server.ended and pair.server.failure is None
    assert bytes(pair.server.heard) == b"x" * 10


def test_the_last_bytes_before_a_farewell_are_read() -> None:
    pair = Pair(*contexts(), reads=7)
    pair.loop.until_quiet()
    assert pair.client.stream.send([b"y" * 1000]) == 1000
    pair.client.stream.close()
    pair.loop.until_quiet()
    assert bytes(pair.server.heard) == b"y" * 1000
    assert pair.server.ended


def test_no_more_than_a_piece_is_encrypted_ahead_of_the_socket() -> None:
    pair = Pair(*contexts(), takes=20_000)
    pair.loop.until_quiet()
    pair.client.stream.on_readable(None)
    sent = pair.server.stream.send([bytes(10 * PIECE_BYTES)])
    assert sent == PIECE_BYTES
    assert pair.server.stream.send([b"more"]) == WOULD_BLOCK
    assert pair.ends[0].writable is not None  # it leaves though nobody waits to write


def test_a_reader_that_rests_is_called_when_it_goes_on() -> None:
    """Plain bytes inside OpenSSL wake no poller."""
    pair = Pair(*contexts(), reads=10)
    pair.loop.until_quiet()
    heard = pair.server
    pair.client.stream.send([b"z" * 25])

    def read_once() -> None:
        heard.readable()
        heard.stream.on_readable(None)

    heard.stream.on_readable(read_once)
    pair.loop.until_quiet()
    assert bytes(heard.heard) == b"z" * 10
    assert not pair.ends[0].arrived
    heard.stream.on_readable(heard.readable)
    pair.loop.until_quiet()
    assert bytes(heard.heard) == b"z" * 25


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_client_shows_who_it_is(auth: str) -> None:
    ann = AUTHORITY.client("ann")
    seen: list[bytes | None] = []
    pair = Pair(*contexts(auth, ann), (b"", b"hello"), on_open=lambda stream: seen.append(stream.peer_certificate))
    pair.loop.until_quiet()
    assert bytes(pair.server.heard) == b"hello"
    assert seen == [der_of(ann.certificate)]


def test_a_client_without_a_certificate() -> None:
    pair = Pair(*contexts("requested"), (b"", b"hello"))
    pair.loop.until_quiet()
    assert bytes(pair.server.heard) == b"hello"
    assert pair.server.stream.peer_certificate is None
    refused = Pair(*contexts("required"), (b"", b"hello"))
    refused.loop.until_quiet()
    assert refused.server.failure == "the TLS handshake failed: peer did not return a certificate"
    assert not refused.server.heard


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (AUTHORITY.issue(named("old"), valid=EXPIRED), "certificate has expired"),
        (AUTHORITY.issue(named("new"), valid=NOT_YET), "certificate is not yet valid"),
        (Authority.new().client("ann"), "unable to get local issuer certificate"),
    ],
    ids=["expired", "not yet valid", "of another authority"],
)
def test_a_certificate_that_is_not_believed(client: Identity, why: str) -> None:
    pair = Pair(*contexts("required", client), (b"", b"hello"))
    pair.loop.until_quiet()
    assert pair.server.failure == f"the TLS handshake failed: the certificate is not believed: {why}"
    assert not pair.server.heard


def test_a_client_that_asks_for_another_name() -> None:
    rules = TlsRules()
    server = server_context(material(AUTHORITY.server(names=["elsewhere.example"])), rules, "none")
    pair = Pair(server, client_context(material(None), rules, checks_name=True), (b"", b"secret"))
    pair.loop.until_quiet()
    assert pair.client.failure is not None and "not believed" in pair.client.failure
    assert not pair.server.heard
    unchecked = Pair(server, client_context(material(None), rules, checks_name=False), (b"", b"secret"))
    unchecked.loop.until_quiet()
    assert bytes(unchecked.server.heard) == b"secret"


def test_whoever_opens_a_connection_may_refuse_it() -> None:
    def refuse(_: TlsStream) -> None:
        raise TlsFailure("no rule names this certificate")

    pair = Pair(*contexts(), (b"", b"hello"), on_open=refuse)
    pair.loop.until_quiet()
    assert pair.server.failure == "no rule names this certificate"
    assert not pair.server.heard


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x16\x03\x01\xff\xff" + bytes(100), b"\x00\x00\x00\x10" * 50]
)
def test_what_is_no_tls_ends_the_connection(garbage: bytes) -> None:
    pair = Pair(*contexts())
    pair.ends[1].on_readable(None)
    pair.client.stream.closed = True
    pair.ends[1].send([garbage])
    pair.loop.until_quiet()
    assert pair.server.failure is not None or pair.server.stream.is_open is False
    pair.ends[1].close()
    pair.loop.until_quiet()
    assert pair.ends[0].closed
    assert not pair.server.heard


def test_a_record_that_was_changed_on_its_way_ends_the_connection() -> None:
    pair = Pair(*contexts())
    pair.loop.until_quiet()
    pair.client.stream.send([b"hello" * 10])
    pair.ends[0].arrived[-3] ^= 1
    pair.loop.until_quiet()
    assert pair.server.failure is not None and "cannot be read" in pair.server.failure
    assert not pair.server.heard


def test_an_old_client_is_refused() -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    new = server_context(material(SERVER), TlsRules(("TLSv1.3",)), "none")
    pair = Pair(new, old, (b"", b"hello"))
    pair.loop.until_quiet()
    assert pair.server.failure == "the TLS handshake failed: unsupported protocol"


@pytest.mark.parametrize("wants_one", [False, True])
def test_data_goes_on_behind_a_change_of_keys(*, wants_one: bool) -> None:
    stranger = Stranger()
    for number in range(500):
        changes = stranger.tls.key_update(wants_one=wants_one)
        stranger.sendall(changes + stranger.tls.sealed(DATA, b"%03d" % number))
        stranger.loop.until_quiet()
    assert stranger.server.failure is None
    assert bytes(stranger.server.heard) == b"".join(b"%03d" % number for number in range(500))


@pytest.mark.parametrize("wants_one", [False, True])
def test_changes_of_keys_alone_end_the_connection(*, wants_one: bool) -> None:
    stranger = Stranger()
    for _ in range(TINY_RECORDS_MAX):
        stranger.sendall(stranger.tls.key_update(wants_one=wants_one))
        stranger.recv(1 << 20)
        assert stranger.server.failure is None
    stranger.sendall(stranger.tls.key_update(wants_one=wants_one))
    stranger.loop.until_quiet()
    assert stranger.server.failure is not None and "hardly say anything" in stranger.server.failure


def test_who_wants_other_keys_and_takes_none_ends() -> None:
    """Data between the changes does not buy memory."""
    stranger = Stranger(takes=2000)
    sent = 0
    while stranger.server.failure is None:
        data = b"".join(stranger.tls.key_update(wants_one=True) for _ in range(8)) + stranger.tls.sealed(
            DATA, b"x" * 50
        )
        sent += len(data)
        assert sent < 10 * OWN_BYTES_MAX
        stranger.sendall(data)
        stranger.loop.until_quiet()
    assert "does not take them" in stranger.server.failure


def test_who_says_nothing_is_read_from_in_small_pieces() -> None:
    """Changes of keys cost fifteen microseconds each; who says something is taken more of at once, step by step."""
    stranger = Stranger()
    arrived = stranger.loop.ends[0].arrived

    def taken(*said: bytes) -> int:
        if said:
            stranger.sendall(b"".join(said))
        before = len(arrived)
        stranger.loop.turn()
        return before - len(arrived)

    large = stranger.tls.sealed(DATA, b"x" * 10_000)
    assert 0 < taken(large[:4000]) <= QUIET_RECEIVE_BYTES
    assert 0 < taken(large[4000:]) <= QUIET_RECEIVE_BYTES
    stranger.loop.until_quiet()
    assert not arrived
    words = [stranger.tls.sealed(DATA, b"x" * 1000) for _ in range(90)]
    stranger.sendall(words[0])
    stranger.loop.until_quiet()
    assert QUIET_RECEIVE_BYTES < taken(*words[1:]) <= ROOM_GROWS * 1000
    assert ROOM_GROWS * 1000 < taken() <= ROOM_GROWS * ROOM_GROWS * 1000
    stranger.loop.until_quiet()
    assert bytes(stranger.server.heard) == b"x" * 100_000


def test_changes_of_keys_in_a_row_are_not_decrypted() -> None:
    """No client has to change keys so often; another does now and then."""
    stranger = Stranger()
    for _ in range(3):
        for _ in range(TINY_RECORDS_MAX):
            stranger.sendall(stranger.tls.key_update(wants_one=False))
        stranger.sendall(stranger.tls.sealed(DATA, b"x" * 100))
        stranger.loop.until_quiet()
        assert stranger.server.failure is None
    left = stranger.server.stream._in
    stranger.sendall(b"".join(stranger.tls.key_update(wants_one=False) for _ in range(TINY_RECORDS_MAX + 1)))
    stranger.loop.until_quiet()
    assert stranger.server.failure is not None and "hardly say anything" in stranger.server.failure
    assert stranger.server.stream.closed and left.pending  # not for a farewell either
    assert bytes(stranger.server.heard) == b"x" * 300


def test_a_larger_record_behind_changes_of_keys_hides_none_of_them() -> None:
    stranger = Stranger()
    left = stranger.server.stream._in
    updates = b"".join(stranger.tls.key_update(wants_one=False) for _ in range(TINY_RECORDS_MAX + 1))
    stranger.sendall(updates + stranger.tls.sealed(DATA, b"x" * 100))
    stranger.loop.until_quiet()
    assert stranger.server.failure is not None and "hardly say anything" in stranger.server.failure
    assert left.pending and not stranger.server.heard


def test_records_that_say_nothing_are_counted_whatever_their_size() -> None:
    stranger = Stranger()
    sent = 0
    while stranger.server.failure is None and sent < 200:
        stranger.sendall(stranger.tls.key_update(wants_one=False, padding=30))
        stranger.loop.until_quiet()
        sent += 1
    assert sent == QUIET_RECORDS_MAX + 1
    assert (
        stranger.server.failure is not None and "records came over TLS without plain bytes" in stranger.server.failure
    )


@pytest.mark.parametrize("gives", [1, 2, 3, 4, 5, 7, 100])
def test_records_are_counted_however_they_come(gives: int) -> None:
    """Headers are split at every place; four bytes of each request have a record of their own."""
    stranger = Stranger()
    for number in range(60):
        for part in (number.to_bytes(4, "big"), bytes([number]) * 40):
            record = stranger.tls.sealed(DATA, part)
            for at in range(0, len(record), gives):
                stranger.sendall(record[at : at + gives])
                stranger.loop.until_quiet()
    heard = bytes(stranger.server.heard)
    assert stranger.server.failure is None
    assert heard == b"".join(number.to_bytes(4, "big") + bytes([number]) * 40 for number in range(60))


def test_a_large_record_that_comes_packet_by_packet_takes_one_read_each() -> None:
    stranger = Stranger()
    arrived = stranger.loop.ends[0].arrived
    stranger.loop.until_quiet()
    record = stranger.tls.sealed(DATA, b"x" * 16_000)
    for at in range(0, len(record), 1448):
        stranger.sendall(record[at : at + 1448])
        stranger.loop.turn()
        assert not arrived
    stranger.loop.until_quiet()
    assert bytes(stranger.server.heard) == b"x" * 16_000


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
    ],
)
def test_suites_by_their_iana_names(iana: str, openssl: str) -> None:
    assert openssl_name(iana) == openssl
    server_context(material(SERVER), TlsRules(("TLSv1.2",), (iana,)), "none")


def test_suites_that_are_named_alone_are_spoken() -> None:
    suites = TlsRules(suites=("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",))
    pair = Pair(
        server_context(material(SERVER), suites, "none"), client_context(material(None), TlsRules(), checks_name=True)
    )
    pair.loop.until_quiet()
    assert (pair.server.stream.protocol, pair.server.stream.cipher) == ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (TlsRules(suites=("TLS_NO_SUCH",)), "OpenSSL has no suite TLS_NO_SUCH"),
        (TlsRules(suites=("TLS_AES_128_GCM_SHA256",)), "without TLS_AES_256_GCM_SHA384"),
        (TlsRules(("TLSv1.2",), ("TLS_AES_256_GCM_SHA384",)), "leave no version of TLS"),
    ],
)
def test_rules_that_cannot_be_kept(rules: TlsRules, why: str) -> None:
    with pytest.raises(TlsMaterialError, match=why):
        server_context(material(SERVER), rules, "none")


def test_a_key_of_another_certificate() -> None:
    other = AUTHORITY.server()
    mixed = TlsMaterial(other.key_pem().encode(), tuple(der_of(each) for each in SERVER.chain))
    with pytest.raises(TlsMaterialError, match="cannot be used: key values mismatch"):
        server_context(mixed, TlsRules(), "none")
    with pytest.raises(TlsMaterialError, match="needs a private key"):
        server_context(TlsMaterial(), TlsRules(), "none")
