"""The two steps of OAUTHBEARER's login: taken at once, or challenged and then refused."""

from __future__ import annotations

import pytest

from headrace.security.login import Challenge, Identity, LoginFailedError, LoginRefused, Proved
from headrace.security.oauthbearer.server import OAUTHBEARER, OAuthBearerMechanism
from headrace.security.oauthbearer.signed import SignedTokens
from headrace.security.oauthbearer.tokens import Accepted, Refused
from headrace.security.sasl import Moment, SaslSession
from headrace.wire.errors import ErrorCode

from .issuing import NOW_MS, NOW_S, issued, keys

GOODBYE = b"\x01"


def check(token: str) -> Accepted | Refused:
    """Takes the token `good`; `narrow` lacks a scope."""
    if token == "narrow":
        return Refused("a reason for the log", "insufficient_scope", "[a]")
    return Accepted("ann", NOW_MS, None, frozenset()) if token == "good" else Refused("a reason for the log")


def message(token: str, authzid: str = "") -> bytes:
    return f"n,{'a=' + authzid if authzid else ''},\x01auth=Bearer {token}\x01\x01".encode()


def mechanism() -> OAuthBearerMechanism:
    return OAuthBearerMechanism(check, 5_000)


def test_a_good_token_is_all_that_is_said() -> None:
    assert (mechanism().name, mechanism().max_reauth_ms) == (OAUTHBEARER, 5_000)
    proved = Proved(b"", Identity("User:ann", NOW_MS))
    assert mechanism().begin().respond(message("good")) == proved
    assert mechanism().begin().respond(message("good", "ann")) == proved


def test_a_bad_token_is_challenged_and_then_refused_in_the_same_words() -> None:
    for token, said in (
        ("bad", '{"status":"invalid_token"}'),
        ("narrow", '{"status":"insufficient_scope","scope":"[a]"}'),
    ):
        login = mechanism().begin()
        assert login.respond(message(token)) == Challenge(said.encode(), "a reason for the log")
        with pytest.raises(LoginRefused) as told:
            login.respond(GOODBYE)
        assert str(told.value) == said


def test_nobody_tries_a_second_token_after_the_first() -> None:
    for second in (message("good"), message("bad"), b"", b"\x01\x01"):
        login = mechanism().begin()
        assert isinstance(login.respond(message("bad")), Challenge)
        with pytest.raises(LoginFailedError) as told:
            login.respond(second)
        assert not isinstance(told.value, LoginRefused)


def test_another_authzid_is_refused_and_a_bad_token_first() -> None:
    with pytest.raises(LoginRefused, match="different from the token's principal name") as told:
        mechanism().begin().respond(message("good", "admin"))
    assert "admin" not in str(told.value)
    assert isinstance(mechanism().begin().respond(message("bad", "admin")), Challenge)


def test_what_is_no_message_fails_without_a_text_for_the_client() -> None:
    for data in (b"", GOODBYE, b"GET / HTTP/1.1\r\n", b"n,,\x01auth=Basic x\x01\x01"):
        with pytest.raises(LoginFailedError) as told:
            mechanism().begin().respond(data)
        assert not isinstance(told.value, LoginRefused)


def test_a_signed_token_all_the_way() -> None:
    tokens = SignedTokens(frozenset({"kafka"}), "https://issuer")
    signed = OAuthBearerMechanism(lambda token: tokens.checked(token, keys(), NOW_MS))
    step = signed.begin().respond(message(issued()))
    assert step == Proved(b"", Identity("User:ann", (NOW_S + 600) * 1000))
    assert isinstance(signed.begin().respond(message(issued()[:-6])), Challenge)


def test_a_session_hears_the_challenge_without_an_error_and_then_58() -> None:
    now = Moment(0.0, NOW_MS - 1_500)
    session = SaslSession({OAUTHBEARER: OAuthBearerMechanism(check)})
    assert not session.handshake(OAUTHBEARER, 1, now).error
    first = session.authenticate(message("bad"), now)
    assert (first.error, first.token, first.ends) == (ErrorCode.NONE, b'{"status":"invalid_token"}', False)
    last = session.authenticate(GOODBYE, now)
    assert (last.error, last.text, last.ends) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        '{"status":"invalid_token"}',
        True,
    )


def test_a_session_lives_as_long_as_its_token() -> None:
    now = Moment(0.0, NOW_MS - 1_500)
    session = SaslSession({OAUTHBEARER: OAuthBearerMechanism(check)})
    session.handshake(OAUTHBEARER, 1, now)
    answer = session.authenticate(message("good"), now)
    assert (answer.error, answer.lifetime_ms, session.expires_s) == (ErrorCode.NONE, 1_500, 1.5)
