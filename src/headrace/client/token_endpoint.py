"""The token of an issuer for a client id and secret: OAuth's client credentials grant.

A token is used until four fifths of its life are over, and then requested again; the old one stays in use while it is
valid and the issuer is unavailable. Everything here blocks: nodes call it on a worker. Source: RFC 6749 (4.4), KIP-768,
KIP-1139.
"""

from __future__ import annotations

import base64
import json
import math
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus

from headrace.config import BROKER_SETTINGS, ConfigError, Value, parse_value
from headrace.config.oauth import (
    ALLOWED_URLS,
    CLIENT_ID,
    CLIENT_SECRET,
    CONNECT_MS,
    READ_MS,
    RETRY_MAX_MS,
    RETRY_MS,
    SCOPE,
    TOKEN_URL,
    URLENCODE,
)
from headrace.security.login import LoginFailedError

ANSWER_BYTES_MAX: Final = 1 << 18
KEPT_SHARE: Final = 0.8
"""Of its life, a token is shown for so long; Kafka's `sasl.login.refresh.window.factor`."""
SHOWN_SHARE: Final = 0.95
"""And for so long while no other is to be had."""
RETRIED_AFTER_S: Final = 10.0
"""How long the issuer is left alone then."""
_PERMANENT: Final = frozenset({*range(400, 500), 501, 505} - {408, 429})
"""What a server that answers so will answer again."""


@dataclass(frozen=True, slots=True)
class Grant:
    """How an issuer is asked. `tls` are the `ssl.` options of the JAAS line, as Kafka takes them. `repr` shows no
    secret."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    is_encoded: bool
    connect_s: float
    read_s: float
    retry_s: float
    retry_max_s: float
    tls: tuple[tuple[str, str], ...] = field(repr=False)


TlsContext = Callable[[Mapping[str, str]], ssl.SSLContext | None]
"""Opens a context by `ssl.` properties; None for no TLS. Raises ConfigError."""


class _AgainError(Exception):
    """It may go better a moment later."""


def grant_of(settings: Mapping[str, str], options: Mapping[str, str]) -> Grant:
    """By properties, and the options of the JAAS line where those do not say. Raises ConfigError, which shows no
    secret."""
    url = settings[TOKEN_URL]
    allowed = parse_value(BROKER_SETTINGS[ALLOWED_URLS], settings.get(ALLOWED_URLS, ""))
    assert isinstance(allowed, tuple)
    if url not in allowed:
        shown = url.partition("?")[0]
        raise ConfigError(TOKEN_URL, shown, f"it is not allowed: {ALLOWED_URLS} must name it too")
    credentials = {}
    for name, option in ((CLIENT_ID, "clientId"), (CLIENT_SECRET, "clientSecret"), (SCOPE, "scope")):
        credentials[name] = settings.get(name) or options.get(option) or ""
        if not credentials[name] and name != SCOPE:
            raise ConfigError(name, "", f"an issuer asks for it; the JAAS line may give it as {option}")

    def value(name: str) -> Value:
        row = BROKER_SETTINGS[name]
        return parse_value(row, settings[name]) if name in settings else row.default

    def seconds(name: str) -> float:
        number = value(name)
        assert isinstance(number, int)
        return number / 1000

    tls = tuple(sorted((name, text) for name, text in options.items() if name.startswith("ssl.")))
    return Grant(
        url, credentials[CLIENT_ID], credentials[CLIENT_SECRET], credentials[SCOPE].strip(), bool(value(URLENCODE)),
        seconds(CONNECT_MS), seconds(READ_MS), seconds(RETRY_MS), seconds(RETRY_MAX_MS), tls,
    )  # fmt: skip


class TokenEndpoint:
    """An issuer that gives tokens, and the one that it gave last. May be used by several threads: one of them asks, and
    the others wait for it."""

    def __init__(self, grant: Grant, tls_context: TlsContext) -> None:
        """`tls_context` opens what connections to the issuer are made with, by `ssl.` options of the JAAS line. Nobody
        is asked yet."""
        self._grant = grant
        self._tls_context = tls_context
        self._lock = threading.Lock()
        self._token = ""
        self._kept_until = self._shown_until = -math.inf

    def token(self) -> str:
        """A token. Raises LoginFailedError, one line without secrets, where none is to be had for so long as
        `sasl.login.retry.backoff.max.ms` says."""
        with self._lock:
            now = time.monotonic()
            if now < self._kept_until:
                return self._token
            has_old = now < self._shown_until
            try:
                answer = self._request(again=not has_old)
            except LoginFailedError:
                if not has_old:
                    raise
                self._kept_until = min(self._shown_until, time.monotonic() + RETRIED_AFTER_S)
                return self._token
            self._token, life_s = _token_in(answer, self._grant.url)
            now = time.monotonic()
            self._kept_until, self._shown_until = now + KEPT_SHARE * life_s, now + SHOWN_SHARE * life_s
            return self._token

    def _context(self) -> ssl.SSLContext | None:
        grant = self._grant
        if not grant.tls or not grant.url.startswith("https:"):
            return None
        try:
            return self._tls_context(dict(grant.tls))
        except ConfigError as error:
            raise LoginFailedError(f"the issuer at {_shown(grant.url)} cannot be asked: {error}") from None

    def _request(self, *, again: bool) -> bytes:
        """Returns the issuer's answer; `again`: retries after a failure, for a while."""
        grant = self._grant
        ends = time.monotonic() + grant.retry_max_s
        pause_s = grant.retry_s
        context = self._context()
        while True:
            try:
                return _answer(grant, context)
            except _AgainError as error:
                left_s = ends - time.monotonic()
                if not again or left_s <= 0:
                    raise LoginFailedError(str(error)) from None
                time.sleep(min(pause_s, left_s))
                pause_s *= 2


