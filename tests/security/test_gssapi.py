"""Both sides of GSSAPI over contexts of a play: every order of tokens that is wrong ends the login."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.gssapi import (
    CONTEXT_TOKENS_MAX,
    OFFER,
    TOKEN_BYTES_MAX,
    GssapiClient,
    GssapiMechanism,
    GssapiServer,
    begins_context,
)
from headrace.security.jaas import KERBEROS_MODULE, LoginModule
from headrace.security.kerberos_names import parsed
from headrace.security.kerberos_options import KerberosOptionsError, kerberos_options, service_name
from headrace.security.login import Challenge, Errand, Identity, LoginFailedError, LoginInterrupted, LoginStep, Proved
from headrace.security.sasl import Moment, Phase, SaslSession
from headrace.wire.errors import ErrorCode

OID = bytes.fromhex("06092a864886f712010202")
FIRST = b"\x60" + bytes([len(OID) + 4]) + OID + b"req."
NOW = Moment(0.0, 0)


class Played:
    """A context that is open after so many tokens, and wraps by two letters."""

    is_mutual = True

    def __init__(self, initiator: str = "ann@R", tokens: int = 1, answer: bytes = b"proof") -> None:
        self.initiator = initiator
        self._left = tokens
        self._answer = answer

    @property
    def is_complete(self) -> bool:
        return self._left <= 0

    def step(self, token: bytes) -> bytes:
        self._left -= 1
        return self._answer

    def wrap(self, message: bytes) -> bytes:
        return b"w:" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"w:"):
            raise LoginFailedError("not wrapped")
        return message[2:]


def server(context: Played | None = None, *rules: str) -> GssapiServer:
    return GssapiServer(context or Played(), parsed(rules or ("DEFAULT",), "R"))


def said(login: GssapiServer, token: bytes) -> LoginStep:
    step = login.respond(token)
    return step.work() if isinstance(step, Errand) else step


def done(step: bytes | Errand[bytes]) -> bytes:
    return step.work() if isinstance(step, Errand) else step


def login(context: Played, *rules: str) -> LoginStep:
    checked = server(context, *rules)
    assert said(checked, FIRST) == Challenge(b"proof")
    assert said(checked, b"") == Challenge(b"w:" + OFFER)
    return said(checked, b"w:" + OFFER + b"admin")


def test_a_login() -> None:
    assert login(Played()) == Proved(None, Identity("User:ann"))
    assert login(Played("app/orders@R"), "RULE:[2:$2]") == Proved(None, Identity("User:orders"))


def test_a_context_without_a_proof_goes_on_with_the_offer() -> None:
    assert said(server(Played(answer=b"")), FIRST) == Challenge(b"w:" + OFFER)


@pytest.mark.parametrize(
    "principal",
    ["ann@OTHER", "ann/x@OTHER", "a\\@b@R", "a\\/b@R", "@R", "ann", "WELLKNOWN/ANONYMOUS@R", "", "a@b@R", "a/b/c@R"],
)
def test_principals_that_are_nobody(principal: str) -> None:
    with pytest.raises(LoginFailedError, match="no rule"):
        login(Played(principal), "DEFAULT")


def test_nobody_anonymous_comes_in_by_a_rule() -> None:
    with pytest.raises(LoginFailedError):
        login(Played("WELLKNOWN/ANONYMOUS@WELLKNOWN:ANONYMOUS"), "RULE:[2:$2]")


@pytest.mark.parametrize("choice", [b"", b"\x01\0\0", b"\0\0\0\0", b"\x02\0\0\0", b"\x03\0\0\0", b"\x05\0\0\0ann"])
def test_choices_of_layers(choice: bytes) -> None:
    checked = server()
    said(checked, FIRST)
    said(checked, b"")
    with pytest.raises(LoginFailedError):
        said(checked, b"w:" + choice)


def test_the_library_is_asked_of_nothing_that_kerberos_does_not_begin() -> None:
    assert begins_context(FIRST)
    long = b"\x60\x82" + (len(OID) + 300).to_bytes(2, "big") + OID + bytes(300)
    assert begins_context(long)
    for bad in (b"", b"\x60", FIRST[:-1], FIRST + b"x", b"\x61" + FIRST[1:], long[:-1], b"\x60\x80" + OID, b"\x60\x85"):
        assert not begins_context(bad)
        with pytest.raises(LoginFailedError, match="none of Kerberos"):
            server().respond(bad)
    with pytest.raises(LoginFailedError, match="more than"):
        server().respond(bytes(TOKEN_BYTES_MAX + 1))


@given(st.binary(max_size=64))
def test_any_bytes_are_framed_or_refused(data: bytes) -> None:
    is_first = data[:1] == b"\x60" and len(data) > 2 and data[1] == len(data) - 2 and data[2:13] == OID
    if len(data) < 2 or data[1] < 0x80:
        assert begins_context(data) == is_first
    else:
        begins_context(data)


def test_a_context_that_never_opens() -> None:
    checked = server(Played(tokens=99))
    said(checked, FIRST)
    for _ in range(CONTEXT_TOKENS_MAX - 1):
        assert said(checked, os.urandom(10)) == Challenge(b"proof")
    with pytest.raises(LoginFailedError, match="not open after"):
        said(checked, b"more")


def test_a_session_waits_for_the_errand() -> None:
    session = SaslSession({"GSSAPI": GssapiMechanism(Played, parsed(("DEFAULT",), "R"))})
    session.handshake("GSSAPI", 1, NOW)
    answer = session.authenticate(FIRST, NOW)
    assert answer.errand is not None and not answer.ends
    assert session.concluded(answer.errand.work(), NOW).token == b"proof"
    assert session.authenticate(b"", NOW).token == b"w:" + OFFER
    last = session.authenticate(b"w:" + OFFER, NOW)
    assert (last.error, last.token, last.is_silent, last.lifetime_ms) == (ErrorCode.NONE, b"", True, 0)
    assert session.is_ready


def test_what_interrupts_a_login_is_not_answered() -> None:
    for error, is_silent in ((LoginInterrupted("seen"), True), (LoginFailedError("forged"), False)):
        session = SaslSession({"GSSAPI": GssapiMechanism(Played, parsed(("DEFAULT",), "R"))})
        session.handshake("GSSAPI", 1, NOW)
        assert session.authenticate(FIRST, NOW).errand is not None
        answer = session.concluded(error, NOW)
        assert (answer.ends, answer.is_silent, session.phase) == (True, is_silent, Phase.ENDED)


# --- the client


def client(context: Played) -> GssapiClient:
    made = GssapiClient(context)
    assert made.first().work() == b"proof"
    return made


def test_a_client_logs_in() -> None:
    made = client(Played(tokens=2, answer=b"proof"))
    assert done(made.respond(b"proof")) == b"proof"
    assert made.respond(b"w:" + OFFER) == b"w:" + OFFER
    assert not made.is_done
    assert made.respond(b"") == b"" and made.is_done


def test_a_server_that_does_not_prove_itself() -> None:
    context = Played()
    context.is_mutual = False
    with pytest.raises(LoginFailedError, match="does not prove"):
        client(context).respond(b"w:" + OFFER)


@pytest.mark.parametrize("offer", [b"w:\x06\0\0\0", b"w:\x01\0\0", b"w:\x01\0\0\0x", b"w:", b"", OFFER])
def test_offers_that_a_client_does_not_take(offer: bytes) -> None:
    with pytest.raises(LoginFailedError):
        client(Played()).respond(offer)


def test_a_server_that_goes_on() -> None:
    made = client(Played())
    made.respond(b"w:" + OFFER)
    with pytest.raises(LoginFailedError):
        made.respond(b"more")


# --- options


def module(**options: str) -> LoginModule:
    return LoginModule(KERBEROS_MODULE, "REQUIRED", options)


def test_options() -> None:
    keytab = module(useKeyTab="true", keyTab="FILE:/k", principal="ann@R")
    assert kerberos_options(keytab, accepts=True).keytab == "/k"
    cached = kerberos_options(module(useTicketCache="TRUE", ticketCache="/c"), accepts=False)
    assert (cached.keytab, cached.ticket_cache, cached.principal) == ("", "/c", "")
    for bad, accepts in (
        (module(), False),
        (module(useTicketCache="true"), True),
        (module(useKeyTab="true", principal="ann"), False),
        (module(useKeyTab="true", keyTab="/k"), True),
        (module(useKeyTab="true", keyTab="/k", principal="*"), True),
    ):
        with pytest.raises(KerberosOptionsError):
            kerberos_options(bad, accepts=accepts)


def test_the_service() -> None:
    assert service_name(module(serviceName="kafka"), None) == service_name(module(), "kafka") == "kafka"
    assert service_name(module(serviceName="kafka"), "kafka") == "kafka"
    differing = module(serviceName="a")
    for line, setting in (
        (module(), None),
        (differing, "b"),
        (module(), "kafka/host"),
        (module(), "a@R"),
    ):
        with pytest.raises(KerberosOptionsError):
            service_name(line, setting)
