"""Settings of OAUTHBEARER: whose tokens a listener takes, and where the keys come from by which they are checked."""

from __future__ import annotations

from typing import Final

from .oauth import (
    ALLOWED_URLS,
    AUDIENCE,
    BACKOFF_MAX_MS,
    BACKOFF_MS,
    CLIENT_ID,
    CLIENT_SECRET,
    CLOCK_SKEW_S,
    CONNECT_MS,
    ISSUER,
    JWKS_URL,
    READ_MS,
    REFRESH_MS,
    RETRY_MAX_MS,
    RETRY_MS,
    SCOPE,
    SCOPE_CLAIM,
    SUB_CLAIM,
    TOKEN_URL,
    UNVERIFIED_AUDIENCE,
    UNVERIFIED_ISSUER,
    URLENCODE,
    split_url,
)
from .setting import LONG_MAX, Family, Setting, Type, Value

_SKEW_S_MAX: Final = 86_400
_NO_ASSERTIONS: Final = "a node takes its token from a file, or by clientId and clientSecret, and by nothing else"


def _url_check(value: Value) -> str:
    if not value:
        return ""
    try:
        split_url(str(value))
    except ValueError as error:
        return str(error)
    return ""


def _audience_check(value: Value) -> str:
    assert isinstance(value, tuple)
    if not all(value) or len(set(value)) < len(value):
        return "it must be a list without empty values, and none of them twice"
    return ""


def _claim_check(value: Value) -> str:
    return "" if str(value).strip() else "it must be the name of a claim"


OAUTH_ROWS: Final[tuple[Setting, ...]] = (
    Setting(ALLOWED_URLS, Type.LIST, (),
            "Addresses that `sasl.oauthbearer.jwks.endpoint.url` may have, and, but for files, "
            "`sasl.oauthbearer.token.endpoint.url`; an address that is not among them is refused. What the JVM's "
            "property `org.apache.kafka.sasl.oauthbearer.allowed.urls` is to Kafka.",
            ours=True),
    Setting(UNVERIFIED_AUDIENCE, Type.BOOLEAN, False,
            "Whether tokens need not be meant for this cluster: `sasl.oauthbearer.expected.audience` may be empty.",
            by="mechanism"),
    Setting(UNVERIFIED_ISSUER, Type.BOOLEAN, False,
            "Whether tokens may be anybody's whose keys are known: `sasl.oauthbearer.expected.issuer` may be unset.",
            by="mechanism"),
    Setting(CLOCK_SKEW_S, Type.INT, 30, "How many seconds the clocks of issuer and broker may differ by.",
            at_least=0, at_most=_SKEW_S_MAX, by="mechanism"),
    Setting(AUDIENCE, Type.LIST, (), "A token must be meant for one of these (`aud`).",
            check=_audience_check, by="mechanism"),
    Setting(ISSUER, Type.STRING, None, "A token must be of this issuer (`iss`).", by="mechanism"),
    Setting(REFRESH_MS, Type.LONG, 3_600_000, "How often the broker fetches the keys of the issuer again.",
            at_least=1000, at_most=LONG_MAX, by="mechanism"),
    Setting(BACKOFF_MS, Type.LONG, 100,
            "How long the broker waits after a first failure to fetch the keys; twice as long after each further one.",
            at_least=1, at_most=3_600_000, by="mechanism"),
    Setting(BACKOFF_MAX_MS, Type.LONG, 10_000, "The longest such wait.",
            at_least=1, at_most=3_600_000, by="mechanism"),
    Setting(JWKS_URL, Type.STRING, None,
            "Where the keys are that verify signed tokens, a JSON Web Key Set: `https:`, `http:` or `file:`.",
            check=_url_check, by="mechanism"),
    Setting(SCOPE_CLAIM, Type.STRING, "scope", "The claim that holds a token's scope.",
            check=_claim_check, by="mechanism"),
    Setting(SUB_CLAIM, Type.STRING, "sub", "The claim that names the principal.",
            check=_claim_check, by="mechanism"),
    Setting(TOKEN_URL, Type.STRING, None,
            "Where the token comes from with which this node logs in to others: a file that is read at each login "
            "(`file:/path`), or an issuer that is asked for it by the client credentials grant (`https:`, `http:`).",
            check=_url_check, by="mechanism"),
    Setting(CLIENT_ID, Type.STRING, None,
            "Client id for the issuer of tokens; not set: `clientId` of the JAAS line.", by="mechanism"),
    Setting(CLIENT_SECRET, Type.PASSWORD, None,
            "The secret of the client that asks; not set: `clientSecret` of the JAAS line.", by="mechanism"),
    Setting(SCOPE, Type.STRING, None,
            "The scope of the token that is asked for; not set: `scope` of the JAAS line.", by="mechanism"),
    Setting(URLENCODE, Type.BOOLEAN, False,
            "Whether id and secret are encoded as in addresses before they are sent, as RFC 6749 has it.",
            by="mechanism"),
    Setting(CONNECT_MS, Type.INT, 5000, "How long connecting to the issuer may take.",
            at_least=1, at_most=600_000, by="mechanism"),
    Setting(READ_MS, Type.INT, 5000, "How long the issuer may take to answer.",
            at_least=1, at_most=600_000, by="mechanism"),
    Setting(RETRY_MS, Type.LONG, 100,
            "How long the wait is after a first failure to get a token; twice as long after each further one.",
            at_least=1, at_most=3_600_000, by="mechanism"),
    Setting(RETRY_MAX_MS, Type.LONG, 10_000, "For how long a token is asked for again after failures.",
            at_least=1, at_most=3_600_000, by="mechanism"),
)  # fmt: skip

OAUTH_FAMILIES: Final[tuple[Family, ...]] = (
    Family("sasl.oauthbearer.assertion.", "How a node of Kafka proves who it is to the issuer.", _NO_ASSERTIONS),
    Family("sasl.oauthbearer.jwt.", "Classes that fetch and check the tokens of a node of Kafka.", _NO_ASSERTIONS),
)
