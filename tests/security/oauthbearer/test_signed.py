"""Signed tokens: those of an issuer are taken, and the known ways to make one are not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace.security.oauthbearer.signed import SignedTokens
from headrace.security.oauthbearer.tokens import EXPIRES_MS_MAX, TOKEN_CHARACTERS_MAX, Accepted, Refused

from .issuing import (
    GOOD,
    NOW_MS,
    NOW_S,
    claims,
    encoded,
    forged,
    forgers_key,
    issued,
    jwk,
    keys,
    private_keys,
    signed_bytes,
)

STRICT = SignedTokens(frozenset({"kafka", "logs"}), "https://issuer")
LOOSE = SignedTokens()


def check(token: str, tokens: SignedTokens = STRICT, now_ms: int = NOW_MS) -> Accepted | Refused:
    found = tokens.checked(token, keys(), now_ms)
    if isinstance(found, Refused):
        assert "\n" not in found.why
        assert found.status == "invalid_token"
        assert all(part not in found.why for part in token.split(".") if len(part) > 8)
    return found


def why(token: str, tokens: SignedTokens = STRICT, now_ms: int = NOW_MS) -> str:
    found = check(token, tokens, now_ms)
    assert isinstance(found, Refused), found
    return found.why


@pytest.mark.parametrize(("key_id", "algorithm"), GOOD)
def test_every_algorithm_for_public_keys(key_id: str, algorithm: str) -> None:
    good = Accepted("ann", (NOW_S + 600) * 1000, (NOW_S - 60) * 1000, frozenset())
    assert check(issued(None, key_id, algorithm)) == good
    assert check(issued(None, key_id, algorithm) + "\n") == good


def test_a_token_without_a_key_id_is_of_any_key_that_fits() -> None:
    assert isinstance(check(issued(key_id=None)), Accepted)
    assert "signature" in why(issued(key_id=None, key=forgers_key()))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "RS255", "HS256", None, 256, ["RS256"], {}])
def test_a_token_that_nobody_signed(algorithm: Any) -> None:
    for signature in (b"", b"x"):
        header = {"alg": algorithm, "kid": "rsa"}
        assert "not signed by an algorithm for public keys" in why(forged(header, claims(), signature))
    assert "not signed" in why(forged({"kid": "rsa"}, claims()))


def test_an_hmac_with_a_public_key_for_its_secret() -> None:
    public = private_keys()["rsa"].public_key()
    secrets = [
        public.public_bytes(encoding, form)
        for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER)
        for form in (serialization.PublicFormat.SubjectPublicKeyInfo, serialization.PublicFormat.PKCS1)
    ]
    secrets += [json.dumps(jwk(private_keys()["rsa"], "rsa")).encode(), b""]
    for secret in secrets:
        for algorithm, digest in (("HS256", hashlib.sha256), ("RS256", hashlib.sha256), ("HS512", hashlib.sha512)):
            head = f"{encoded({'alg': algorithm, 'kid': 'rsa'})}.{encoded(claims())}"
            signature = hmac.digest(secret, head.encode(), digest)
            assert "sign" in why(f"{head}.{encoded(signature)}")


def test_the_algorithm_belongs_to_the_key() -> None:
    own = private_keys()
    assert "no key is for the token's algorithm" in why(issued(None, "p256", "RS256", own["rsa"]))
    assert "no key is for the token's algorithm" in why(issued(None, "rsa", "ES256", own["p256"]))
    assert "no key is for the token's algorithm" in why(issued(None, "p384", "ES256", own["p256"]))
    head, body, signature = issued().split(".")
    other = encoded({"alg": "PS256", "kid": "rsa"})
    assert "signature" in why(f"{other}.{body}.{signature}")
    assert head != other


def test_a_forgers_key_in_the_header_is_not_used() -> None:
    own = jwk(forgers_key(), "mine")
    certificate = base64.b64encode(b"x").decode()
    for more in ({"jwk": own}, {"jku": "https://forger/jwks"}, {"x5u": "https://forger"}, {"x5c": [certificate]}):
        assert "signature" in why(issued(None, "rsa", "RS256", forgers_key(), **more))
        assert check(issued(None, "mine", "RS256", forgers_key(), **more)) == Refused(
            "the token is signed by a key that is not known", unknown_key="mine"
        )


def test_an_unknown_key_asks_for_the_keys_again_unless_its_id_is_long() -> None:
    for key_id in ("new", "", "x" * 1000, "../etc", "a\nb"):
        found = check(issued(None, key_id, "RS256", forgers_key()))
        assert isinstance(found, Refused) and found.unknown_key == key_id
    found = check(issued(None, "x" * 1001, "RS256", forgers_key()))
    assert isinstance(found, Refused) and found.unknown_key is None
    for header in ({"alg": "none", "kid": "new"}, {"alg": "HS256", "kid": "new"}):
        found = check(forged(header, claims()))
        assert isinstance(found, Refused) and found.unknown_key is None


def test_a_header_that_asks_for_more() -> None:
    asked: list[dict[str, Any]] = [{"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"kid": 7}, {"kid": ["rsa"]}]
    for more in asked:
        assert "asks for what is not known" in why(forged({"alg": "RS256", "kid": "rsa", **more}, claims(), b"x"))


def test_signatures_of_the_wrong_form() -> None:
    head = f"{encoded({'alg': 'ES256', 'kid': 'p256'})}.{encoded(claims())}"
    der = utils.encode_dss_signature(7, 9)
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    for signature in (bytes(64), b"", der, bytes(63), bytes(128), order.to_bytes(32, "big") * 2, b"\xff" * 64):
        assert "signature" in why(f"{head}.{encoded(signature)}")
    true = private_keys()["p256"].sign(head.encode(), ec.ECDSA(hashes.SHA256()))
    assert "signature" in why(f"{head}.{encoded(true)}")
    for body in ("", "x"):
        assert "signature" in why(issued()[: -len(issued().rsplit(".", 1)[1])] + encoded(body.encode()))


def test_a_changed_body_or_header() -> None:
    head, body, signature = issued().split(".")
    assert "signature" in why(f"{head}.{encoded(claims(sub='admin'))}.{signature}")
    assert "signature" in why(f"{encoded({'alg': 'RS256', 'kid': 'rsa', 'x': 1})}.{body}.{signature}")


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "...", "a.b", "a.b.c.d", "a.b.c.d.e", "x" * TOKEN_CHARACTERS_MAX, "é.é.é", "a=.b.c", "a b.c.d"],
)
def test_what_is_no_token(token: str) -> None:
    assert why(token)


def test_a_long_token_is_not_looked_at() -> None:
    assert "more than" in why(issued(claims(x="y" * TOKEN_CHARACTERS_MAX)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"7",
        b"\xff",
        b"{",
        b"[" * 100_000,
        b'{"sub":"ann","sub":"admin","iat":1800000000,"exp":1800000600,"aud":"kafka","iss":"https://issuer"}',
        b'{"sub":"ann","iat":1800000000,"exp":NaN}',
        b'{"sub":"ann","iat":1800000000,"exp":Infinity}',
        b'{"sub":"ann","iat":1800000000,"exp":1e999}',
        b'{"sub":"ann","iat":1800000000,"exp":' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_signed_body_that_is_no_good_json(body: bytes) -> None:
    assert why(signed_bytes(body), LOOSE)


@pytest.mark.parametrize("name", ["exp", "iat", "sub", "aud", "iss"])
def test_claims_that_must_be_there(name: str) -> None:
    assert why(issued(claims(**{name: None})))


@pytest.mark.parametrize("wrong", ["1800000600", True, [], {}, -1, "soon"])
@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
def test_times_that_are_none(name: str, wrong: Any) -> None:
    assert f"the claim {name} is" in why(issued(claims(**{name: wrong})))


def test_the_times_have_a_skew_of_half_a_minute() -> None:
    end = (NOW_S + 600) * 1000
    token = issued()
    assert isinstance(check(token, now_ms=end + 29_999), Accepted)
    assert "expired" in why(token, now_ms=end + 30_000)
    assert "expired" in why(token, SignedTokens(STRICT.audiences, STRICT.issuer, clock_skew_s=0), end)
    assert isinstance(check(issued(claims(nbf=NOW_S + 30))), Accepted)
    assert "not valid yet" in why(issued(claims(nbf=NOW_S + 31)))
    assert "before it begins" in why(issued(claims(iat=NOW_S + 601)))
    assert "before it begins" in why(issued(claims(nbf=NOW_S + 601)))
    assert isinstance(check(issued(claims(exp=NOW_S + 600.9, iat=NOW_S + 0.5))), Accepted)


def test_a_token_for_ever_ends_with_the_year_9999() -> None:
    for exp in (10**12, 1e300, 1e308, 10**307, 10**400):
        found = check(issued(claims(exp=exp)))
        assert isinstance(found, Accepted | Refused)
        assert isinstance(found, Refused) or found.expires_ms == EXPIRES_MS_MAX


def test_the_audience() -> None:
    for good in ("kafka", ["kafka"], ["x", "logs"]):
        assert isinstance(check(issued(claims(aud=good))), Accepted)
    for other in ("Kafka", "kafka ", ["x"], []):
        assert "somebody else" in why(issued(claims(aud=other)))
    for wrong in (7, {"kafka": 1}, ["kafka", 7]):
        assert "names nobody" in why(issued(claims(aud=wrong)))
    assert isinstance(check(issued(claims(aud=None)), LOOSE), Accepted)
    assert "somebody else" in why(issued(), LOOSE)


def test_the_issuer() -> None:
    for other in ("https://issuer/", "https://Issuer", "", 7, ["https://issuer"]):
        assert "another issuer" in why(issued(claims(iss=other)))
    assert isinstance(check(issued(claims(iss="https://anybody", aud=None)), LOOSE), Accepted)
    assert "another issuer" in why(issued(claims(iss=7, aud=None)), LOOSE)


def test_the_subject_and_its_claim() -> None:
    for wrong in ("", " \t\n", 7, ["ann"], {"a": 1}, True):
        assert "the claim sub is" in why(issued(claims(sub=wrong)))
    found = check(issued(claims(sub=" ann ")))
    assert isinstance(found, Accepted) and found.principal_name == "ann"
    by_mail = SignedTokens(STRICT.audiences, STRICT.issuer, sub_claim="mail")
    found = check(issued(claims(mail="ann@example.org")), by_mail)
    assert isinstance(found, Accepted) and found.principal_name == "ann@example.org"
    assert "the claim mail is missing" in why(issued(), by_mail)


def test_the_scope() -> None:
    tokens = SignedTokens(STRICT.audiences, STRICT.issuer, scope_claim="scp")
    for given_scope, expected in (
        (None, set()), ("a b", {"a b"}), (["a", " b "], {"a", "b"}), ([], set()), (7, set()), ({"a": 1}, set()),
    ):  # fmt: skip
        found = check(issued(claims(scp=given_scope)), tokens)
        assert isinstance(found, Accepted) and found.scope == expected
    for wrong in ("", " ", ["a", "a"], ["a", " a"], [""], [7], [None]):
        assert "the claim scp" in why(issued(claims(scp=wrong)), tokens)


@settings(max_examples=tried(300))
@given(data=st.data())
def test_a_changed_token_is_refused(data: st.DataObject) -> None:
    token = issued()
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCabc019-_.= \n\0é"))
    changed = token[:at] + data.draw(st.sampled_from(["", other, other * 2])) + token[at + 1 :]
    if changed.strip() != token:
        found = check(changed)
        # the last character of a signature has bits that mean nothing
        assert isinstance(found, Refused) or at == len(token) - 1


@settings(max_examples=tried(300))
@given(
    st.dictionaries(
        st.sampled_from(["sub", "iat", "exp", "nbf", "aud", "iss", "scope", "jti"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        ),
    )
)
def test_claims_of_any_kind_are_taken_or_refused(changes: dict[str, Any]) -> None:
    assert isinstance(check(issued(claims(**changes))), Accepted | Refused)
