"""An issuer of tokens for tests, by PyJWT, and a forger who writes what no library would."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from headrace.security.oauthbearer.keys import KeySet, parsed

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000


@functools.cache
def private_keys() -> dict[str, Any]:
    """The issuer's keys, by key id."""
    return {
        "rsa": rsa.generate_private_key(65537, 2048),
        "p256": ec.generate_private_key(ec.SECP256R1()),
        "p384": ec.generate_private_key(ec.SECP384R1()),
        "p521": ec.generate_private_key(ec.SECP521R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(),
    }


@functools.cache
def forgers_key() -> Any:
    """A key that the issuer has not."""
    return rsa.generate_private_key(65537, 2048)


GOOD = [
    ("rsa", "RS256"), ("rsa", "RS384"), ("rsa", "RS512"), ("rsa", "PS256"), ("rsa", "PS384"), ("rsa", "PS512"),
    ("p256", "ES256"), ("p384", "ES384"), ("p521", "ES512"), ("ed", "EdDSA"),
]  # fmt: skip
"""Key ids, and what their keys sign by."""


def jwk(key: Any, key_id: str | None, **more: Any) -> dict[str, Any]:
    """The public half of a key, as an issuer lists it."""
    kind: dict[Any, Any] = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    algorithm = next((each for of, each in kind.items() if isinstance(key, of)), OKPAlgorithm)
    listed = dict(algorithm.to_jwk(key.public_key(), as_dict=True))
    listed.pop("key_ops", None)
    return {**listed, **({} if key_id is None else {"kid": key_id}), **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


@functools.cache
def jwks() -> bytes:
    return key_set(*(jwk(key, key_id) for key_id, key in private_keys().items()))


@functools.cache
def keys() -> KeySet:
    return parsed(jwks())


def claims(**more: Any) -> dict[str, Any]:
    """Good claims, with others in their place; None takes one away."""
    good = {"sub": "ann", "iat": NOW_S - 60, "exp": NOW_S + 600, "aud": "kafka", "iss": "https://issuer", **more}
    return {name: value for name, value in good.items() if value is not None}


def issued(
    body: dict[str, Any] | None = None,
    key_id: str | None = "rsa",
    algorithm: str = "RS256",
    key: Any = None,
    **header: Any,
) -> str:
    """A token that is signed as it says."""
    own = private_keys()[key_id or "rsa"] if key is None else key
    head = {**({} if key_id is None else {"kid": key_id}), **header}
    return jwt.api_jws.encode(json.dumps(claims() if body is None else body).encode(), own, algorithm, head)


def encoded(data: bytes | dict[str, Any]) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def forged(header: bytes | dict[str, Any], body: bytes | dict[str, Any], signature: bytes = b"") -> str:
    """A token with any parts."""
    return f"{encoded(header)}.{encoded(body)}.{encoded(signature)}"


def signed_bytes(body: bytes) -> str:
    """A token whose signature is good, over a body that need not be JSON."""
    return jwt.api_jws.encode(body, private_keys()["rsa"], "RS256", {"kid": "rsa"})
