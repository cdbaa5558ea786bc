"""The public keys of those who sign tokens: a JSON Web Key Set (RFC 7517), and a signature checked by one of its keys.

A key decides which algorithms it is for: its type, its curve, and its `alg` where it has one. What the token's header
says is only ever compared with that. Keys that are secrets (`oct`) are passed over, so no public key can be taken for
the secret of an HMAC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from .tokens import Json, TokenError, decoded, json_object

KEY_SET_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 256
KEY_ID_CHARACTERS_MAX: Final = 1_000
"""A longer key id is no reason to fetch keys, as in Kafka."""
RSA_BITS: Final = range(2_048, 8_193)
TRIED_MAX: Final = 8
"""How many keys of one id are tried on a token that does not say which."""

_NEEDED: Final = "OAUTHBEARER with signed tokens needs the packages cryptography and PyJWT: install headrace[security]"
_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS: Final = frozenset({*_RSA_ALGORITHMS, *_CURVES.values(), "EdDSA"})


class KeysError(ValueError):
    """A set of keys that cannot be used. The text is one line that says what to do."""


@dataclass(frozen=True)
class PublicKey:
    """One key: its id or None, the algorithms that it is for, and the key of `cryptography`."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Any = field(repr=False)


@dataclass(frozen=True)
class KeySet:
    """The keys of an issuer, in the order in which it lists them."""

    keys: tuple[PublicKey, ...]

    def candidates(self, key_id: str | None, algorithm: str) -> list[PublicKey]:
        """The keys that may have signed a token of that key id; of any where the token has none. At most TRIED_MAX."""
        found = [
            each for each in self.keys if algorithm in each.algorithms and (key_id is None or each.key_id == key_id)
        ]
        return found[:TRIED_MAX]


def check_packages() -> None:
    """Checks, for a broker that starts, that the extra is installed. Raises KeysError that names it."""
    try:
        import cryptography.x509  # noqa: F401
        import jwt  # noqa: F401
    except ImportError:
        raise KeysError(_NEEDED) from None


def parsed(data: bytes) -> KeySet:
    """The keys of a JSON Web Key Set. Keys for encryption, secrets, weak keys and unknown kinds are passed over, as
    issuers list them beside others. Raises KeysError where it is no set, or no key is left."""
    check_packages()
    if len(data) > KEY_SET_BYTES_MAX:
        raise KeysError(f"the key set is longer than {KEY_SET_BYTES_MAX} bytes")
    try:
        listed = json_object(data).get("keys")
    except TokenError as error:
        raise KeysError(f"the key set cannot be read: {error}") from None
    if not isinstance(listed, list):
        raise KeysError("the key set has no list of keys: give the address of a JSON Web Key Set")
    if len(listed) > KEYS_MAX:
        raise KeysError(f"the key set holds {len(listed)} keys, at most {KEYS_MAX} are read")
    keys = tuple(key for each in listed if isinstance(each, dict) and (key := _key(each)) is not None)
    if not keys:
        raise KeysError("the key set holds no key that signs tokens: RSA of 2048 bits or more, EC or Ed25519")
    return KeySet(keys)


def _key(jwk: Json) -> PublicKey | None:
    """One key; None for one that does not sign tokens."""
    key_id, use, operations, own = (jwk.get(name) for name in ("kid", "use", "key_ops", "alg"))
    if use not in (None, "sig") or (operations is not None and "verify" not in _texts(operations)):
        return None
    if not isinstance(key_id, str | None) or not isinstance(own, str | None):
        return None
    reader = {"RSA": _rsa, "EC": _ec, "OKP": _okp}.get(str(jwk.get("kty")))
    try:
        read = reader(jwk) if reader is not None else None
    except (TokenError, ValueError):
        return None
    if read is None:
        return None
    key, algorithms = read
    mine = tuple(each for each in algorithms if own in (None, each))
    return PublicKey(key_id, mine, key) if mine else None


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _rsa(jwk: Json) -> tuple[Any, tuple[str, ...]] | None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    modulus, exponent = _number(jwk, "n"), _number(jwk, "e")
    if modulus.bit_length() not in RSA_BITS or exponent.bit_length() > 64:
        return None
    return rsa.RSAPublicNumbers(exponent, modulus).public_key(), _RSA_ALGORITHMS


def _ec(jwk: Json) -> tuple[Any, tuple[str, ...]] | None:
    from cryptography.hazmat.primitives.asymmetric import ec

    name = str(jwk.get("crv"))
    if name not in _CURVES:
        return None
    curves: dict[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    numbers = ec.EllipticCurvePublicNumbers(_number(jwk, "x"), _number(jwk, "y"), curves[name])
    return numbers.public_key(), (_CURVES[name],)


def _okp(jwk: Json) -> tuple[Any, tuple[str, ...]] | None:
    from cryptography.hazmat.primitives.asymmetric import ed25519

    if jwk.get("crv") != "Ed25519":
        return None
    return ed25519.Ed25519PublicKey.from_public_bytes(_bytes(jwk, "x")), ("EdDSA",)


def _bytes(jwk: Json, name: str) -> bytes:
    value = jwk.get(name)
    if not isinstance(value, str):
        raise TokenError(f"the key has no {name}")
    return decoded(value)


def _number(jwk: Json, name: str) -> int:
    return int.from_bytes(_bytes(jwk, name), "big")


def is_signed(data: bytes, signature: bytes, algorithm: str, key: PublicKey) -> bool:
    """Returns whether a key signed `data` by an algorithm that it is for (RFC 7518, RFC 8037); PyJWT verifies it."""
    if algorithm not in key.algorithms:
        return False
    import jwt

    try:
        return jwt.get_algorithm_by_name(algorithm).verify(data, key.key, signature)
    except ValueError:
        return False
