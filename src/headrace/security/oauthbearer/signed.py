"""Tokens that an issuer has signed, checked as Kafka's BrokerJwtValidator does (KIP-768, KIP-1139)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .keys import ALGORITHMS, KEY_ID_CHARACTERS_MAX, KeySet, is_signed
from .tokens import (
    Accepted,
    Json,
    Refused,
    TokenError,
    decoded,
    json_object,
    ms_of,
    number,
    parts,
    trimmed,
)

CLOCK_SKEW_S: Final = 30


class _UnknownKeyError(TokenError):
    """None of the keys has the id that a token names."""

    def __init__(self, key_id: str) -> None:
        super().__init__("the token is signed by a key that is not known")
        self.key_id = key_id


@dataclass(frozen=True)
class SignedTokens:
    """What a token must say.

    `audiences` (`sasl.oauthbearer.expected.audience`): one of them must be the token's; where none is given, a token
    that is meant for somebody is refused. `issuer` (`sasl.oauthbearer.expected.issuer`) must be the token's, or is
    None: any. The claim names and the skew are `sasl.oauthbearer.{sub,scope}.claim.name` and `.clock.skew.seconds`.
    """

    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    sub_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_s: int = CLOCK_SKEW_S

    def checked(self, token: str, keys: KeySet, now_ms: int) -> Accepted | Refused:
        """Whether `token` is good at `now_ms` (ms since 1970). The signature is checked before any claim is."""
        try:
            return self._claims(_signed_claims(token, keys), now_ms)
        except _UnknownKeyError as error:
            worth_asking = len(error.key_id) <= KEY_ID_CHARACTERS_MAX
            return Refused(str(error), unknown_key=error.key_id if worth_asking else None)
        except TokenError as error:
            return Refused(str(error))

    def _claims(self, claims: Json, now_ms: int) -> Accepted:
        expires, started = _time(claims, "exp"), _time(claims, "iat")
        if expires is None or started is None:
            raise TokenError(f"the claim {'exp' if expires is None else 'iat'} is missing")
        _check_times(expires, started, _time(claims, "nbf"), now_ms // 1000, self.clock_skew_s)
        self._check_issuer(claims.get("iss"))
        self._check_audience(claims.get("aud"))
        for name in ("sub", "jti"):
            if not isinstance(claims.get(name), str | None):
                raise TokenError(f"the claim {name} is no text")
        scope = _scope(claims.get(self.scope_claim), self.scope_claim)
        name = trimmed(claims.get(self.sub_claim), self.sub_claim)
        return Accepted(name, ms_of(expires), ms_of(started), scope)

    def _check_issuer(self, issuer: Any) -> None:
        if not isinstance(issuer, str | None) or (self.issuer is not None and issuer != self.issuer):
            raise TokenError("the token is of another issuer")

    def _check_audience(self, audience: Any) -> None:
        if audience is None and not self.audiences:
            return
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
            raise TokenError("the claim aud names nobody")
        if self.audiences.isdisjoint(named):
            raise TokenError("the token is meant for somebody else")


def _signed_claims(token: str, keys: KeySet) -> Json:
    """The claims of a token whose signature is good. Raises TokenError."""
    head, body, signature = parts(token.strip())
    header = json_object(decoded(head))
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenError("the token is not signed by an algorithm for public keys")
    if "crit" in header or "b64" in header or not isinstance(key_id, str | None):
        raise TokenError("the header of the token asks for what is not known here")
    candidates = keys.candidates(key_id, algorithm)
    if not candidates:
        if key_id is not None and all(each.key_id != key_id for each in keys.keys):
            raise _UnknownKeyError(key_id)
        raise TokenError("no key is for the token's algorithm")
    data, given = f"{head}.{body}".encode(), decoded(signature)
    if not any(is_signed(data, given, algorithm, key) for key in candidates):
        raise TokenError("the signature of the token is wrong")
    return json_object(decoded(body))


def _time(claims: Json, name: str) -> int | None:
    """A time in whole seconds since 1970, as Kafka's library reads it. Raises TokenError."""
    value = number(claims, name)
    if value is not None and value < 0:
        raise TokenError(f"the claim {name} is before 1970")
    return None if value is None else int(value)


def _check_times(expires: int, started: int, not_before: int | None, now: int, skew: int) -> None:
    """Seconds since 1970. Raises TokenError."""
    if now - skew >= expires:
        raise TokenError("the token has expired")
    if expires < started or (not_before is not None and expires < not_before):
        raise TokenError("the token expires before it begins")
    if not_before is not None and now + skew < not_before:
        raise TokenError("the token is not valid yet")


def _scope(value: Any, name: str) -> frozenset[str]:
    """The scope: one text, or a list of them; anything else is none. Raises TokenError."""
    if isinstance(value, str):
        return frozenset({trimmed(value, name)})
    if not isinstance(value, list):
        return frozenset()
    texts = [trimmed(each, name) for each in value]
    if len(set(texts)) != len(texts):
        raise TokenError(f"the claim {name} holds a value twice")
    return frozenset(texts)
