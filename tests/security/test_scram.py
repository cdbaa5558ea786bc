"""SCRAM: the example of RFC 7677, both sides against each other, and what an attacker may try."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.scram_credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
    keyed_hash,
    make_credential,
    salted_password,
)
from headrace.security import scram
from headrace.security.login import Challenge, Identity, LoginFailedError, LoginRefused, LoginStep, Proved
from headrace.security.scram import ScramClient, ScramServer, ScramUser
from headrace.security.scram_fakes import FakeCredentials

BOTH = (SCRAM_SHA_256, SCRAM_SHA_512)
FAKES = FakeCredentials(b"k" * 32, {})


def counted() -> Callable[[int], bytes]:
    count = itertools.count(1)
    return lambda size: (next(count) << 64).to_bytes(size, "big")


class Users:
    """Users `ann` (password `pencil`), `weak` with too few iterations, and a token `id-1` of bob."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.asked: list[tuple[str, bool]] = []
        pencil = make_credential(mechanism, "pencil", b"salt", 4096)
        self._users = {
            ("ann", False): ScramUser(pencil, Identity("User:ann")),
            ("a,b=c", False): ScramUser(pencil, Identity("User:a,b=c")),
            ("weak", False): ScramUser(make_credential(mechanism, "pencil", b"salt", 4095), Identity("User:weak")),
            ("id-1", True): ScramUser(pencil, Identity("User:bob", 99, is_token=True)),
        }

    def find(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramUser | None:
        self.asked.append((name, is_token))
        return self._users.get((name, is_token))

    def fake(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramCredential:
        return FAKES.of_token(mechanism, name) if is_token else FAKES.of(mechanism, name)


def server_of(mechanism: ScramMechanism) -> ScramServer:
    return ScramServer(mechanism, Users(mechanism), counted())


def login(server: ScramServer, client: ScramClient) -> LoginStep:
    """Both sides to the end, or LoginFailedError of one of them."""
    step = server.respond(client.first())
    while isinstance(step, Challenge):
        step = server.respond(client.respond(step.token))
    assert step.token is not None and client.respond(step.token) == b"" and client.is_done
    return step


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    nonces = iter(["rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"])
    monkeypatch.setattr(scram, "random_text", lambda _: next(nonces))
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    user = ScramUser(make_credential(SCRAM_SHA_256, "pencil", salt, 4096), Identity("User:user"))

    class One:
        def find(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramUser | None:
            return user if (name, is_token) == ("user", False) else None

        def fake(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramCredential:
            return FAKES.of(mechanism, name)

    client = ScramClient(SCRAM_SHA_256, "user", "pencil", counted())
    server = ScramServer(SCRAM_SHA_256, One(), counted())
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = server.respond(client.first())
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == Challenge(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final = client.respond(challenge.token)
    assert final == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    proved = server.respond(final)
    assert isinstance(proved, Proved)
    assert proved.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.respond(proved.token) == b""


@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.name)
@pytest.mark.parametrize("name", ["ann", "a,b=c"])
def test_the_right_password(mechanism: ScramMechanism, name: str) -> None:
    proved = login(server_of(mechanism), ScramClient(mechanism, name, "pencil", counted()))
    assert isinstance(proved, Proved) and proved.identity == Identity(f"User:{name}")


def test_a_token_is_looked_up_as_one() -> None:
    client = ScramClient(SCRAM_SHA_512, "id-1", "pencil", counted(), is_token=True)
    proved = login(server_of(SCRAM_SHA_512), client)
    assert isinstance(proved, Proved) and proved.identity == Identity("User:bob", 99, is_token=True)
    with pytest.raises(LoginFailedError):
        login(server_of(SCRAM_SHA_512), ScramClient(SCRAM_SHA_512, "id-1", "pencil", counted()))
    with pytest.raises(LoginFailedError):
        login(server_of(SCRAM_SHA_512), ScramClient(SCRAM_SHA_512, "ann", "pencil", counted(), is_token=True))


@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.name)
def test_unknown_wrong_and_weak_look_alike(mechanism: ScramMechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same shape of challenge, the same error, and the same number of HMACs of the same sizes."""
    seen = []
    real = hmac.digest
    for name, password in [("ann", "wrong"), ("nobody", "pencil"), ("weak", "pencil")]:
        server = server_of(mechanism)
        client = ScramClient(mechanism, name.ljust(6, "x") if name == "nobody" else name, password, counted())
        work: list[str] = []

        def counting(key: bytes, data: bytes, kind: str, work: list[str] = work) -> bytes:
            work.append(kind)
            return real(key, data, kind)

        first = client.first()
        monkeypatch.setattr(hmac, "digest", counting)
        challenge = server.respond(first)
        monkeypatch.setattr(hmac, "digest", real)
        assert isinstance(challenge, Challenge)
        final = client.respond(challenge.token)
        monkeypatch.setattr(hmac, "digest", counting)
        with pytest.raises(LoginFailedError) as error:
            server.respond(final)
        monkeypatch.setattr(hmac, "digest", real)
        assert not isinstance(error.value, LoginRefused)
        seen.append((str(error.value), tuple(work), b"i=4096" in challenge.token))
    assert len(set(seen)) == 1, seen


def test_nobody_knows_the_key_of_a_user_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever could make the fake credential's proof would still not log in: there is no identity behind it."""
    users = Users(SCRAM_SHA_256)
    known = make_credential(SCRAM_SHA_256, "x", b"s", 4096)
    monkeypatch.setattr(users, "fake", lambda *_, **__: known)
    server = ScramServer(SCRAM_SHA_256, users, counted())
    with pytest.raises(LoginFailedError):
        login(server, ScramClient(SCRAM_SHA_256, "nobody", "x", counted()))


def test_what_was_said_in_another_login_is_worth_nothing() -> None:
    users = Users(SCRAM_SHA_256)
    random = counted()
    server = ScramServer(SCRAM_SHA_256, users, random)
    client = ScramClient(SCRAM_SHA_256, "ann", "pencil", counted())
    challenge = server.respond(client.first())
    assert isinstance(challenge, Challenge)
    final = client.respond(challenge.token)
    assert isinstance(server.respond(final), Proved)
    again = ScramServer(SCRAM_SHA_256, users, random)
    again.respond(client.first())
    with pytest.raises(LoginFailedError):
        again.respond(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"y,,n=ann,r=abc",
        b"p=tls-unique,,n=ann,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=ann,r=",
        b"n,,n=a=2Bb,r=abc",
        b"n,,n=ann",
        b"n,,n=ann,r=abc,",
        b"n,,n=ann,r=abc,x",
        b"n,,n=ann,r=a bc",
        b"n,,n=\xc3\xa4,r=abc",
        b"n,,n=ann,r=abc\n",
        b"n=ann,r=abc",
    ],
)
def test_first_messages_that_are_none(first: bytes) -> None:
    with pytest.raises(LoginFailedError):
        server_of(SCRAM_SHA_256).respond(first)


def test_an_authzid_is_the_name_or_refused() -> None:
    assert isinstance(server_of(SCRAM_SHA_256).respond(b"n,a=ann,n=ann,r=abc"), Challenge)
    with pytest.raises(LoginRefused, match="authorization id"):
        server_of(SCRAM_SHA_256).respond(b"n,a=bob,n=ann,r=abc")


@pytest.mark.parametrize(
    "change",
    [
        lambda _: b"",
        lambda final: final[:-4] + b"AAA=",
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b",p=", b"x,p="),
        lambda final: final.partition(b",p=")[0] + b",p=AAAA",
        lambda final: final.partition(b",p=")[0] + b",p=",
        lambda final: final.partition(b",p=")[0],
        lambda final: final + b",p=AAAA",
    ],
)
def test_last_messages_that_prove_nothing(change: Callable[[bytes], bytes]) -> None:
    server = server_of(SCRAM_SHA_256)
    client = ScramClient(SCRAM_SHA_256, "ann", "pencil", counted())
    challenge = server.respond(client.first())
    assert isinstance(challenge, Challenge)
    with pytest.raises(LoginFailedError):
        server.respond(change(client.respond(challenge.token)))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=c2FsdA==,i=4096",
        b"r={},s=c2FsdA==,i=4096",
        b"r={}x,s=c2FsdA==,i=4095",
        b"r={}x,s=c2FsdA==,i=0",
        b"r={}x,s=c2FsdA==,i=999999999999",
        b"r={}x,s=,i=4096",
        b"e=other-error",
    ],
)
def test_challenges_that_a_client_does_not_answer(challenge: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "ann", "pencil", counted())
    nonce = client.first().rpartition(b"r=")[2]
    with pytest.raises(LoginFailedError):
        client.respond(challenge.replace(b"{}", nonce))


