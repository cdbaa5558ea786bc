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

SECRET_KEYS_MAX: Final = 4
"""Keys that a process remembers something of: a node has one."""

Tokens = Mapping[str, Any]
"""Of an image: the DelegationTokenRecord of each id."""


def hmac_of(secret_key: str, token_id: str) -> bytes:
    """The HMAC of a token."""
    return _hmac(_keyed(secret_key), token_id)


def _hmac(keyed: hmac.HMAC, token_id: str) -> bytes:
    made = keyed.copy()
    made.update(token_id.encode())
    return made.digest()


@lru_cache(maxsize=SECRET_KEYS_MAX)
def _keyed(secret_key: str) -> hmac.HMAC:
    """What the HMACs of a cluster begin with."""
    return hmac.new(secret_key.encode(), digestmod="sha512")


def password_of(secret_key: str, token_id: str) -> str:
    """The password of a login with the token."""
    return base64.b64encode(hmac_of(secret_key, token_id)).decode()


@lru_cache(maxsize=CREDENTIALS_MAX)
def credential_of_token(mechanism: ScramMechanism, secret_key: str, token_id: str, salt: bytes) -> ScramCredential:
    """What a token's login is checked by: made when somebody first logs in with it, as it takes milliseconds.

    Unauthenticated clients get the salt: the secret key is no part of it.
    """
    return make_credential(mechanism, password_of(secret_key, token_id), salt, ITERATIONS_MIN)


class _Index:
    """The ids of tokens by their HMACs, of a cluster with this secret key. It follows the metadata when an HMAC comes
    that it does not know: one of 10,000 is found at once, and an unknown one costs a look at the changes.

    Where a look-up ends tells nothing of another HMAC: the hash of all of its bytes says where to look, under a key of
    this process.
    """

    def __init__(self, secret_key: str) -> None:
        self._keyed = _keyed(secret_key)
        self._followed: Tokens = {}
        self._ids: dict[bytes, str] = {}
        self._hmacs: dict[str, bytes] = {}

    def find(self, tokens: Tokens, given: bytes) -> Any:
        """The record with this HMAC; None where there is none."""
        token_id = self._ids.get(given)
        if token_id not in tokens and tokens is not self._followed:
            self._follow(tokens)
            token_id = self._ids.get(given)
        return None if token_id is None else tokens.get(token_id)

    def _follow(self, tokens: Tokens) -> None:
        for token_id in self._hmacs.keys() - tokens.keys():
            del self._ids[self._hmacs.pop(token_id)]
        for token_id in tokens.keys() - self._hmacs.keys():
            made = self._hmacs[token_id] = _hmac(self._keyed, token_id)
            self._ids[made] = token_id
        self._followed = tokens


_index_of: Final = lru_cache(maxsize=SECRET_KEYS_MAX)(_Index)


def token_of(tokens: Tokens, secret_key: str, given: bytes) -> Any:
    """The record of the token with this HMAC; None where there is none."""
    return _index_of(secret_key).find(tokens, given)


def is_over(record: Any, now_ms: int) -> bool:
    """Whether a token's time is up."""
    return bool(record.max_timestamp < now_ms or record.expiration_timestamp < now_ms)
