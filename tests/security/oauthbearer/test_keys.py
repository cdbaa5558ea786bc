"""Key sets: what an issuer lists is read, and nothing weak or secret becomes a key."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.security.oauthbearer.keys import (
    KEY_SET_BYTES_MAX,
    KEYS_MAX,
    TRIED_MAX,
    KeysError,
    check_packages,
    is_signed,
    parsed,
)

from .issuing import encoded, issued, jwk, jwks, key_set, private_keys

OWN = private_keys()


def test_every_kind_of_key_is_for_its_algorithms() -> None:
    read = {each.key_id: each.algorithms for each in parsed(jwks()).keys}
    rsa_algorithms = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
    assert read == {"rsa": rsa_algorithms, "p256": ("ES256",), "p384": ("ES384",), "p521": ("ES512",), "ed": ("EdDSA",)}


def test_a_key_may_name_its_one_algorithm() -> None:
    (key,) = parsed(key_set(jwk(OWN["rsa"], "a", alg="PS256", use="sig", key_ops=["verify"], x5t="x"))).keys
    assert key.algorithms == ("PS256",)


def left(*listed: Any) -> list[str | None]:
    """The ids of the keys that are left beside a good one."""
    return [each.key_id for each in parsed(key_set(jwk(OWN["p256"], "good"), *listed)).keys][1:]


def test_keys_that_sign_no_tokens_are_passed_over() -> None:
    good = jwk(OWN["rsa"], "x")
    assert left(good) == ["x"]
    assert left({**good, "kid": None}) == [None]
    curve = jwk(OWN["p256"], "x")
    wrongs: list[Any] = [
        {**good, "use": "enc"},
        {**good, "use": 7},
        {**good, "key_ops": ["sign"]},
        {**good, "key_ops": "verify"},
        {**good, "alg": "RS1"},
        {**good, "alg": "none"},
        {**good, "alg": "HS256"},
        {**good, "alg": "ES256"},
        {**good, "alg": 7},
        {**good, "kid": 7},
        {**good, "kty": "rsa"},
        {**good, "kty": ["RSA"]},
        {**good, "n": None},
        {**good, "n": "="},
        {**good, "n": 7},
        {**good, "e": ""},
        {**good, "e": encoded(b"\1")},
        {**good, "e": encoded(b"\2")},
        {**good, "e": encoded(b"\xff" * 9)},
        {**good, "n": encoded(b"\xff" * 2000)},
        {"kty": "oct", "k": encoded(b"secret" * 10), "kid": "x"},
        {"kty": "oct", "k": encoded(b"secret" * 10), "alg": "RS256", "kid": "x"},
        jwk(rsa.generate_private_key(65537, 1024), "x"),
        jwk(ec.generate_private_key(ec.SECP256K1()), "x"),
        {**curve, "crv": "P-384"},
        {**curve, "crv": "P-999"},
        {**curve, "x": curve["y"]},
        {**curve, "x": encoded(bytes(32)), "y": encoded(bytes(32))},
        {**curve, "y": encoded(b"\xff" * 100)},
        {**jwk(OWN["ed"], "x"), "x": encoded(b"short")},
        {**jwk(OWN["ed"], "x"), "crv": "X25519"},
        {},
        [],
        "key",
        7,
        None,
    ]
    for wrong in wrongs:
        assert left(wrong) == [], wrong


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "cannot be read"),
        (b"<html>", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[]", "cannot be read"),
        (b"{}", "no list of keys"),
        (b'{"keys":{}}', "no list of keys"),
        (b'{"keys":[],"keys":[]}', "twice"),
        (b'{"keys":[]}', "no key that signs"),
        (b'{"keys":[{}]}', "no key that signs"),
        (b" " * (KEY_SET_BYTES_MAX + 1), "longer than"),
        (json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode(), "at most"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_what_is_no_key_set(data: bytes, what: str) -> None:
    with pytest.raises(KeysError, match=what) as told:
        parsed(data)
    assert "\n" not in str(told.value)


def test_few_of_many_keys_are_tried() -> None:
    same = parsed(key_set(*(jwk(OWN["rsa"], None) for _ in range(100))))
    assert len(same.keys) == 100
    assert len(same.candidates(None, "RS256")) == TRIED_MAX
    assert same.candidates("x", "RS256") == []
    assert same.candidates(None, "ES256") == []


@pytest.mark.parametrize("package", ["cryptography", "jwt"])
def test_a_missing_package_is_named_with_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = jwks()
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    for call in (check_packages, lambda: parsed(good)):
        with pytest.raises(KeysError, match=r"needs the packages cryptography and PyJWT: install headrace\[security\]"):
            call()


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(OWN)),
    st.dictionaries(
        st.sampled_from(["kty", "crv", "n", "e", "x", "y", "alg", "use", "kid"]),
        st.none()
        | st.integers()
        | st.text(max_size=10)
        | st.binary(max_size=70).map(encoded)
        | st.lists(st.text(), max_size=2),
    ),
)
def test_changed_keys_are_read_or_passed_over(key_id: str, changes: dict[str, Any]) -> None:
    left({**jwk(OWN[key_id], "x"), **changes})


def test_a_signature_counts_only_by_an_algorithm_that_the_key_is_for() -> None:
    data, signature = issued().rsplit(".", 1)
    raw = base64.urlsafe_b64decode(signature + "==")
    (any_of_rsa,) = parsed(key_set(jwk(OWN["rsa"], None))).keys
    (for_another,) = parsed(key_set(jwk(OWN["rsa"], None, alg="PS256"))).keys
    assert is_signed(data.encode(), raw, "RS256", any_of_rsa)
    assert not is_signed(data.encode(), raw, "RS256", for_another)
    assert not is_signed(data.encode(), raw, "ES256", any_of_rsa)