@pytest.mark.parametrize("last", [b"", b"v=AAAA", b"e=invalid-proof", b"v=", b"x"])
def test_a_server_that_does_not_know_the_password(last: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "ann", "pencil", counted())
    challenge = server_of(SCRAM_SHA_256).respond(client.first())
    assert isinstance(challenge, Challenge)
    client.respond(challenge.token)
    with pytest.raises(LoginFailedError):
        client.respond(last)
    assert not client.is_done


@given(st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1))
def test_names_come_back(name: str) -> None:
    written = scram.write_name(name)
    assert "," not in written and scram.read_name(written) == name
    users = Users(SCRAM_SHA_256)
    ScramServer(SCRAM_SHA_256, users, counted()).respond(ScramClient(SCRAM_SHA_256, name, "x", counted()).first())
    assert users.asked == [(name, False)]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_any_bytes_are_a_step_or_an_error(tokens: list[bytes]) -> None:
    server = server_of(SCRAM_SHA_256)
    try:
        for token in tokens:
            assert isinstance(server.respond(token), Challenge)
    except LoginFailedError:
        pass


def test_a_credential_shows_nothing() -> None:
    assert repr(ScramCredential(b"salt", b"stored", b"server", 4096)) == "ScramCredential(iterations=4096)"


@pytest.mark.parametrize("said_twice", [False, True])
def test_the_last_message_says_the_nonce_of_this_login_once(said_twice: bool) -> None:
    """Whoever knows the password still has to name this login: an older librdkafka says its own half twice, and Kafka
    refuses that as well (CVE-2024-56128)."""
    server = server_of(SCRAM_SHA_256)
    client = ScramClient(SCRAM_SHA_256, "ann", "pencil", counted())
    challenge = server.respond(client.first())
    assert isinstance(challenge, Challenge)
    own = client.first().rpartition(b"r=")[2].decode()
    nonce = challenge.token.split(b",")[0].removeprefix(b"r=").decode()
    without_proof = f"c=biws,r={own if said_twice else ''}{nonce}"
    salted = salted_password(SCRAM_SHA_256, b"pencil", b"salt", 4096)
    key = keyed_hash(SCRAM_SHA_256, salted, b"Client Key")
    said = f"{client.first().decode().removeprefix('n,,')},{challenge.token.decode()},{without_proof}"
    signature = keyed_hash(SCRAM_SHA_256, hashlib.sha256(key).digest(), said.encode())
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    final = f"{without_proof},p={proof}".encode()
    if said_twice:
        with pytest.raises(LoginFailedError, match=r"librdkafka before 2\.6\.1"):
            server.respond(final)
    else:
        assert isinstance(server.respond(final), Proved)
