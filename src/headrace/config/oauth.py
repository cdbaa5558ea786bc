"""The names of OAUTHBEARER's settings, and the addresses that some of them hold."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

URL_SCHEMES: Final = ("https", "http", "file")
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
URLENCODE: Final = "sasl.oauthbearer.header.urlencode"
CONNECT_MS: Final = "sasl.login.connect.timeout.ms"
READ_MS: Final = "sasl.login.read.timeout.ms"
RETRY_MS: Final = "sasl.login.retry.backoff.ms"
RETRY_MAX_MS: Final = "sasl.login.retry.backoff.max.ms"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
ALLOWED_URLS: Final = "sasl.oauthbearer.allowed.urls"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
UNVERIFIED_AUDIENCE: Final = "sasl.oauthbearer.allow.unverified.audience"
UNVERIFIED_ISSUER: Final = "sasl.oauthbearer.allow.unverified.issuer"
REFRESH_MS: Final = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
BACKOFF_MS: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
BACKOFF_MAX_MS: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
CLOCK_SKEW_S: Final = "sasl.oauthbearer.clock.skew.seconds"
SCOPE_CLAIM: Final = "sasl.oauthbearer.scope.claim.name"
SUB_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"

TOKEN_SETTINGS: Final = (
    TOKEN_URL, ALLOWED_URLS, CLIENT_ID, CLIENT_SECRET, SCOPE, URLENCODE, CONNECT_MS, READ_MS, RETRY_MS, RETRY_MAX_MS,
)  # fmt: skip
"""What says where the token comes from by which somebody logs in."""


def split_url(text: str) -> SplitResult:
    """The parts of an address. Raises ValueError, whose text is one sentence, for one that nothing is fetched from."""
    parts = urlsplit(text)
    if parts.scheme not in URL_SCHEMES:
        raise ValueError("it must begin with https://, http:// or file:")
    if parts.fragment or (parts.scheme == "file" and (parts.query or parts.netloc not in ("", "localhost"))):
        raise ValueError("it must be an address without a fragment; one of a file has a path alone")
    if parts.scheme != "file" and (not parts.hostname or "@" in parts.netloc or parts.port == 0):
        raise ValueError("it must name a host, and nobody's password")
    if parts.scheme == "file" and not parts.path.startswith("/"):
        raise ValueError("it must hold the whole path of a file")
    return parts
