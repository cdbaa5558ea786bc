"""Tokens that nobody has signed, which the default handler of OAUTHBEARER takes: for tests and development alone.

Anybody can make one with any name. Kafka has it as the default, with these names of JAAS options:
`unsecuredValidatorPrincipalClaimName`, `...ScopeClaimName`, `...RequiredScope`, `...AllowableClockSkewMs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .tokens import (
    INSUFFICIENT_SCOPE,
    Accepted,
    Json,
    Refused,
    TokenError,
    decoded,
    is_blank,
    json_object,
    ms_of,
    number,
    parts,
)

_PREFIX: Final = "unsecuredValidator"
_SCOPE_ITEM: Final = re.compile(r"[!#-\[\]-~]+")
_SKEW: Final = re.compile(r"[0-9]{1,9}")


class UnsecuredOptionsError(ValueError):
    """A JAAS option of the default handler is wrong. The text is one line that names it."""


@dataclass(frozen=True)
class UnsecuredTokens:
    """What a token must say. `required_scope`: each of them must be in the token's."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    def checked(self, token: str, now_ms: int) -> Accepted | Refused:
        """Whether `token` is good at `now_ms` (ms since 1970)."""
        try:
            accepted = self._claims(_claims(token), now_ms)
        except TokenError as error:
            return Refused(str(error))
        if not accepted.scope.issuperset(self.required_scope):
            wanted = f"[{', '.join(self.required_scope)}]"
            return Refused("the token lacks a scope that is required", INSUFFICIENT_SCOPE, wanted)
        return accepted

    def _claims(self, claims: Json, now_ms: int) -> Accepted:
        expires, started = number(claims, "exp"), number(claims, "iat")
        if expires is None:
            raise TokenError("the claim exp is missing")
        name = claims.get(self.principal_claim)
        if not isinstance(name, str) or is_blank(name):
            raise TokenError(f"the claim {self.principal_claim} names nobody")
        if started is not None and 1000 * started > now_ms + self.clock_skew_ms:
            raise TokenError("the token is issued in the future")
        if now_ms - self.clock_skew_ms >= 1000 * expires:
            raise TokenError("the token has expired")
        if started is not None and expires <= started:
            raise TokenError("the token expires before it begins")
        scope = _scope(claims.get(self.scope_claim), self.scope_claim)
        return Accepted(name, ms_of(expires), None if started is None else ms_of(started), scope)


def from_options(options: Mapping[str, str]) -> UnsecuredTokens:
    """What the options of `sasl.jaas.config` ask for. Raises UnsecuredOptionsError."""

    def option(name: str, default: str) -> str:
        return options.get(_PREFIX + name, "").strip() or default

    skew = option("AllowableClockSkewMs", "0")
    if _SKEW.fullmatch(skew) is None:
        raise UnsecuredOptionsError(f"{_PREFIX}AllowableClockSkewMs must be a number of milliseconds")
    required = tuple(option("RequiredScope", "").split())
    if not all(_SCOPE_ITEM.fullmatch(each) for each in required):
        raise UnsecuredOptionsError(f"{_PREFIX}RequiredScope must be words of ASCII without quotes and backslashes")
    return UnsecuredTokens(option("PrincipalClaimName", "sub"), option("ScopeClaimName", "scope"), required, int(skew))


def _claims(token: str) -> Json:
    """The claims of a token whose header says that nobody signed it. Raises TokenError."""
    head, body, signature = parts(token)
    if json_object(decoded(head)).get("alg") != "none":
        raise TokenError("a signed token, and only the handler of signed tokens takes those")
    if signature or not body:
        raise TokenError("an unsecured token has claims and no signature")
    return json_object(decoded(body))


def _scope(value: Any, name: str) -> frozenset[str]:
    """The scope: one text, which is one scope, or a list of them. Raises TokenError."""
    if value is None:
        return frozenset()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise TokenError(f"the claim {name} is neither a text nor a list of texts")
    return frozenset(each.strip() for each in texts if not is_blank(each))
