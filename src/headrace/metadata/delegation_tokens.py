"""Delegation tokens: what a client that has logged in gets, and gives to others, so that they log in as it does.

A token is an id, and the HMAC of the id under the cluster's secret key. The metadata hold the ids, who owns them and
until when they last; nobody who reads them can make an HMAC. With SCRAM the id is the name and the HMAC, in base64, the
password. Source: KIP-48, KIP-373 (tokens for others), KIP-900 (in the metadata).
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from headrace.metadata.scram_credentials import ITERATIONS_MIN, ScramCredential, ScramMechanism, make_credential

TOKENS_MAX: Final = 10_000
"""Tokens that a cluster keeps; Kafka has no such bound."""
PRINCIPALS_CHARACTERS_MAX: Final = 8192
"""How long the names of a token's owner, requester and renewers may be, together."""
CREDENTIALS_MAX: Final = 2 * TOKENS_MAX
"""Credentials of tokens that a process remembers: one of each mechanism."""

Tokens = Mapping[str, Any]
"""Of an image: the DelegationTokenRecord of each id."""


@lru_cache(maxsize=TOKENS_MAX)
def hmac_of(secret_key: str, token_id: str) -> bytes:
    """The HMAC of a token."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def password_of(secret_key: str, token_id: str) -> str:
    """What whoever has the token logs in with."""
    return base64.b64encode(hmac_of(secret_key, token_id)).decode()


@lru_cache(maxsize=CREDENTIALS_MAX)
def credential_of_token(mechanism: ScramMechanism, secret_key: str, token_id: str, salt: bytes) -> ScramCredential:
    """What a token's login is checked by: made when somebody first logs in with it, as it takes milliseconds. The salt
    is told to strangers: the secret key is no part of it."""
    return make_credential(mechanism, password_of(secret_key, token_id), salt, ITERATIONS_MIN)


def token_of(tokens: Tokens, secret_key: str, given: bytes) -> Any:
    """The record of the token with this HMAC; None where there is none."""
    found = None
    for token_id, record in tokens.items():
        if hmac.compare_digest(hmac_of(secret_key, token_id), given):
            found = record
    return found


def is_over(record: Any, now_ms: int) -> bool:
    """Whether a token's time is up."""
    return bool(record.max_timestamp < now_ms or record.expiration_timestamp < now_ms)