def _answer(grant: Grant, context: ssl.SSLContext | None) -> bytes:
    """Raises _AgainError, or LoginFailedError where asking again would not help."""
    from headrace.env.posix_web import PosixWeb, WebStatusError

    who = (grant.client_id, grant.client_secret)
    if grant.is_encoded:
        who = (quote_plus(who[0]), quote_plus(who[1]))
    headers = {
        "Authorization": f"Basic {base64.b64encode(':'.join(who).encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    body = "grant_type=client_credentials" + (f"&scope={quote_plus(grant.scope)}" if grant.scope else "")
    try:
        return PosixWeb().post(
            grant.url, body.encode(), headers, bytes_max=ANSWER_BYTES_MAX, connect_timeout_s=grant.connect_s,
            timeout_s=grant.connect_s + grant.read_s, context=context,
        )  # fmt: skip
    except OSError as error:
        why = f"no token from {_shown(grant.url)}: {error.strerror or error}"
        is_permanent = isinstance(error, ssl.SSLCertVerificationError) or (
            isinstance(error, WebStatusError) and error.status in _PERMANENT
        )
        raise (LoginFailedError(why) if is_permanent else _AgainError(why)) from None


def _token_in(answer: bytes, url: str) -> tuple[str, float]:
    """The token of an answer, and how many seconds it lives; 0: nobody says. Raises LoginFailedError."""
    try:
        credentials = json.loads(answer)
    except (ValueError, RecursionError):
        credentials = None
    token = credentials.get("access_token") if isinstance(credentials, dict) else None
    if not isinstance(token, str) or not token.strip():
        raise LoginFailedError(f"no token from {_shown(url)}: what it answers holds no access_token")
    life_s = _end_s(token) - time.time()
    if math.isinf(life_s):
        life_s = _seconds(credentials.get("expires_in"))
        life_s = life_s if math.isfinite(life_s) else 0.0
    return token.strip(), max(0.0, life_s)


def _end_s(token: str) -> float:
    """When a JSON Web Token ends, in seconds since 1970; without end where it does not say, or is none."""
    try:
        part = token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        end = claims["exp"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return math.inf
    return _seconds(end)


def _seconds(credentials: Any) -> float:
    """A number of JSON, which may have hundreds of digits; infinite for an unusable one."""
    if isinstance(credentials, bool) or not isinstance(credentials, int | float):
        return math.inf
    try:
        number = float(credentials)
    except OverflowError:
        return math.inf
    return number if math.isfinite(number) else math.inf


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    return url.partition("?")[0]
