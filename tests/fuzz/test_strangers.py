"""Every parser that a stranger reaches before he has logged in, under mutations of what it should be given.

`--fuzz-logins` says how many in all; `make fuzz` makes a million. Whatever comes, a parser reads it or refuses it by
the one error that it has for that, and nobody is let in by what is not exactly a login.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from functools import lru_cache

import pytest
from env.test_tls import SERVER, End, Loop, Talker, contexts
from fuzz.mutations import mutated
from peers.certificates import HOSTILE, Authority, der_of
from peers.tls13 import ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, RawTls, client_hello, record
from security.oauthbearer.issuing import NOW_MS, claims, forged, issued, jwks, keys
from security.scripted import PASSWORDS, Passwords

from headrace.env.tls import Scratch, TlsStream
from headrace.http.heads import read_head
from headrace.http.messages import Head, Refused
from headrace.metadata.scram_credentials import SCRAM_SHA_256, make_credential, salted_password
from headrace.security import scram
from headrace.security.der import DerError
from headrace.security.login import LoginFailedError, ServerMechanism
from headrace.security.mechanisms import PlainMechanism, ScramServerMechanism
from headrace.security.names import canonical, read, subject
from headrace.security.oauthbearer.keys import KeysError, KeySet, parsed
from headrace.security.oauthbearer.server import OAuthBearerMechanism
from headrace.security.oauthbearer.signed import SignedTokens
from headrace.security.oauthbearer.tokens import Accepted
from headrace.security.plain import PlainUsers
from headrace.security.principal_rules import parsed as parsed_rules
from headrace.security.sasl import Moment, Phase, SaslSession
from headrace.security.scram import ScramClient
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, decode_request_header, encode_request
from headrace.wire.messages import request_class
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.primitives import DecodeError

Once = Callable[[], None]
"""Makes one mutation and gives it to a parser. Raises AssertionError where that went wrong."""

TOKENS = SignedTokens(audiences=frozenset({"kafka"}), issuer="https://issuer")
NOW = Moment(0.0, NOW_MS)


# --- requests


def requests(chance: random.Random) -> Once:
    """Frames of what may be asked before a login: the header, and the three requests in every version."""
    seeds = []
    for request in (
        ApiVersionsRequest("fuzz", "1"),
        SaslHandshakeRequest("SCRAM-SHA-256"),
        SaslAuthenticateRequest(b"\0ann\0pencil"),
    ):
        key = request.API_KEY
        for version in range(APIS[key].min_version, APIS[key].max_version + 1):
            seeds.append(encode_request(RequestHeader(key, version, 1, "fuzz"), request)[4:])

    def once() -> None:
        data = mutated(chance.choice(seeds), chance)
        try:
            header, at = decode_request_header(data)
            if header.api_key in (17, 18, 36):
                request_class(header.api_key).decode(data, header.api_version, at)
        except DecodeError:
            pass

    return once


# --- logins


class Sessions:
    """Logins by every mechanism, as they should be but for a mutation, each in a session of its own."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        users = PlainUsers({f"user_{name}": word for name, word in PASSWORDS.items()})
        self._mechanisms: dict[str, ServerMechanism] = {
            "PLAIN": PlainMechanism(users),
            "SCRAM-SHA-256": ScramServerMechanism(SCRAM_SHA_256, Passwords(), chance.randbytes),
            "OAUTHBEARER": OAuthBearerMechanism(lambda token: TOKENS.checked(token, keys(), NOW_MS)),
        }
        self._tokens = [issued(key_id="p256", algorithm="ES256"), issued(key_id="ed", algorithm="EdDSA")]
        self._logins = {"PLAIN": self._plain, "SCRAM-SHA-256": self._scram, "OAUTHBEARER": self._bearer}

    def once(self) -> None:
        chance = self._chance
        session = SaslSession(self._mechanisms)
        name = chance.choice(tuple(self._mechanisms))
        asked = mutated(name.encode(), chance).decode("latin-1") if chance.random() < 0.05 else name
        answer = session.handshake(asked, chance.randrange(2), NOW)
        if asked != name:
            assert answer.error == ErrorCode.UNSUPPORTED_SASL_MECHANISM and session.phase is Phase.ENDED
            return
        is_a_login = self._logins[name](session)
        if is_a_login:
            assert session.phase is Phase.READY and session.identity is not None
            assert session.identity.principal.removeprefix("User:") in PASSWORDS
        else:
            assert session.phase is not Phase.READY and session.identity is None

    def _plain(self, session: SaslSession) -> bool:
        data = self._changed(self._chance.choice((b"\0ann\0pencil", b"bob\0bob\0pen")))
        session.authenticate(data, NOW)
        authzid, *rest = data.split(b"\0")
        known = [[name.encode(), word.encode()] for name, word in PASSWORDS.items()]
        return rest in known and authzid in (b"", rest[0])

    def _scram(self, session: SaslSession) -> bool:
        client = ScramClient(SCRAM_SHA_256, "ann", "pencil", self._chance.randbytes)
        said = client.first()
        first = self._changed(said) if self._chance.random() < 0.5 else said
        answer = session.authenticate(first, NOW)
        if answer.ends:
            return False
        try:
            whole = client.respond(answer.token)
        except LoginFailedError:
            whole = b"c=biws,r=" + answer.token[2:40] + b",p=" + base64.b64encode(bytes(32))
        final = self._changed(whole)
        session.authenticate(final, NOW)
        # Spare bits of base64, and what stands before the name, are no part of what is proved.
        halves, others = final.rpartition(b",p="), whole.rpartition(b",p=")
        try:
            is_same_proof = base64.b64decode(halves[2]) == base64.b64decode(others[2])
        except ValueError:
            is_same_proof = False
        return first.endswith(said[3:]) and session.phase is Phase.READY and halves[0] == others[0] and is_same_proof

    def _bearer(self, session: SaslSession) -> bool:
        token = self._chance.choice(self._tokens)
        message = self._changed(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        answer = session.authenticate(message, NOW)
        if not answer.ends and session.phase is not Phase.READY:
            assert b"invalid_token" in answer.token
            assert session.authenticate(self._changed(b"\x01"), NOW).ends
        # A login where what is signed, and the signature, are there as they were; a base64 text has spare bits.
        return session.phase is Phase.READY and token.rpartition(".")[0].encode() in message

    def _changed(self, data: bytes) -> bytes:
        return mutated(data, self._chance) if self._chance.random() < 0.9 else data


def sessions(chance: random.Random) -> Once:
    return Sessions(chance).once


# --- tokens and keys


def tokens(chance: random.Random) -> Once:
    """Signed tokens, changed as text, or in their JSON."""
    signed = [issued(), issued(key_id="p256", algorithm="ES256"), issued(key_id="ed", algorithm="EdDSA")]
    bodies = [json.dumps(claims()).encode(), json.dumps(claims(aud=["kafka", "b"], scope="a b")).encode()]

    def once() -> None:
        token = chance.choice(signed)
        if chance.random() < 0.5:
            data = mutated(token.encode(), chance).decode("latin-1")
        else:
            head, _, signature = token.split(".")
            header = base64.urlsafe_b64decode(head + "==")
            given = base64.urlsafe_b64decode(signature + "==")
            data = forged(mutated(header, chance), mutated(chance.choice(bodies), chance), given)
        found = TOKENS.checked(data, keys(), NOW_MS)
        if isinstance(found, Accepted):
            assert found.principal_name == "ann" and data.strip().rpartition(".")[0] == token.rpartition(".")[0]

    return once


def key_sets(chance: random.Random) -> Once:
    """What an issuer publishes: who stands between may change it."""

    def once() -> None:
        try:
            assert isinstance(parsed(mutated(jwks(), chance)), KeySet)
        except KeysError:
            pass

    return once


# --- certificates


def certificates(chance: random.Random) -> Once:
    """What names a client, and rules that make a principal of it."""
    authority = Authority.new()
    seeds = [der_of(authority.issue(name, names=("a", "b")).certificate) for name in list(HOSTILE.values())[::5]]
    rules = parsed_rules("RULE:^CN=(.*?),OU=(.*)$/$1@$2/L,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT")

    def once() -> None:
        data = mutated(chance.choice(seeds), chance)
        try:
            named = subject(data)
            canonical(read(data).subject)
        except DerError:
            return
        assert "\0" not in named
        rules.principal_name(named)

    return once


# --- TLS


class Tls:
    """A server's stream, and what a client says to it, whole but for a mutation."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._context = contexts()[0]
        self._scratch = Scratch()

    def once(self) -> None:
        chance = self._chance
        loop = Loop()
        ends = End(loop, 1 << 20, chance.choice((1 << 20, 1 << 20, 50))), End(loop, 1 << 20, 1 << 20)
        ends[0].other, ends[1].other = ends[1], ends[0]
        turns = loop.turns()
        stream = TlsStream(
            ends[0], self._context, server_side=True, scratch=self._scratch, soon=loop.call_soon, turns=turns
        )
        server = Talker(stream, b"")
        # Who knows no keys says what he likes in the first flight; who has shaken hands, afterwards.
        if chance.random() < 0.5:
            hello = record(HANDSHAKE, client_hello(chance.randbytes(32)), 0x0301)
            more = record(chance.choice((DATA, ALERT, CHANGE_CIPHER_SPEC, HANDSHAKE)), chance.randbytes(40))
            ends[1].send((mutated(hello, chance) + (more if chance.random() < 0.3 else b""),))
            loop.until_quiet()
            assert not stream.is_open and not server.heard
        else:
            self._shaken(loop, ends, server)
        ends[1].close()
        loop.until_quiet()
        assert stream.closed and (server.failure is None or "\n" not in server.failure)

    def _shaken(self, loop: Loop, ends: tuple[End, End], server: Talker) -> None:
        chance = self._chance

        class Link:
            """The client's end as RawTls wants it."""

            def sendall(self, data: bytes) -> None:
                ends[1].send((data,))

            def recv(self, size: int) -> bytes:
                loop.until_quiet()
                said = bytes(ends[1].arrived[:size])
                del ends[1].arrived[:size]
                return said

        tls = RawTls(Link())  # type: ignore[arg-type]
        tls.shake_hands()
        loop.until_quiet()
        words = [b"x" * chance.randrange(200) for _ in range(3)]
        kind = chance.choice((DATA, DATA, DATA, HANDSHAKE, ALERT, CHANGE_CIPHER_SPEC, chance.randrange(256)))
        sealed = tls.sealed(DATA, words[0]) + mutated(tls.sealed(kind, words[1]), chance) + tls.sealed(DATA, words[2])
        ends[1].send((sealed,))
        loop.until_quiet()
        # What arrives is what was said, from its beginning on and without a hole.
        assert b"".join(words).startswith(bytes(server.heard))


def records(chance: random.Random) -> Once:
    assert SERVER
    return Tls(chance).once


# --- pages


def pages(chance: random.Random) -> Once:
    """The head of a request to a node's pages."""
    seed = b"GET /metrics?a=b HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer abc\r\nContent-Length: 0"

    def once() -> None:
        try:
            assert isinstance(read_head(mutated(seed, chance)), Head)
        except Refused as refused:
            assert 400 <= refused.response.status <= 505

    return once


PARSERS: dict[Callable[[random.Random], Once], float] = {
    requests: 0.3,
    sessions: 0.3,
    tokens: 0.1,
    key_sets: 0.05,
    certificates: 0.15,
    records: 0.04,
    pages: 0.06,
}
"""Each parser's share of all mutations."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("parser", PARSERS, ids=lambda each: each.__name__)
def test_mutations(
    parser: Callable[[random.Random], Once], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sum(PARSERS.values()) == pytest.approx(1)
    monkeypatch.setattr(scram, "salted_password", lru_cache(64)(salted_password))  # the client's slow step
    chance = random.Random(20261126)
    once = parser(chance)
    for _ in range(round(request.config.getoption("--fuzz-logins") * PARSERS[parser])):
        once()


def test_the_seeds_are_read_as_they_are() -> None:
    """Without a mutation everything is taken: else nothing would be tried but the first bytes."""

    class Unchanged(Sessions):
        def _changed(self, data: bytes) -> bytes:
            return data

    with_all = Unchanged(random.Random(1))
    for name in with_all._logins:
        session = SaslSession(with_all._mechanisms)
        session.handshake(name, 1, NOW)
        assert with_all._logins[name](session) or name == "", name
        assert session.phase is Phase.READY
    assert isinstance(TOKENS.checked(issued(), keys(), NOW_MS), Accepted)
    assert parsed(jwks()).keys
    assert make_credential(SCRAM_SHA_256, "pencil", b"salt", 4096).iterations == 4096
