"""A client's side of OAUTHBEARER against the server's, and tokens that a client makes itself."""

from __future__ import annotations

import os

import pytest

from headrace.security.login import Challenge, Errand, Identity, LoginFailedError, LoginRefused, Proved
from headrace.security.oauthbearer.client import (
    BearerCredentials,
    OAuthBearerClient,
    extensions_of,
    unsecured_token,
)
from headrace.security.oauthbearer.messages import first_message
from headrace.security.oauthbearer.server import OAuthBearerServer
from headrace.security.oauthbearer.unsecured import UnsecuredOptionsError, from_options

from .issuing import NOW_MS, NOW_S, issued

SUB = {"unsecuredLoginStringClaim_sub": "ann"}


def server(options: dict[str, str] | None = None) -> OAuthBearerServer:
    tokens = from_options(options or {})
    return OAuthBearerServer(lambda token: tokens.checked(token, NOW_MS))


def test_a_token_of_its_own_making() -> None:
    client = BearerCredentials(lambda: unsecured_token(SUB, NOW_MS)).begin(os.urandom)
    assert isinstance(client, OAuthBearerClient)
    step = server().respond(client.first())
    assert isinstance(step, Proved) and step.identity == Identity("User:ann", (NOW_S + 3600) * 1000)
    assert step.token is not None and client.respond(step.token) == b"" and client.is_done


def test_a_token_from_an_issuer_is_an_errand_that_connections_share() -> None:
    credentials = BearerCredentials(lambda: unsecured_token(SUB, NOW_MS), waits=True)
    errand = credentials.begin(os.urandom)
    assert isinstance(errand, Errand) and {errand} == {credentials.begin(os.urandom)}
    assert errand != BearerCredentials(credentials.token, waits=True).begin(os.urandom)
    client = errand.work()
    assert client.respond(b"") == b"" and client.is_done
    assert client.respond(b"{}") == b"\x01" and not client.is_done


def test_a_token_that_is_refused() -> None:
    client, other = OAuthBearerClient(issued()), server()
    step = other.respond(client.first())
    assert isinstance(step, Challenge)
    goodbye = client.respond(step.token)
    assert goodbye == b"\x01" and not client.is_done
    with pytest.raises(LoginRefused, match="invalid_token"):
        other.respond(goodbye)


@pytest.mark.parametrize("text", ["", "a b", "a\x01b", "a\nb", "tökén", "=", "a" * 300_000])
def test_what_is_no_token_is_not_sent(text: str) -> None:
    with pytest.raises(LoginFailedError, match="is none") as refused:
        OAuthBearerClient(text)
    assert "a b" not in str(refused.value)


def test_claims_of_all_kinds() -> None:
    options = {
        **SUB,
        "unsecuredLoginNumberClaim_level": "7.5",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginLifetimeSeconds": "60",
        "unsecuredLoginListClaim_none": "|",
    }
    tokens = from_options({"unsecuredValidatorRequiredScope": "write read"})
    found = tokens.checked(unsecured_token(options, NOW_MS), NOW_MS)
    assert (found.principal_name, found.expires_ms) == ("ann", NOW_MS + 60_000)  # type: ignore[union-attr]
    other = {"unsecuredLoginPrincipalClaimName": "user", "unsecuredLoginStringClaim_user": "bob"}
    named = from_options({"unsecuredValidatorPrincipalClaimName": "user"})
    assert named.checked(unsecured_token(other, NOW_MS), NOW_MS).principal_name == "bob"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unsecuredLoginStringClaim_sub": " "},
        {**SUB, "unsecuredLoginStringClaim_exp": "1"},
        {**SUB, "unsecuredLoginNumberClaim_iat": "1"},
        {**SUB, "unsecuredLoginNumberClaim_n": "many"},
        {**SUB, "unsecuredLoginLifetimeSeconds": "-1"},
        {**SUB, "unsecuredLoginPrincipalClaimName": "user"},
    ],
)
def test_options_that_make_no_token(options: dict[str, str]) -> None:
    with pytest.raises(UnsecuredOptionsError):
        unsecured_token(options, NOW_MS)


def test_extensions() -> None:
    found = extensions_of({"extension_trace": "1 2", "other": "x"}, "extension_")
    assert found == (("trace", "1 2"),)
    said = first_message(OAuthBearerClient("abc", found).first())
    assert (said.token, said.extensions) == ("abc", found)
    for bad in ({"extension_auth": "x"}, {"extension_a1": "x"}, {"extension_a": "\x01"}, {"extension_a": ""}):
        with pytest.raises(UnsecuredOptionsError):
            extensions_of(bad, "extension_")
